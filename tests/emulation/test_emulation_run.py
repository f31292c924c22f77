"""Which runs a job with changes is made of, and what is said of them together."""

from __future__ import annotations

from typing import Any

import pytest

from paracosm.emulation import run
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.job import Ended
from paracosm.emulation.result import EmulationResult
from paracosm.emulation.run import run_emulation
from paracosm.emulation.view import FIGURES, sentence, tables
from paracosm.results import EmulationSummary
from paracosm.validation import validated

CHANGES = ("all_reduce: +2 ms", "worker 3: compute 1.5x slower")


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[EmulateConfig]:
    """Stand for the script: 100 ms an iteration, 2 ms more for each changed or delayed thing."""
    made: list[EmulateConfig] = []

    def run_once(self: Any, config: EmulateConfig, **ignored: Any) -> tuple[EmulationResult, Ended]:
        made.append(config)
        median = 0.1 + 2e-3 * len(config.what_if)
        time = {"median": median, "p10": median, "p90": median, "error": 1e-4}
        parts = {"compute": 0.08, "exposed_communication": median - 0.08, "waiting": 0.0}
        summary = {"status": "done", "world_size": 8, "iteration_time": time, "breakdown": parts}
        summary["collectives"] = {}
        return EmulationResult(EmulationSummary.from_dict(summary), None), Ended(0, None, False)

    monkeypatch.setattr(run._Runs, "once", run_once)
    return made


def job(**given: Any) -> EmulateConfig:
    return validated(EmulateConfig, {"script": "train.py", "workers": 8, **given}, "here")


def changes(config: EmulateConfig) -> list[str]:
    return list(map(str, config.what_if))


def test_the_unchanged_job_runs_last_and_stands_beside(runs: list[EmulateConfig]) -> None:
    said: list[str] = []
    summary = run_emulation(job(what_if=CHANGES), announce=said.append).summary
    assert list(map(changes, runs)) == [list(CHANGES), []]
    assert "the changed job comes first" in said[0]
    assert summary["what_if"] == list(CHANGES)
    assert summary["unchanged"]["iteration_time"]["median"] == 0.1
    assert summary["ratio"] == pytest.approx(1.04)
    assert (
        FIGURES["Unchanged"](summary) == "100 ms (100 ms to 100 ms); 1.040 times with the changes"
    )
    assert sentence(summary).startswith(
        f"In a world of 8, an iteration takes 104 ms with {'; '.join(CHANGES)} instead of 100 ms"
    )
    table = next(table for table in tables(summary) if table.title.startswith("With and"))
    assert [row[:2] for row in table.rows] == [
        ("unchanged", "100 ms"),
        ("; ".join(CHANGES), "104 ms"),
    ]


def test_without_changes_there_is_one_run(runs: list[EmulateConfig]) -> None:
    summary = run_emulation(job()).summary
    assert list(map(changes, runs)) == [[]]
    assert "unchanged" not in summary
    assert FIGURES["Unchanged"](summary) is None


def test_another_number_of_workers_is_a_change_like_others(runs: list[EmulateConfig]) -> None:
    run_emulation(job(what_if="workers: 4"))
    assert [run.world for run in runs] == [4, 8]


def test_delays_begin_with_none_and_go_beside_other_changes(runs: list[EmulateConfig]) -> None:
    config = job(what_if="worker 3: +1 ms", delays="all_reduce 1ms..3ms/3")
    summary = run_emulation(config).summary
    assert changes(runs[-1]) == []
    late = "worker 3: +1 ms"
    added = [[], *([f"all_reduce: +{delay!r} s"] for delay in (0.001, 0.002, 0.003))]
    assert sorted(map(changes, runs[:-1])) == sorted([late, *each] for each in added)
    assert [each["delay"] for each in summary["delays"]] == [0.0, 0.001, 0.002, 0.003]
    assert summary["unchanged"]["iteration_time"]["median"] == 0.1
