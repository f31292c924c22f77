"""Thinned curves, histograms and crowds keep what the eye styles for."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.report.chart import extremes
from paracosm.results.charts import histogram, quantiles

values = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=400).map(np.array)


@given(values, st.sampled_from([8, 40, 2000]))
def test_extremes_keep_order_ends_lowest_and_highest(y: np.ndarray, points: int) -> None:
    kept = extremes(y, points)
    assert len(kept) <= max(points, 4)
    assert (np.diff(kept) > 0).all()
    assert kept[0] == 0
    assert kept[-1] == len(y) - 1
    assert y[kept].min() == y.min()
    assert y[kept].max() == y.max()


def test_extremes_keep_a_single_spike_among_a_million() -> None:
    y = np.zeros(1_000_000)
    y[123_457] = 1.0
    assert 123_457 in extremes(y)


def test_extremes_of_a_curve_that_ends_in_nan_keep_the_numbers_before() -> None:
    y = np.concatenate([np.arange(5000.0), np.full(5000, np.nan)])
    kept = y[extremes(y, 100)]
    assert np.nanmax(kept) == 4999
    assert np.isnan(kept[-1])


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=300).map(np.array))
def test_histogram_is_numpys_of_the_same_bins_and_sums_to_one(staleness: np.ndarray) -> None:
    edges, shares = histogram(staleness.astype(float))
    widths = np.diff(edges)
    assert len(shares) <= 100
    assert (widths == widths[0]).all()
    assert edges[0] <= staleness.min() <= staleness.max() <= edges[-1]
    assert (shares * widths).sum() == pytest.approx(1)
    expected, _ = np.histogram(staleness, edges, density=True)
    np.testing.assert_allclose(shares, expected)


def test_histogram_of_few_whole_numbers_counts_each_one() -> None:
    edges, shares = histogram(np.array([3.0, 3.0, 5.0, 3.0]))
    assert edges.tolist() == [2.5, 3.5, 4.5, 5.5]
    assert shares.tolist() == [0.75, 0.0, 0.25]


def test_histogram_of_one_value_is_one_bin() -> None:
    edges, shares = histogram(np.zeros(10))
    assert edges.tolist() == [-0.5, 0.5]
    assert shares.tolist() == [1.0]


@given(values, st.sampled_from([2, 7, 200]))
def test_quantiles_keep_lowest_and_highest_in_order(y: np.ndarray, most: int) -> None:
    chosen = y[quantiles(y, most)]
    assert len(chosen) == min(len(y), most)
    assert (np.diff(chosen) >= 0).all()
    assert chosen[0] == y.min()
    assert chosen[-1] == y.max()


def test_histogram_leaves_out_what_is_not_finite() -> None:
    values = np.array([2.0, np.nan, 3.0, np.inf])
    edges, shares = histogram(values, counts=np.array([1, 5, 3, 5]))
    assert edges.tolist() == [1.5, 2.5, 3.5]
    assert shares.tolist() == [0.25, 0.75]
    assert histogram(values[1:2])[1].tolist() == [0]
