"""Sweeps over worlds: how often the script runs, and what is said of one rank and of several."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paracosm.cli.run_verb import show_sweep
from paracosm.emulation import run
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.job import Ended
from paracosm.emulation.records import Collective, Group, Iteration, Record, Wait
from paracosm.emulation.run import run_emulation
from paracosm.report.runs import answer
from paracosm.results import EmulationSummary
from paracosm.studies import Study, SweepRow, run_sweep

SIZE = 10_000_000  # bytes: 10 ms at 8 Gbit/s


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[int]]:
    """Return what lets a script stand for all: 20 ms of computing, then a collective."""

    def stand(kind: str = "all_reduce", exit_code: int = 0) -> list[int]:
        worlds: list[int] = []

        def run_job(
            config: EmulateConfig, seed: int, folder: Path, on_records: Any, **given: Any
        ) -> Ended:
            worlds.append(config.world)
            on_records(list(recorded(kind, config.world)))
            return Ended(exit_code, None, False)

        monkeypatch.setattr(run, "run_job", run_job)
        return worlds

    (tmp_path / "train.py").touch()
    return stand


def recorded(kind: str, world: int, iterations: int = 6) -> list[Record]:
    records: list[Record] = [Group(0, "0", world, tuple(range(world)), "gloo")]
    now = 100.0
    for number in range(iterations):
        now += 0.02
        if world > 1 or kind == "all_reduce":
            asked = Collective(0, "0", number, kind, SIZE, -1, *[now] * 4, -2, "train.py:7")
            records += [asked, Wait(0, now, now, "0", number)]
        records.append(Iteration(0, number, now, now, 1))
    return records


def sweep(tmp_path: Path, over: dict[str, list[Any]]) -> list[SweepRow]:
    arguments = {"script": str(tmp_path / "train.py"), "bandwidth": "8Gbit/s", "output": "none"}
    study = Study.model_validate({"emulate": arguments, "over": over})
    out = tmp_path / "-".join(over)
    rows = run_sweep(study, study.points("here"), out)
    assert all(isinstance(row, SweepRow) for row in rows)
    return [row for row in rows if isinstance(row, SweepRow)]


def summaries(rows: list[SweepRow]) -> list[EmulationSummary]:
    return [row.summary for row in rows if isinstance(row.summary, EmulationSummary)]


def test_a_data_parallel_script_runs_once_for_all_worlds(
    tmp_path: Path, script: Callable[..., list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    worlds = script()
    rows = sweep(tmp_path, {"world_size": [2, 4, 8]})
    assert worlds == [2]
    # A ring of W moves 2 (W-1)/W times 10 MB at 1 GB/s, and one rank alone takes 20 ms.
    efficiency = [summary.efficiency for summary in summaries(rows)]
    assert efficiency == pytest.approx([20 / 30, 20 / 35, 20 / 37.5])
    show_sweep(rows, tmp_path / "world_size")
    said = " ".join(capsys.readouterr().out.split())
    assert said.startswith("Throughput is 66.7 % of 2 times and 53.3 % of 8 times one rank's.")
    assert "57.1%" in said
    sweep(tmp_path, {"world_size": [2, 4, 8]})
    assert worlds == [2]


def test_a_script_that_depends_on_the_world_runs_in_each_and_says_why(
    tmp_path: Path, script: Callable[..., list[int]], capsys: pytest.CaptureFixture[str]
) -> None:
    worlds = script("all_gather")
    rows = sweep(tmp_path, {"world_size": [1, 2, 4]})
    assert worlds == [1, 2, 4]
    alone, *several = summaries(rows)
    assert (alone.status, alone.efficiency) == ("done", None)  # without collectives
    assert [summary.efficiency for summary in several] == pytest.approx([20 / 25, 20 / 27.5])
    show_sweep(rows, tmp_path / "world_size")
    said = " ".join(capsys.readouterr().out.split())
    assert "In worlds of 4, the script ran again: computing was measured in a world of 2" in said
    assert "and all_gather at train.py:7 may depend on it." in said


def test_failed_runs_and_other_arguments_share_nothing(
    tmp_path: Path, script: Callable[..., list[int]]
) -> None:
    worlds = script(exit_code=1)
    sweep(tmp_path, {"world_size": [2, 4]})
    assert worlds == [2, 4]
    worlds = script()
    sweep(tmp_path, {"world_size": [2, 4], "arguments": [["a"], ["b"]]})
    assert worlds == [2, 2]


def test_another_number_of_workers_is_composed_from_the_same_run(
    tmp_path: Path, script: Callable[..., list[int]]
) -> None:
    worlds = script()
    config = EmulateConfig.model_validate(
        {"script": "train.py", "world_size": 4, "bandwidth": "8Gbit/s", "what_if": "workers: 2"}
    )
    summary = run_emulation(config).summary
    assert worlds == [2]
    assert summary.ratio == pytest.approx(30 / 35)
    assert "66.7 % of 2 times one rank's throughput" in answer(summary)


def test_recordings_of_one_rank_say_nothing_of_several(
    tmp_path: Path, script: Callable[..., list[int]]
) -> None:
    worlds = script()
    rows = sweep(tmp_path, {"world_size": [1, 2, 4]})
    assert worlds == [1, 2]  # 4 is composed from 2
    texts = [note["text"] for note in summaries(rows)[1].notes]
    assert any("a world of 1 rank, which does not show" in text for text in texts)
    assert summaries(rows)[0].efficiency == 1
