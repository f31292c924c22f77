"""Changing modules when they are imported, and leaving a parent's records alone."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from types import ModuleType

import pytest

from paracosm.emulation.rank.on_import import on_import
from paracosm.emulation.records import Note, RecordReader, RecordWriter, Wait


def test_a_module_is_changed_when_it_is_imported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "paracosm_trial_module.py").write_text("answer = 41\n")
    monkeypatch.syspath_prepend(tmp_path)
    seen: list[ModuleType] = []

    def change(module: ModuleType) -> None:
        module.answer += 1  # type: ignore[attr-defined]
        seen.append(module)

    on_import("paracosm_trial_module", change)
    assert "paracosm_trial_module" not in sys.modules
    module = importlib.import_module("paracosm_trial_module")
    assert (module.answer, seen) == (42, [module])
    on_import("paracosm_trial_module", change)  # now it is there
    assert module.answer == 43
    assert importlib.reload(module).answer == 41  # once is enough
    del sys.modules["paracosm_trial_module"]


def test_a_forked_child_writes_nothing_of_its_parent(tmp_path: Path) -> None:
    recorder = RecordWriter(tmp_path / "records")
    recorder.append(Note(0, False, "on the disk at once"))
    recorder.append(Wait(0, 1.0, 2.0))  # in a buffer, of which the child has a copy
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        recorder.abandon()
        recorder.append(Note(0, False, "of the child"))
        recorder.close()
        os.write(write, b"!")
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(read, 1) == b"!"
    recorder.append(Note(0, False, "after the child"))
    recorder.close()
    os.close(read)
    os.close(write)
    assert RecordReader(tmp_path / "records").more() == [
        Note(0, False, "on the disk at once"),
        Wait(0, 1.0, 2.0),
        Note(0, False, "after the child"),
    ]
