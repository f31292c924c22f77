"""The ends that a job may come to: somebody is killed, or goes without a word."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paracosm.emulation.records import Collective, Group, Note, Record, RecordReader


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("endings")


@pytest.fixture(scope="module")
def found(folder: Path) -> dict[str, Any]:
    script = Path(__file__).with_name("wire_endings_world.py")
    run = subprocess.run(
        [sys.executable, str(script), str(folder)],
        capture_output=True,
        text=True,
        timeout=500,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    seen: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return seen


def records(folder: Path, name: str) -> list[Record]:
    """Return what the emulator wrote."""
    return RecordReader(folder / f"{name}.records").more()


def notes(folder: Path, name: str) -> list[Note]:
    """Return what the emulator told the user."""
    return [one for one in records(folder, name) if isinstance(one, Note)]


def test_a_rank_that_is_killed_in_a_collective_is_named(
    found: dict[str, Any], folder: Path
) -> None:
    assert found["rank killed"]["emulator"] == 1
    grave = [note for note in notes(folder, "rank killed") if note.grave]
    # 12 messages of 512 KiB each way
    where = "in the middle of all_reduce number 1 (0 bytes of 12 MiB moved)"
    assert [note.text for note in grave] == [f"rank 0 closed the connection {where}"]
    first = next(one for one in records(folder, "rank killed") if isinstance(one, Collective))
    assert (first.kind, first.size, first.number) == ("all_reduce", 1 << 22, 0)


def test_a_rank_without_emulator_gets_gloos_own_error(found: dict[str, Any], folder: Path) -> None:
    assert found["emulator killed"]["emulator"] == -9
    text, seconds = found["emulator killed"]["told"]
    assert "Connection" in text
    assert "by peer" in text
    assert seconds < 15
    # What was written by then can be read.
    assert any(isinstance(one, Group) for one in records(folder, "emulator ended"))


def test_an_emulator_that_is_asked_to_ends_in_good_order(
    found: dict[str, Any], folder: Path
) -> None:
    assert found["emulator ended"]["emulator"] == 0
    assert "Connection" in found["emulator ended"]["told"][0]
    assert [note for note in notes(folder, "emulator ended") if note.grave] == []
    calls = [one for one in records(folder, "emulator ended") if isinstance(one, Collective)]
    assert [one.number for one in calls] == [0, 1]


def test_a_rank_may_go_between_collectives(found: dict[str, Any], folder: Path) -> None:
    assert found["rank gone"] == {"told": "gone", "rank": 0, "emulator": 0}
    assert [note for note in notes(folder, "rank gone") if note.grave] == []


def test_an_added_delay_delays(found: dict[str, Any], folder: Path) -> None:
    assert 0.6 <= found["delayed"]["told"] < 5
    calls = [one for one in records(folder, "delayed") if isinstance(one, Collective)]
    for one in calls:
        assert one.entered - one.asked == pytest.approx(0.2, abs=1e-6)
        assert one.done >= one.entered
