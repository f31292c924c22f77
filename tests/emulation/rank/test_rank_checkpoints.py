"""Checkpoints of ranks that run one after the other."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paracosm.emulation.rank import checkpoints


def refuse(what: str) -> Exception:
    return NotImplementedError(what)


def train(steps: int) -> None:
    parameter = torch.nn.Parameter(torch.zeros(1))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for _ in range(steps):
        parameter.grad = torch.ones(1)
        optimizer.step()


def test_one_file_of_several_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder, notes = tmp_path / "turns", list[str]()
    folder.mkdir()
    monkeypatch.setattr(checkpoints, "on_import", lambda name, change: None)
    file, own = tmp_path / "model.pt", tmp_path / "rank1.pt"
    with monkeypatch.context() as turn:
        for name in ("save", "load"):
            turn.setattr(torch, name, getattr(torch, name))
        checkpoints.watch_checkpoints(folder, 0, notes.append, refuse)
        torch.save({}, file)
        assert torch.load(file) == {}
        train(3)
        torch.save({}, file)
        assert torch.load(file) == {}
        assert notes == []
    with monkeypatch.context() as turn:
        for name in ("save", "load"):
            turn.setattr(torch, name, getattr(torch, name))
        checkpoints.watch_checkpoints(folder, 1, notes.append, refuse)
        with pytest.raises(NotImplementedError, match="rank 0 saved after step 3"):
            torch.load(file)
        train(3)
        assert torch.load(file) == {}  # as the real rank 1 would, after a barrier
        with own.open("wb") as stream:
            torch.save({}, stream)
        assert notes == []
        torch.save({}, file)
        (note,) = notes
        assert "is saved by rank 1" in note
        assert "was by rank 0: only the last one stays" in note
