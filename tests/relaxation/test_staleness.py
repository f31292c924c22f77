"""Staleness of the values read, and Definition 1."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.problems import load_problem
from paracosm.relaxation.result import RelaxationResult
from paracosm.relaxation.run import relax, run_relaxation

PROBLEM = load_problem("laplace2d:6")


def run(times: list[Any], until: float, **more: Any) -> RelaxationResult:
    given = {"time": times, "processors": len(times), "tolerance": None, "max_time": until}
    return relax(PROBLEM, **{**given, **more})


def counts(result: RelaxationResult) -> list[int]:
    assert result.staleness.width == 1
    return np.trim_zeros(result.staleness.counts, "b").tolist()


def test_two_processors_by_hand() -> None:
    """P0 takes 2 s, P1 3 s: writes at 2, 3, 4 and, P0 first, at 6.

    t = 2: P0 read with nothing written, nothing since: 0.
    t = 3: P1 read the same, P0 wrote since: 1.
    t = 4: P0 read at 2 (after 1 update), P1 wrote since: 1.
    t = 6: P0 read at 4 (after 3): 0. P1 read at 3 (after 2), P0 wrote at 4 and just now: 2.
    """
    result = run([2, 3], 6)
    assert result.updates.tolist() == [3, 2]
    assert counts(result) == [2, 2, 1]
    assert result.staleness.mean == 4 / 5
    assert result.staleness.most == 2
    assert result.last_update.tolist() == [6, 6]


def test_three_processors_by_hand() -> None:
    """Durations 1, 2 and 4 s up to t = 4, in the order of the updates.

    t: processor (updates written when it read -> when it writes)
    1: P0 (0 -> 0): 0
    2: P0 (1 -> 1): 0, P1 (0 -> 2): 2
    3: P0 (3 -> 3): 0
    4: P0 (4 -> 4): 0, P1 (3 -> 5): 2, P2 (0 -> 6): 6
    """
    result = run([1, 2, 4], 4)
    assert result.updates.tolist() == [4, 2, 1]
    assert counts(result) == [4, 0, 2, 0, 0, 0, 1]
    assert result.staleness.mean == pytest.approx(10 / 7)


def test_in_step_each_misses_those_before_it() -> None:
    result = run([5] * 6, 50)
    assert counts(result) == [10] * 6
    assert counts(run([5] * 6, 50, synchronous=True)) == [60]  # all read what all wrote


@pytest.mark.parametrize("read", ["completion", "gauss-seidel"])
def test_who_reads_at_completion_reads_the_newest(read: str) -> None:
    assert counts(run(["normal(10, 3)"] * 6, 500, read=read)) == [
        run(["normal(10, 3)"] * 6, 500, read=read).updates.sum()
    ]


def test_many_processors_share_the_bins_and_none_is_lost() -> None:
    problem = load_problem("laplace2d:30")
    result = relax(problem, processors=900, time="lognormal(10, 1)", max_time=1000, tolerance=None)
    staleness = result.staleness
    assert staleness.counts.sum() == result.updates.sum()
    width = staleness.width
    assert width > 1
    used = np.flatnonzero(staleness.counts)
    assert used[-1] == min(staleness.most // width, staleness.counts.size - 1)
    middle = (staleness.counts * (np.arange(staleness.counts.size) + 0.5)).sum() * width
    assert staleness.mean == pytest.approx(middle / staleness.counts.sum(), rel=0.1)


def definition(**more: Any) -> dict[str, Any]:
    given = {"problem": "laplace2d:6", "processors": 4, "time": "normal(10, 2)", **more}
    summary = run_relaxation(RelaxConfig(**given)).summary["definition"]
    assert isinstance(summary, dict)
    return summary


def test_definition_1_holds() -> None:
    found = definition()
    assert (found["finished_only"], found["newest_used"], found["all_updated"]) == (True,) * 3
    assert found["sentence"].startswith("the three conditions of Definition 1 held")


def test_a_processor_that_stops_breaks_condition_3() -> None:
    found = definition(fault="stop on processor 2 at 40s", max_time=2000)
    assert (found["finished_only"], found["newest_used"], found["all_updated"]) == (
        True,
        True,
        False,
    )
    assert "processor 2 stopped updating (condition 3)" in found["sentence"]


def test_a_processor_that_restarts_in_time_breaks_nothing() -> None:
    found = definition(fault="stop(200s) on processor 2 at 40s", max_time=2000, tolerance=None)
    assert found["all_updated"]


def test_a_processor_that_goes_on_with_stale_values_breaks_condition_2() -> None:
    found = definition(fault="stale(10000s) on processor 1 at 50s", max_time=2000)
    assert not found["newest_used"]
    assert "condition 2" in found["sentence"]
