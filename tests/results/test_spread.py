"""Medians and intervals of times to a target."""

from __future__ import annotations

from math import inf, isinf, isnan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.results.spread import SHARE, are_told_apart, paired_ratio, spread

TIMES = st.lists(st.floats(1e-3, 1e6), min_size=2, max_size=12)


def test_the_interval_of_five_values_by_hand() -> None:
    # Logarithms 0, 1, 2, 3, 4: mean 2, deviation sqrt(2.5); t(0.9, 4) = 1.5332 (tables).
    found = spread(np.exp([3, 0, 4, 1, 2]).tolist())
    reach = 1.5332 * 2.5**0.5 * 1.2**0.5
    assert found.median == pytest.approx(np.exp(2))
    assert found.low == pytest.approx(np.exp(2 - reach), rel=1e-4)
    assert found.high == pytest.approx(np.exp(2 + reach), rel=1e-4)


def test_the_interval_holds_its_share_of_further_values() -> None:
    rng = np.random.default_rng(0)
    drawn = np.exp(rng.normal(3.0, 0.2, (4000, 6)))
    held = 0
    for *seen, further in drawn.tolist():
        found = spread(seen)
        held += found.low <= further <= found.high
    assert held / 4000 == pytest.approx(SHARE, abs=3 * (SHARE * (1 - SHARE) / 4000) ** 0.5)


def test_runs_that_never_came_are_counted_as_the_longest() -> None:
    found = spread([10.0, inf, 12.0, 11.0, 13.0])
    assert found.median == 12.0
    assert found.low == pytest.approx(10.4)  # between the least and the second one, at 0.4
    assert isinf(found.high)
    assert isinf(spread([5.0, inf, inf]).median)


def test_a_single_value_is_its_own_interval() -> None:
    found = spread([7.0])
    assert (found.low, found.median, found.high) == (7.0, 7.0, 7.0)
    with pytest.raises(ValueError, match="no value"):
        spread([])


@given(TIMES, st.floats(1e-3, 1e3))
def test_intervals_scale_and_hold_the_geometric_mean(times: list[float], factor: float) -> None:
    found, scaled = spread(times), spread([factor * time for time in times])
    assert scaled.median == pytest.approx(factor * found.median)
    assert scaled.low == pytest.approx(factor * found.low)
    assert scaled.high == pytest.approx(factor * found.high)
    centre = float(np.exp(np.log(times).mean()))
    assert found.low <= centre * (1 + 1e-9)
    assert centre <= found.high * (1 + 1e-9)


def test_ratios_are_taken_pair_by_pair() -> None:
    assert paired_ratio([2.0, 20.0, 200.0], [1.0, 10.0, 100.0]) == 2.0
    # Who never came took longer than who did; two who never came say nothing.
    assert paired_ratio([2.0, inf, 9.0], [1.0, 10.0, 3.0]) == 3.0
    assert paired_ratio([2.0, 4.0, 9.0], [1.0, inf, 3.0]) == 2.0
    assert paired_ratio([2.0, inf, 9.0], [1.0, inf, 3.0]) == 2.5
    assert isinf(paired_ratio([inf], [1.0]))
    assert isnan(paired_ratio([inf], [inf]))


@given(st.floats(1e-12, 1e12), st.integers(2, 9))
def test_equal_values_are_inside_their_interval(value: float, count: int) -> None:
    """The exponential of a logarithm is rounded: 0.3 comes back as 0.30000000000000004."""
    found = spread([value] * count)
    assert found.low <= found.median <= found.high
    assert found.low == pytest.approx(value)
    assert found.high == pytest.approx(value)


@given(st.lists(st.one_of(st.floats(1e-6, 1e6), st.just(inf)), min_size=1, max_size=9))
def test_an_interval_holds_its_median(values: list[float]) -> None:
    found = spread(values)
    assert found.low <= found.median <= found.high


def test_designs_are_told_apart_by_the_spread_of_their_ratios() -> None:
    # Logarithms of the ratios by hand: 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, t(0.95, 2) = 2.92
    # (tables): 0.2 > 2.92 x 0.1 / sqrt(3) = 0.169. With 0.05, 0.2, 0.35: 0.2 < 0.253.
    times = np.array([10.0, 20.0, 40.0])
    near = times * np.exp([0.1, 0.2, 0.3])
    far = times * np.exp([0.05, 0.2, 0.35])
    assert are_told_apart(times.tolist(), near.tolist())
    assert not are_told_apart(times.tolist(), far.tolist())
    assert not are_told_apart([1.0], [2.0])  # one pair is confirmed by no other
    assert are_told_apart([1.0, 1.0], [2.0, 2.0])  # without any spread
    assert not are_told_apart([1.0, 1.0], [1.0, 1.0])
    # Five of five on one side: 2 / 2^5 = 6 % < 10 %; four of four: 12.5 %.
    assert are_told_apart([1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 3.0, 4.0, 5.0, inf])
    assert not are_told_apart([1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0, inf])
