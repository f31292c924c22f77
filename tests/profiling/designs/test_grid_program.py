"""The program that times a design: what it times, says and refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from grid import main

from paracosm.errors import InputError
from paracosm.graphs.graph import decode_arguments
from paracosm.profiling.database import ProfileDatabase

Capture = pytest.CaptureFixture[str]

pytestmark = pytest.mark.slow


def test_ops_of_a_grid_are_timed_and_kept(tmp_path: Path, capsys: Capture) -> None:
    db = tmp_path / "profiles.db"
    flags = ["--ops", "addmm,_softmax", "--values", "2", "--budget", "0s", "--batch", "3"]
    assert main([*flags, "--limit", "4MB", "--flops", "1e8", "--db", str(db)]) == 0
    printed = capsys.readouterr().out
    with ProfileDatabase.open(db) as database:
        timings = database.timings()
    ops = {timing.op for timing in timings}
    assert f"design model-like: {len(ops)} ops, {2 * len(ops)} timings" in printed
    assert {timing.source for timing in timings} == {"grid model-like"}
    assert all(op.bytes_read + op.bytes_written <= 4e6 for op in ops)
    softmax = [op for op in ops if op.name.startswith("aten._softmax")]
    assert {decode_arguments(op.arguments)[0][0].shape[0] for op in softmax} == {3}


def test_a_person_reads_what_was_left_out(tmp_path: Path, capsys: Capture) -> None:
    flags = ["--ops", "relu", "--design", "paper", "--values", "2", "--budget", "0s"]
    assert main([*flags, "--limit", "8MB", "--db", str(tmp_path / "profiles.db")]) == 0
    printed = capsys.readouterr().out
    # 224 x 224 pixels, 2048 channels and more, or 128 examples are too much.
    assert "design paper: 5 ops, 10 timings" in printed
    assert "relu: 5 of 5, 3 beyond the limits" in printed


@pytest.mark.parametrize(
    ("flags", "why"),
    [
        (["--ops", ","], "name at least one op"),
        (["--ops", "addmm", "--batch", "8"], "--batch has no effect: addmm has no batch"),
        (["--ops", "relu", "--limit", "1B"], "no point of the design is within --limit"),
    ],
)
def test_what_is_no_grid_is_refused(flags: list[str], why: str, tmp_path: Path) -> None:
    db = tmp_path / "profiles.db"
    with pytest.raises(InputError, match=why):
        main([*flags, "--db", str(db)])
    assert not db.exists()
