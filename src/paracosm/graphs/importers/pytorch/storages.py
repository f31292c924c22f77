"""Dependencies and memory of a trace's ops, by the storages that they read and write.

An op waits for the last writer of all that it touches, and for the readers since of what it writes.
A storage is known by its address; where an op puts out what it was not given, the address has been
handed out anew, and what lay there before was freed after its last user.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from paracosm.graphs.importers.pytorch.units import COLLECTIVE, Unit

__all__ = ["Booked", "book", "is_view"]

_MUTATED = re.compile(r"\((?:\w+ *)?!|\(\w+!")
_ALIVE = -1


@dataclass
class Booked:
    """What follows from the storages.

    Attributes:
        waits: for each unit, ids of those that must end before.
        allocates: for each unit, (bytes, id of the last user; -1 where it outlives the step).
        resident: bytes that were there before: what the optimizer changes, and the others.
    """

    waits: list[tuple[int, ...]]
    allocates: list[tuple[tuple[int, int], ...]]
    resident: dict[str, int]


@dataclass
class _Life:
    size: int
    maker: int  # row of the unit; -1 for what was there before
    last: int
    kept: bool = False
    updated: bool = False


@dataclass
class _Storage:
    life: _Life
    writer: int = -1
    readers: list[int] = field(default_factory=list)


def is_view(unit: Unit) -> bool:
    """Whether an op puts out only what it was given, and changes nothing."""
    if _MUTATED.search(unit.call.schema) or not unit.call.made or unit.call.name == COLLECTIVE:
        return False
    given = {use.storage for use in unit.call.read}
    return all(use.storage in given for use in unit.call.made)


def book(units: Sequence[Unit]) -> Booked:
    """Return dependencies and memory of units, which stand in the order of issue."""
    held: dict[int, _Storage] = {}
    lives: list[_Life] = []
    waits = []
    for row, unit in enumerate(units):
        before: set[int] = set()
        for use in unit.call.read:
            if use.storage not in held:
                held[use.storage] = _Storage(_Life(use.size, -1, row))
                lives.append(held[use.storage].life)
            storage = held[use.storage]
            storage.life.size = max(storage.life.size, use.size)
            storage.life.last = row
            storage.life.kept |= unit.accumulates
            before.add(storage.writer)
        written = [] if is_view(unit) else _written(unit)
        given = {use.storage for use in unit.call.read}
        for number, size in written:
            if number not in given:
                held[number] = _Storage(_Life(size, row, row), row, [])
                lives.append(held[number].life)
                continue
            storage = held[number]
            before.update(storage.readers)
            storage.writer, storage.readers = row, []
            storage.life.updated |= unit.phase == "optimizer"
        changed = {number for number, _ in written}
        for number in given - changed:
            held[number].readers.append(row)
        waits.append(tuple(units[each].call.id for each in sorted(before - {-1, row})))
    return Booked(waits, _allocations(units, lives), _resident(lives))


def _written(unit: Unit) -> list[tuple[int, int]]:
    """Return storages and bytes of what an op writes: its outputs, and arguments marked "(a!)".

    Which argument it is, the schema says by position; an op that returns what it changes (most do)
    names it among its outputs as well.
    """
    written = {use.storage: use.size for use in unit.call.made}
    if not written and _MUTATED.search(unit.call.schema):
        written = {use.storage: use.size for use in unit.call.read[:1]}
    return list(written.items())


def _allocations(
    units: Sequence[Unit], lives: Sequence[_Life]
) -> list[tuple[tuple[int, int], ...]]:
    allocated: list[list[tuple[int, int]]] = [[] for _ in units]
    for life in lives:
        if life.maker >= 0 and life.size:
            last = _ALIVE if life.kept else units[life.last].call.id
            allocated[life.maker].append((life.size, last))
    return [tuple(each) for each in allocated]


def _resident(lives: Sequence[_Life]) -> dict[str, int]:
    there = [life for life in lives if life.maker < 0]
    return {
        "parameters": sum(life.size for life in there if life.updated),
        "inputs": sum(life.size for life in there if not life.updated),
    }
