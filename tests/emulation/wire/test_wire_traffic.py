"""What is on the wire with emulated peers, against the same calls among real ranks."""

from __future__ import annotations

import json
import subprocess
import sys
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from paracosm.emulation.records import Collective, Exchange, Group, Note, RecordReader

_WORLD = Path(__file__).with_name("wire_traffic_world.py")


def play(folder: Path, worlds: list[str]) -> dict[str, Any]:
    """Run the suite of collectives in each world, all real and with emulated ranks."""
    run = subprocess.run(
        [sys.executable, "-W", "ignore", str(_WORLD), str(folder), *worlds],
        capture_output=True,
        text=True,
        timeout=540,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout.splitlines()[-1])
    return found


def assert_alike(found: dict[str, Any], folder: Path, named: str) -> None:
    """Compare the messages of rank 0 with each peer: which way, how many bytes, in which order."""
    real, emulated = found[named]["real"], found[named]["emulated"]
    assert len(real["data"]) > 100
    assert emulated["data"] == real["data"]
    assert emulated["notices"] == real["notices"]
    assert set(real["exits"]) == set(emulated["exits"]) == {0}
    notes = [one for one in records(folder, named) if isinstance(one, Note)]
    assert [note for note in notes if note.grave] == []


def records(folder: Path, named: str) -> list[Any]:
    """Return what the emulator wrote of a world."""
    return list(RecordReader(folder / f"emulator{named}.records").more())


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traffic")


@cache
def found_in(folder: Path, named: str) -> dict[str, Any]:
    return play(folder, [named])


@pytest.fixture
def found(folder: Path, named: str) -> dict[str, Any]:
    return found_in(folder, named)


WORLDS = [pytest.param("2", marks=pytest.mark.slow), "3"]


@pytest.mark.parametrize("named", WORLDS)
def test_messages_are_those_of_real_ranks(found: dict[str, Any], folder: Path, named: str) -> None:
    assert_alike(found, folder, named)


@pytest.mark.parametrize("named", WORLDS)
def test_results_are_the_real_ranks_own_data(found: dict[str, Any], named: str) -> None:
    assert found[named]["emulated"]["wrong"] == []
    assert any("all_reduce" in name for name in found[named]["real"]["wrong"])  # sums differ there


@pytest.mark.parametrize("named", WORLDS)
def test_records_say_what_was_moved(found: dict[str, Any], folder: Path, named: str) -> None:
    data = found[named]["emulated"]["data"]
    exchange = [one for one in records(folder, named) if isinstance(one, Exchange)][-1]
    assert exchange.sent == sum(sum(v) for k, v in data.items() if " to 0 " in k)
    assert exchange.received == sum(sum(v) for k, v in data.items() if " from 0 " in k)
    assert exchange.messages == sum(map(len, data.values()))
    groups = [one for one in records(folder, named) if isinstance(one, Group)]
    assert [group.size for group in groups] == [int(named), 2]


@pytest.mark.parametrize("named", WORLDS)
def test_records_name_each_collective(found: dict[str, Any], folder: Path, named: str) -> None:
    world = int(named)
    default, other = (one.name for one in records(folder, named) if isinstance(one, Group))
    calls = [one for one in records(folder, named) if isinstance(one, Collective)]
    numbered = sorted((one for one in calls if one.group == default), key=lambda one: one.number)
    assert [one.number for one in numbered] == list(range(len(numbered)))
    assert all(one.asked <= one.entered <= one.done for one in calls)
    sizes = [(one.kind, one.size) for one in numbered if one.kind in ("all_reduce", "all_gather")]
    elements = (1, 3, 5, 7, 64, 1000, 70_001)
    expected = [("all_reduce", count * each) for each in (4, 1, 8, 2, 8) for count in elements]
    operators = [("all_reduce", 1000 * element) for element in (4, 1, 4)]
    expected += 4 * operators + 2 * operators[:2]  # the last two operators are of integers only
    long = (1 << 22, 1 << 24, 1_310_720, 1_300_001, 1 << 22)
    expected += [("all_reduce", 4 * count) for count in long]
    for count in (1, 3, 1000, 300_000):  # a reduce-scatter is an all-reduce to gloo
        expected += [("all_gather", 4 * count * world)] * 2 + [("all_reduce", 4 * count * world)]
    assert sizes[: len(expected)] == expected
    reduces = [one for one in numbered if one.kind == "reduce"]
    calls_of_reduce = [
        (4 * count, root)
        for root in range(world)
        for count in (1, 10, 1000, 100_003, 100 if root else 3_000_000)
    ]
    assert [one.size for one in reduces] == [size for size, _ in calls_of_reduce]
    for one, (size, root) in zip(reduces, calls_of_reduce, strict=True):
        # With few elements gloo's messages may not show where they end.
        assert one.peer == root or (one.peer == -1 and size < 100)
    casts = [one for one in numbered if one.kind == "broadcast"]
    assert [(one.size, one.peer) for one in casts[:5]] == [
        (size, 0) for size, _ in calls_of_reduce[:5]
    ]
    for kind, roots in (("gather", range(world)), ("scatter", range(1))):
        found_of_kind = [(one.size, one.peer) for one in numbered if one.kind == kind]
        assert found_of_kind == [(4000 * world, root) for root in roots]
    pairs = [(one.kind, one.size, one.peer) for one in numbered if one.kind in ("send", "recv")]
    assert pairs == [("send", 4000, 1), ("recv", 4000, 1)]
    assert [one.size for one in calls if one.group == other] == [4000]


@pytest.mark.slow
@pytest.mark.parametrize("named", ["4", "8", "4:0,2", "5:0,1,3"])
def test_larger_worlds_and_several_real_ranks(tmp_path: Path, named: str) -> None:
    found = play(tmp_path, [named])
    assert_alike(found, tmp_path, named)
    if named.isdigit():
        assert found[named]["emulated"]["wrong"] == []
