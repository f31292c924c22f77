"""`paracosm profile grid`: what it times, says and refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paracosm.cli import main
from paracosm.graphs.graph import decode_arguments
from paracosm.profiling.database import ProfileDatabase

Capture = pytest.CaptureFixture[str]


def test_ops_of_a_grid_are_timed_and_kept(tmp_path: Path, capsys: Capture) -> None:
    db = tmp_path / "profiles.db"
    flags = ["--ops", "addmm,_softmax", "--values", "2", "--budget", "0s", "--batch", "3"]
    limits = ["--limit", "4MB", "--flops", "1e8"]
    assert main(["profile", "grid", *flags, *limits, "--db", str(db), "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["status"] == "done"
    assert summary["design"] == "model-like"
    assert set(summary["families"]) == {"addmm", "_softmax"}
    assert summary["ops"] == sum(family["timed"] for family in summary["families"].values())
    with ProfileDatabase.open(db) as database:
        timings = database.timings()
    assert len(timings) == summary["timings"] == 2 * summary["ops"]
    assert {timing.source for timing in timings} == {"grid model-like"}
    assert all(timing.op.bytes_read + timing.op.bytes_written <= 4e6 for timing in timings)
    for timing in timings:
        args, _ = decode_arguments(timing.op.arguments)
        if timing.op.name.startswith("aten._softmax"):
            assert args[0].shape[0] == 3


def test_a_person_reads_what_was_left_out(tmp_path: Path, capsys: Capture) -> None:
    flags = ["--ops", "relu", "--design", "paper", "--values", "2", "--budget", "0s"]
    db = str(tmp_path / "profiles.db")
    assert main(["profile", "grid", *flags, "--limit", "8MB", "--db", db]) == 0
    printed = capsys.readouterr().out
    # 224 x 224 pixels, 2048 channels and more, or 128 examples are too much.
    assert "design paper: 5 ops, 10 timings" in printed
    assert "relu: 5 of 5, 3 beyond the limits" in printed


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--ops", "convolutoin"], 'unknown op "convolutoin": did you mean "convolution"?'),
        (["--ops", ","], "name at least one op"),
        (["--ops", "addmm", "--design", "papre"], 'unknown design "papre": did you mean "paper"?'),
        (["--ops", "addmm", "--batch", "8"], "--batch has no effect: addmm has no batch"),
        (["--ops", "relu", "--batch", "0"], "batch must be 1 or more, not 0"),
        (["--ops", "relu", "--dtype", "int8"], 'unknown dtype "int8"'),
        (["--ops", "relu", "--values", "1"], "2 to 1,000 values"),
        (
            ["--ops", "relu", "--values", str(2**63)],
            "values of an argument, not 9223372036854775808",
        ),
        (["--ops", "relu", "--limit", "1B"], "no point of the design is within --limit"),
        (["--ops", "relu", "--limit", "big"], '--limit: cannot read "big" as a size'),
        (["--ops", "relu", "--budget", "soon"], '--budget: cannot read "soon" as a duration'),
        (["--ops", "relu", "--json", "--quiet"], "give one of them"),
    ],
)
def test_what_is_no_grid_is_refused_in_one_line(
    flags: list[str], why: str, tmp_path: Path, capsys: Capture
) -> None:
    db = tmp_path / "profiles.db"
    assert main(["profile", "grid", *flags, "--db", str(db)]) == 2
    error = capsys.readouterr().err
    assert why in error
    assert error.count("\n") == 1
    assert not db.exists()
