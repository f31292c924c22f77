"""`paracosm profile ops`: what it times, says, refuses and leaves behind."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from paracosm.cli import main
from paracosm.profiling.database import ProfileDatabase

Capture = pytest.CaptureFixture[str]

QUICK = ["--model", "mlp", "--batch", "2", "--shape", "8", "--budget", "0s"]


def test_ops_are_timed_and_kept(tmp_path: Path, capsys: Capture) -> None:
    db = tmp_path / "a [b].db"
    assert main(["profile", "ops", *QUICK, "--db", str(db), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["status"] == "done"
    assert summary["timings"] == 2 * summary["distinct_ops"]
    assert summary["untimed_nodes"] == {"cold": 0, "warm": 0}
    assert sum(op["nodes"] for op in summary["by_op"].values()) == summary["nodes"]
    with ProfileDatabase.open(db) as database:
        assert len(database.timings()) == summary["timings"]
        assert len(database.iterations()) == 1


def test_a_person_reads_sums_and_shares(tmp_path: Path, capsys: Capture) -> None:
    db = tmp_path / "a [b].db"
    flags = [*QUICK, "--cache", "warm", "--no-iterations", "--db", str(db)]
    assert main(["profile", "ops", *flags]) == 0
    printed = capsys.readouterr().out
    assert "sum of warm ops: " in printed
    assert "sum of cold ops" not in printed
    assert "measured iteration" not in printed
    assert printed.endswith(f"{db}\nmore: --details\n")


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--model", "resnet1"], 'unknown model "resnet1": did you mean "resnet18"?'),
        (["--batch", "0"], "batch: 0, but at least 1 is needed"),
        (["--shape", "3xax2"], "--shape: write sizes such as 3x32x32, not 3xax2"),
        (["--cache", "hot"], 'unknown cache "hot": choose from cold, warm'),
        (["--cache", ""], 'unknown cache "": choose from cold, warm'),
        (["--budget", "soon"], '--budget: cannot read "soon" as a duration'),
        (["--optimizer", "sdg"], 'unknown optimizer "sdg": did you mean "sgd"?'),
        (["--model", "os:nothing"], 'os has no "nothing"'),
        (["--json", "--quiet"], "give one of them"),
    ],
)
def test_what_cannot_be_profiled_is_refused_in_one_line_and_leaves_no_database(
    flags: list[str], why: str, tmp_path: Path, capsys: Capture
) -> None:
    db = tmp_path / "profiles.db"
    assert main(["profile", "ops", *QUICK, "--db", str(db), *flags]) == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1
    assert not db.exists()


def test_a_file_that_is_no_database_is_refused_before_the_capture(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    db = tmp_path / "x.db"
    db.write_text("mine")
    monkeypatch.setattr("paracosm.cli.profile_ops.capture", None)
    assert main(["profile", "ops", *QUICK, "--db", str(db)]) == 2
    assert "is not a profile database" in capsys.readouterr().err
    assert db.read_text() == "mine"


def test_ctrl_c_keeps_what_was_timed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture
) -> None:
    from paracosm.profiling.torch_ops import Bench

    visit, visits = Bench.visit, 0

    def interrupted(self: Bench, *arguments: Any, **others: Any) -> dict[str, list[float]]:
        nonlocal visits
        visits += 1
        if visits > most:
            raise KeyboardInterrupt
        return visit(self, *arguments, **others)

    monkeypatch.setattr(Bench, "visit", interrupted)
    db, most = tmp_path / "profiles.db", 3
    assert main(["profile", "ops", *QUICK, "--db", str(db), "--no-iterations"]) == 130
    assert "Interrupted: the measurements so far" in capsys.readouterr().out
    with ProfileDatabase.open(db) as database:
        assert len(database.timings()) == 6
    most = 0
    assert main(["profile", "ops", *QUICK, "--db", str(db), "--no-iterations"]) == 130
    assert capsys.readouterr() == ("", "paracosm: interrupted before anything was timed\n")
