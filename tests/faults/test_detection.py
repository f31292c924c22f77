"""Faults against rollbacks, matched by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.faults.checkpoint import DetectionScore, score

TIMES = st.lists(st.floats(0, 100), max_size=12)


@pytest.mark.parametrize(
    ("faults", "rollbacks", "expected"),
    [
        ([], [], DetectionScore(0, 0, 0, 0, None, None)),
        ([10], [], DetectionScore(0, 1, 0, 0, 0.0, None)),
        ([], [10], DetectionScore(0, 0, 1, 0, None, 1.0)),
        ([10], [10], DetectionScore(1, 0, 0, 0, 1.0, 0.0)),
        ([10], [15], DetectionScore(1, 0, 0, 0, 1.0, 0.0)),  # at the end of the window
        ([10], [15.5], DetectionScore(0, 1, 1, 0, 0.0, 1.0)),
        ([10], [9], DetectionScore(0, 1, 1, 0, 0.0, 1.0)),  # before the fault
        ([10], [11, 12], DetectionScore(1, 0, 1, 0, 1.0, 0.5)),
        ([10, 11], [12, 13], DetectionScore(2, 0, 0, 0, 1.0, 0.0)),
        # 13 takes the latest, 12, which leaves 9 for 14 and nothing for 17: 12 is taken.
        ([9, 12], [13, 14, 17], DetectionScore(2, 0, 1, 0, 1.0, pytest.approx(1 / 3))),
        # 13 takes 12; for 16 the fault at 9 is too old.
        ([9, 12, 50], [16, 13], DetectionScore(1, 2, 1, 0, pytest.approx(1 / 3), 0.5)),
    ],
)
def test_matching_by_hand(
    faults: list[float], rollbacks: list[float], expected: DetectionScore
) -> None:
    assert score(faults, rollbacks, window=5) == expected


def test_further_rollbacks_of_one_fault_may_count_as_repeats() -> None:
    found = score([10], [10, 11, 12, 30], window=5, allow_repeats=True)
    assert found == DetectionScore(1, 0, 1, 2, 1.0, 0.25)


@given(TIMES, TIMES, st.floats(0, 20), st.booleans())
def test_nothing_is_lost_or_counted_twice(
    faults: list[float], rollbacks: list[float], window: float, repeats: bool
) -> None:
    found = score(faults, rollbacks, window, allow_repeats=repeats)
    assert found.detected + found.undetected == len(faults)
    assert found.detected + found.false_alarms + found.repeats == len(rollbacks)
    assert min(found.detected, found.undetected, found.false_alarms, found.repeats) >= 0


@pytest.mark.parametrize("window", [-1, float("nan")])
def test_a_window_is_not_negative(window: float) -> None:
    with pytest.raises(InputError, match="window of a detection"):
        score([], [], window)
