"""Intervals between checkpoints, and what a job with them is expected to take."""

from __future__ import annotations

from math import exp, inf, nan

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.faults import daly_interval, expected_makespan, young_interval


def test_young_by_hand() -> None:
    assert young_interval(2, 100) == 20
    assert young_interval(0, 100) == 0


@pytest.mark.parametrize(
    ("cost", "mtbf", "interval", "accuracy"),
    [
        # Daly 2006, captions of figures 3 to 5: minutes, as printed.
        (5, 24 * 60, 117, 0.5),
        (5, 6 * 60, 57, 0.5),
        (5, 15, 9.1, 0.05),
        # c = 2, M = 100: 20 (1 + 0.1 / 3 + 0.01 / 9) - 2
        (2, 100, 18.68888888888889, 1e-12),
        (200, 100, 100, 0),
        (1000, 100, 100, 0),
    ],
)
def test_daly_against_his_figures_and_by_hand(
    cost: float, mtbf: float, interval: float, accuracy: float
) -> None:
    assert daly_interval(cost, mtbf) == pytest.approx(interval, rel=0, abs=accuracy)


@given(st.floats(1e-6, 1e6))
def test_daly_approaches_young_when_a_checkpoint_is_cheap(mtbf: float) -> None:
    assert daly_interval(1e-10 * mtbf, mtbf) == pytest.approx(
        young_interval(1e-10 * mtbf, mtbf), rel=1e-4
    )


@pytest.mark.parametrize("interval", [young_interval, daly_interval])
def test_intervals_refuse_what_cannot_be(interval: object) -> None:
    for cost, mtbf, words in [
        (-1, 1, "cost"),
        (inf, 1, "cost"),
        (1, 0, "mean time"),
        (1, nan, "mean"),
    ]:
        with pytest.raises(InputError, match=words):
            interval(cost, mtbf)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("work", "interval", "cost", "restart", "mtbf", "makespan"),
    [
        # 10 segments of one mean time: M (e^1 - 1) each
        (90, 9, 1, 0, 10, 10 * 10 * (exp(1) - 1)),
        # the same with a restart of one mean time: each segment is e times as long
        (90, 9, 1, 10, 10, 10 * 10 * exp(1) * (exp(1) - 1)),
        (90, 9, 1, 10, inf, 100),
        (0, 9, 1, 10, 10, 0),
        (1e5, 1e5, 1, 10, 10, inf),
    ],
)
def test_makespan_by_hand(
    work: float, interval: float, cost: float, restart: float, mtbf: float, makespan: float
) -> None:
    found = expected_makespan(work, interval, cost, restart, mtbf)
    assert found == pytest.approx(makespan, rel=1e-12)


@given(st.floats(1, 1e4), st.floats(1e-3, 1e-1))
def test_the_makespan_is_shortest_near_dalys_interval(mtbf: float, share: float) -> None:
    """To a thousandth, of all intervals from a tenth to ten times as long."""
    cost = share * mtbf
    intervals = daly_interval(cost, mtbf) * np.geomspace(0.1, 10, 401)
    makespans = [
        expected_makespan(1.0, interval, cost, 0.0, mtbf) for interval in intervals.tolist()
    ]
    assert makespans[200] <= min(makespans) * 1.001


@pytest.mark.parametrize(
    ("work", "interval", "cost", "restart", "mtbf", "word"),
    [
        (1, 0, 1, 1, 1, "interval between checkpoints above 0"),
        (1, nan, 1, 1, 1, "interval between checkpoints above 0"),
        (1, 1, 1, -1, 1, "restart of 0 seconds or more"),
        (-1, 1, 1, 1, 1, "work"),
        (1, 1, -1, 1, 1, "cost"),
        (1, 1, 1, 1, 0, "mean time"),
    ],
)
def test_a_makespan_of_what_cannot_be_is_refused(
    work: float, interval: float, cost: float, restart: float, mtbf: float, word: str
) -> None:
    with pytest.raises(InputError, match=word):
        expected_makespan(work, interval, cost, restart, mtbf)
