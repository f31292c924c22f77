"""A journal of runs on disk."""

from __future__ import annotations

from math import inf
from pathlib import Path

import pytest

from paracosm.errors import InputError
from paracosm.planning.config import PlanConfig
from paracosm.planning.designs import Design
from paracosm.planning.runs import Journal, Runs
from paracosm.planning.successive_halving import Request
from paracosm.training.algorithms.registry import parse_algorithm


def test_results_are_there_when_it_is_opened_again(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    first = Journal(path)
    assert first.get("a") is None
    first.add("a", {"time": 1.5, "values": (1, 2)})
    first.add("b", {"time": None})
    again = Journal(path)
    assert len(again) == 2
    assert again.get("a") == {"time": 1.5, "values": [1, 2]} == first.get("a")
    assert again.get("b") == {"time": None}


def test_a_line_that_was_cut_off_is_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    Journal(path).add("a", {"time": 1.0})
    with path.open("ab") as file:
        file.write(b'{"key": "b", "resu')
    cut = Journal(path)
    assert cut.get("b") is None
    cut.add("b", {"time": 2.0})
    assert Journal(path).get("a") == {"time": 1.0}
    assert Journal(path).get("b") == {"time": 2.0}


def test_without_a_file_results_are_kept_in_memory() -> None:
    journal = Journal()
    journal.add("a", {"time": 1.0})
    assert journal.get("a") == {"time": 1.0}


@pytest.mark.parametrize(
    "line", ["5", "[]", "{}", '{"key": "a"}', '{"key": [], "result": {}}', '{"key": "a"', "\udcff"]
)
def test_a_line_that_is_no_result_is_refused(line: str, tmp_path: Path) -> None:
    path = tmp_path / "runs.jsonl"
    path.write_text(f"{line}\n", encoding="utf-8", errors="surrogateescape")
    with pytest.raises(InputError, match=r"runs\.jsonl: .*damaged"):
        Journal(path)


@pytest.mark.parametrize(("name", "value"), [("time", inf), ("spent", -1.0), ("updates", -1)])
def test_a_result_of_no_run_is_refused(name: str, value: float) -> None:
    result = {
        "status": "reached",
        "time": 1.0,
        "updates": 8,
        "spent": 2.0,
        "made": 16,
        "steps": 16,
        "first": 2.3,
        "best": 0.1,
        "staleness": 0.0,
        "curve": [],
    }
    request = Request(Design(1, parse_algorithm("asgd"), 0.1), 0, 16, inf)
    journal = Journal()
    journal.add("1 worker, asgd, lr 0.1, seed 0, 16 updates", {**result, name: value})
    with pytest.raises(InputError, match=f"damaged: {name} is {value}"):
        list(Runs(PlanConfig.model_construct(), journal)([request]))
