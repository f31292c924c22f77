"""Points of a sweep that fail: recorded, and no end of the sweep."""

import json
from pathlib import Path

import pytest

import paracosm
from paracosm.backends import HERE, Backend
from paracosm.cli import main
from paracosm.data_files import parse_yaml
from paracosm.errors import InputError
from paracosm.studies import FailedPoint, Hooks, Study, read_sweep, run_point, run_sweep

Capture = pytest.CaptureFixture[str]

OWN = """
import os
import signal

from paracosm.errors import InputError
from paracosm.training import Algorithm

class Own(Algorithm):
    async def serve(self, server):
        while True:
            push = await server.receive()
            await server.apply([push])
            server.answer(push.worker)

class Small(Own):
    async def work(self, me):
        if me.index == 2:
            raise ValueError("two are enough")
        await super().work(me)

class Refusing(Own):
    async def work(self, me):
        if me.index == 2:
            raise InputError("two are enough")
        await super().work(me)

class Full(Own):
    async def work(self, me):
        if me.index == 2:
            raise MemoryError
        await super().work(me)

class Exiting(Own):
    async def work(self, me):
        if me.index == 2:
            raise SystemExit(3)
        await super().work(me)

class Deadly(Own):
    async def work(self, me):
        if me.index == 2:
            os.kill(os.getpid(), signal.SIGKILL)
        await super().work(me)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PARACOSM_DEBUG", raising=False)
    (tmp_path / "own.py").write_text(OWN)
    return tmp_path


def flags(name: str, workers: str = "2,3,4") -> list[str]:
    study = ["--algorithm", f"own.py:{name}", "--workers", workers, "--updates", "6"]
    return ["train", *study, "--compute", "1s", "--out", "out"]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("Small", "ValueError: two are enough"),
        ("Refusing", "two are enough"),
        ("Full", "MemoryError"),
        ("Exiting", "SystemExit: 3"),
    ],
)
def test_a_point_that_fails_is_recorded_and_the_others_run(
    name: str, error: str, capsys: Capture
) -> None:
    assert main(flags(name)) == 1
    said = capsys.readouterr()
    assert said.out.startswith("workers  last test accuracy")  # the table of those that ran
    lines = said.err.splitlines()
    assert [line.split()[1] for line in lines] == ["workers=3:", "workers=4:"]
    assert all(error in line for line in lines)
    rows = json.loads(Path("out/sweep.json").read_text())
    assert [(row["point"], row["status"]) for row in rows] == [
        ("workers=2", "done"),
        ("workers=3", "failed"),
        ("workers=4", "failed"),
    ]
    assert error in rows[1]["error"]
    assert error in Path("out/report.html").read_text()


def test_it_runs_again_when_the_sweep_does(folder: Path, capsys: Capture) -> None:
    assert main(flags("Small", "2,3")) == 1
    kept = Path("out/workers=2/summary.json").stat().st_mtime_ns
    (folder / "own.py").write_text(OWN.replace("me.index == 2", "me.index == 9"))
    assert main(flags("Small", "2,3")) == 0
    assert Path("out/workers=2/summary.json").stat().st_mtime_ns == kept
    rows = json.loads(Path("out/sweep.json").read_text())
    assert [row["status"] for row in rows] == ["done", "done"]


def test_the_report_command_and_python_say_which_failed(capsys: Capture) -> None:
    arguments = {"algorithm": "own.py:Small", "updates": 6, "compute": "1s", "out": "out"}
    sweep = paracosm.train(workers=[2, 3], **arguments)
    assert isinstance(sweep, paracosm.Sweep)
    assert list(sweep.failed) == ["workers=3"]
    assert "two are enough" in sweep.failed["workers=3"]
    assert [point.status for point in sweep.points] == ["done"]
    assert sweep.sentence.endswith("1 more failed.")
    opened = paracosm.open("out")
    assert isinstance(opened, paracosm.Sweep)
    assert opened.failed == sweep.failed
    assert main(["report", "out", "--out", "page.html"]) == 0
    assert "two are enough" in Path("page.html").read_text()


def test_of_many_the_report_shows_the_first() -> None:
    assert main(flags("Small", "2,3,4..9")) == 1
    page = Path("out/report.html").read_text()
    assert "<b>workers=6.</b>" in page
    assert "<b>workers=7.</b>" not in page
    assert "3 more runs failed: sweep.json says why." in page


def test_where_no_point_can_run_the_input_is_refused(capsys: Capture) -> None:
    assert main(flags("Refusing", "3,4")) == 2
    said = capsys.readouterr().err
    assert said == "paracosm: workers=3: two are enough (none of 2 points can run)\n"
    with pytest.raises(InputError, match="workers=3: two are enough"):
        paracosm.train(algorithm="own.py:Refusing", workers=[3, 4], updates=6, compute="1s")


def test_where_none_begins_nothing_is_left(capsys: Capture) -> None:
    assert main([*flags("Small", "1,2"), "--data", "own.py:nothing"]) == 2
    assert 'own.py has no "nothing"' in capsys.readouterr().err
    assert not Path("out").exists()


def test_where_every_point_lacks_memory_the_exit_code_is_1(capsys: Capture) -> None:
    assert main(flags("Full", "3,4")) == 1
    lines = capsys.readouterr().err.splitlines()
    assert [line.split()[1] for line in lines] == ["workers=3:", "workers=4:"]
    assert all("MemoryError" in line for line in lines)


@pytest.mark.slow
def test_a_point_that_kills_its_processes_is_recorded_too(capsys: Capture) -> None:
    assert main([*flags("Deadly"), "--jobs", "2"]) == 1
    rows = json.loads(Path("out/sweep.json").read_text())
    assert [row["status"] for row in rows] == ["done", "failed", "failed"]
    assert "its process was killed again and again" in rows[1]["error"]


@pytest.mark.parametrize("backend", [HERE, pytest.param(Backend(jobs=2), marks=pytest.mark.slow)])
def test_a_trial_of_tune_that_fails_is_worse_than_any_other(backend: Backend) -> None:
    text = "train: {algorithm: 'own.py:Small', updates: 6, compute: 1s, workers: 2}"
    arguments = {"study": parse_yaml(text, "study"), "tune": "workers=2|3", "trials": 6, "seeds": 1}
    (point,) = Study.model_validate({"tune": arguments}).points("test")
    summary = run_point(point, Path("out"), hooks=Hooks(backend=backend)).summary
    assert summary["best"]["workers"] == "2"
    failed = [row for row in read_sweep(Path("out")) if "error" in row]
    assert failed
    assert all("two are enough" in row["error"] for row in failed)
    assert all("workers=3" in row["point"] for row in failed)
    assert f"{len(failed)} runs failed: " in summary["remarks"][0]


def test_the_failed_ones_are_in_their_places() -> None:
    text = "train: {algorithm: 'own.py:Small', updates: 6, compute: 1s}\nover: {workers: [2, 3]}"
    study = Study.model_validate(parse_yaml(text, "study"))
    rows = run_sweep(study, study.points("study"), Path("out"))
    assert [isinstance(row, FailedPoint) for row in rows] == [False, True]
