"""Scalars for TensorBoard: read back with TensorBoard's own reader."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from paracosm.cli import main
from paracosm.studies import RunFolder

RELAX = ["relax", "--problem", "laplace2d:4", "--no-twin", "--quiet"]


def scalars(folder: Path) -> dict[str, list[tuple[float, int, float]]]:
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0}).Reload()
    tags = events.Tags()["scalars"]
    return {t: [(e.wall_time, e.step, e.value) for e in events.Scalars(t)] for t in tags}


def test_events_hold_every_metric_over_its_steps(tmp_path: Path) -> None:
    out, board = tmp_path / "out", tmp_path / "board"
    flags = [*RELAX, "--out", str(out), "--tensorboard", str(board)]
    assert main(flags) == 0
    found = scalars(board)
    rows = RunFolder.open(out).metrics().to_pylist()
    tags = {f"{row['name']}/{row['node']}".rstrip("/") for row in rows}
    assert found.keys() == tags
    assert "residual/observer" in tags
    residuals = [row for row in rows if row["name"] == "residual"]
    assert [step for _, step, _ in found["residual/observer"]] == [row["step"] for row in residuals]
    for (time, _, value), row in zip(found["residual/observer"], residuals, strict=True):
        assert time == row["virtual_time"]
        assert value == pytest.approx(row["value"], rel=1e-6)  # events hold single precision
    assert main([*flags, "--force"]) == 0
    assert scalars(board) == found


def test_a_sweep_has_a_folder_for_each_run(tmp_path: Path) -> None:
    out, board = tmp_path / "out", tmp_path / "board"
    flags = [*RELAX, "--processors", "1,2", "--out", str(out), "--tensorboard", str(board)]
    assert main(flags) == 0
    assert {path.name for path in board.iterdir()} == {"processors=1", "processors=2"}
    assert all(scalars(each)["residual/observer"] for each in board.iterdir())


def test_what_cannot_be_written_is_refused_before_the_run(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    board = tmp_path / "board"
    assert main([*RELAX, "--tensorboard", str(board)]) == 2
    assert "--tensorboard needs a run folder: give --out" in capsys.readouterr().err
    board.mkdir()
    (board / "events.out.tfevents.1").touch()
    flags = [*RELAX, "--out", str(tmp_path / "out"), "--tensorboard", str(board)]
    assert main(flags) == 2
    assert "has scalars of another run" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    assert main(flags) == 2
    assert 'pip install "paracosm[tensorboard]"' in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
