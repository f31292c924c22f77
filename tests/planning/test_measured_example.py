"""What the example of real trainings measures, and how it compares: by hand."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from paracosm.simulation.schedule import READ, STEP, UPDATE, Schedule

EXAMPLE = Path(__file__).parents[2] / "examples" / "time_to_accuracy"
SECOND = 10**12  # picoseconds


@pytest.fixture(scope="module")
def example() -> Any:
    sys.path.insert(0, str(EXAMPLE))
    try:
        import cells
        import comparing
    finally:
        sys.path.remove(str(EXAMPLE))
    return cells, comparing


def course(comparing: Any, ends: list[list[float]], losses: list[float], ages: list[int]) -> Any:
    """A training by the ends of each worker's steps, seconds, and what else is compared."""
    steps = [
        (worker, number, 0, round(end * SECOND), 1)
        for worker, its in enumerate(ends)
        for number, end in enumerate(its)
    ]
    updates = [(i, 0, i, 0, i + 1, i - age) for i, age in enumerate(ages)]
    schedule = Schedule(
        np.zeros(0, READ), np.array(updates, UPDATE), np.array(steps, STEP), 0, 0, {}
    )
    return comparing.Course(schedule, np.arange(float(len(losses))), np.array(losses))


def test_throughput_is_from_end_to_end_without_the_first_two_steps(example: Any) -> None:
    ends = [[0.9, 1.9, 2.0, 2.5, 3.0], [1.0, 2.0, 4.0, 5.0], [7.0]]
    its = course(example[1], ends, [], [])
    assert its.steps_per_second == pytest.approx(2 / 1.0 + 1 / 1.0)


@pytest.mark.parametrize(
    ("losses", "expected"),
    [
        ([2.0, 0.1, 0.05, 0.2, 0.1, 0.09, 0.08], 4.0),  # the first two do not last
        ([2.0, 0.1, 0.05], np.inf),
        ([float("nan")] * 5, np.inf),
    ],
)
def test_a_target_is_reached_where_three_evaluations_meet_it(
    example: Any, losses: list[float], expected: float
) -> None:
    assert course(example[1], [], losses, []).time_to_target == expected


def test_staleness_is_compared_by_total_variation(example: Any) -> None:
    cells, comparing = example
    measured = course(comparing, [], [], [0, 0, 1, 1])
    predicted = course(comparing, [], [], [0, 1, 1, 2])
    row = comparing.Row(cells.Cell("fair", 2), [measured], [predicted])
    # 1/2, 1/2, 0 against 1/4, 1/2, 1/4
    assert row.staleness_distance == pytest.approx(0.25)


def test_cells_are_kept_apart_and_cover_what_is_to_be_shown(example: Any) -> None:
    cells, _ = example
    full, quick = cells.plan("full"), cells.plan("quick")
    names = [cell.name for cell in (*full, *quick)]
    assert len(set(names)) == len(names)
    designs = {
        (cell.workers, cell.algorithm, cell.lr)
        for cell in full
        if (cell.link, cell.start) == ("fair", "together")
    }
    assert len(designs) >= 12 + 6
    for workers in (2, 4, 8):
        of = [c for c in full if (c.workers, c.algorithm, c.lr) == (workers, "asgd", 0.1)]
        assert sum(c.link == "fair" and c.start == "together" for c in of) >= 5
        assert {(c.link, c.start) for c in of} == {
            (link, start) for link in ("fair", "fifo") for start in ("together", "staggered")
        }
    assert sum(cell.seconds for cell in full) < 100 * 60
