"""The job that was profiled and measured on this kind of machine, predicted from its record."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "papers" / "throughput_prediction"


@pytest.fixture(scope="module")
def table() -> Any:
    sys.path.insert(0, str(EXAMPLE))
    try:
        import own_table
    finally:
        sys.path.remove(str(EXAMPLE))
    return own_table


def test_throughput_leaves_the_first_two_steps_of_each_worker_out(table: Any) -> None:
    ends = [[900.0, 1900.0, 2000.0, 2500.0, 3000.0], [1000.0, 2000.0, 4000.0, 5000.0]]
    assert table.throughput({"end_ms": ends}) == pytest.approx(2 / 1.0 + 1 / 1.0)


@pytest.mark.slow
def test_windows_of_the_record_are_predicted_within_five_percent(
    table: Any, tmp_path: Path
) -> None:
    measured = table.load_measured(EXAMPLE / "measured")
    runs = [run for run in measured["runs"] if run["start"] == "staggered" and run["W"] < 5]
    rows = table.compare({**measured, "runs": runs}, EXAMPLE / "measured" / "job.profile")
    assert [row.workers for row in rows] == [1, 2, 3, 4]
    assert max(abs(row.error) for row in rows) < 0.05
    # The link is half idle with two workers, and three times as fast as one worker is too much.
    assert rows[1].predicted > 1.9 * rows[0].predicted
    assert rows[3].predicted < rows[2].predicted + 0.5 * rows[0].predicted
    assert "worst" in table.write_table(rows)
    table.draw(rows, tmp_path / "own_run.png")
    assert (tmp_path / "own_run.png").stat().st_size > 10_000


def test_a_record_is_read_as_it_was_written(table: Any, tmp_path: Path) -> None:
    measured = table.load_measured(EXAMPLE / "measured")
    table.save_measured(measured, tmp_path)
    assert table.load_measured(tmp_path) == measured
