"""Which profiles are refused, and which of their steps are left out."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from small_job_profile import small_job_profile

from paracosm.errors import InputError
from paracosm.profiling.jobs.job_profile import INTERRUPTED, check_job_profile, without_interrupted


def changed(row: int, column: int, value: float, name: str) -> dict[str, Any]:
    times = getattr(small_job_profile(), name).copy()
    times[row, column] = value
    return {name: times}


def test_a_sound_profile_is_given_back() -> None:
    profile = small_job_profile()
    assert check_job_profile(profile, "job") is profile


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (changed(1, 2, np.nan, "end"), "no end"),
        (changed(1, 2, np.nan, "begin"), "no begin"),
        (changed(1, 1, 1.0, "end"), "ends before it begins"),
        (changed(1, 0, -0.5, "begin"), "begins before its step"),
        (changed(1, 4, 9.0, "begin") | changed(1, 4, 9.5, "end"), "begins after its step's end"),
    ],
)
def test_steps_that_cannot_be_right_are_counted(changes: dict[str, Any], reason: str) -> None:
    profile = check_job_profile(small_job_profile(**changes), "job")
    assert profile.dropped == {reason: 1}
    assert profile.begin.tolist() == [small_job_profile().begin[0].tolist()]
    assert profile.step_end.tolist() == [5.6]


def test_the_last_step_cannot_be_left_out() -> None:
    end = small_job_profile().end.copy()
    end[:, 1] = 0.0
    with pytest.raises(
        InputError, match=r"job: no step is left of 2: step 0, forward: ends before"
    ):
        check_job_profile(small_job_profile(end=end), "job")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"names": ("pull", "f", "f", "push", "update")}, "2 ops are called f"),
        ({"kinds": ("RecvTensor",)}, "kinds has 1 values for 5 ops"),
        ({"resource": np.array([0, 1, 1, 2, 7], np.int8)}, "update has no known resource"),
        ({"resource": np.array([0, 1, 1, 1, 3], np.int8)}, "push computes, and yet transfers"),
        ({"resource": np.array([0, 1, 1, 0, 3], np.int8)}, "no op of the uplink"),
        ({"size": np.array([-1, 0, 0, 1, 0])}, "pull transfers a negative number of bytes"),
        ({"server": np.array([0, 0, 0, -1, 0])}, "push has a negative number of a server"),
        ({"dependencies": np.array([0, 1, 2, 9])}, "a dependency on an op that is not there"),
        ({"dependencies": np.array([2, 1, 2, 3])}, "ops wait for each other: forward, backward"),
        ({"first_dependency": np.array([0, 1])}, "first_dependency does not fit"),
        ({"begin": np.zeros((2, 4))}, "begin has the shape"),
        ({"step_end": np.zeros(1)}, "1 ends of 2 steps"),
        ({"bandwidth": 0.0}, "bandwidth is 0.0, not above 0"),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    if "dependencies" in changes and changes["dependencies"][0] == 2:
        changes = changes | {"first_dependency": np.array([0, 0, 1, 2, 3, 4])}
    with pytest.raises(InputError, match=f"^job: .*{message}"):
        check_job_profile(small_job_profile(**changes), "job")


@pytest.mark.parametrize("which", ["step_begin", "step_end"])
def test_steps_without_times_of_their_own_are_left_out(which: str) -> None:
    times = getattr(small_job_profile(), which).copy()
    times[1] = np.nan
    kept = check_job_profile(small_job_profile(**{which: times}), "job")
    assert kept.steps == 1
    assert kept.dropped == {"its step has no begin or no end": 1}


def test_interrupted_steps_are_left_out() -> None:
    profile = many_steps([1.0, 1.01, 0.99, 1.02, 1.0, 0.98, 1.01, 4.0])
    kept = without_interrupted(profile)
    assert kept.steps == 7
    assert kept.dropped == {INTERRUPTED: 1}
    assert kept.end[:, 1].max() < 2.2


def test_a_quarter_of_the_steps_is_no_interruption() -> None:
    profile = many_steps([1.0, 1.0, 1.0, 4.0] * 3)
    assert without_interrupted(profile) is profile


def test_steps_that_are_all_alike_stay() -> None:
    profile = many_steps([1.0] * 9 + [1.05])
    assert without_interrupted(profile) is profile


def many_steps(forward: list[float]) -> Any:
    """Return a profile whose forward op takes so long in each of its steps."""
    steps = len(forward)
    begin = np.tile(small_job_profile().begin[0], (steps, 1))
    end = np.tile(small_job_profile().end[0], (steps, 1))
    end[:, 1] = begin[:, 1] + forward
    times = 10.0 * np.arange(steps)
    return small_job_profile(begin=begin, end=end, step_begin=times, step_end=times + 9)
