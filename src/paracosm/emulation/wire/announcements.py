"""What real ranks are about to reduce: gloo's messages do not say how long a vector is.

A rank appends a line to a file of its own before gloo begins, so that whoever has seen a message of
an operation finds its line there: the rank in its group, the operation's tag, the vector's bytes,
bytes of an element, the neutral element in hexadecimal, the group's name.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from paracosm.emulation.wire.store import group_name


@dataclass(frozen=True, slots=True)
class Vector:
    size: int  # bytes
    element: int  # bytes of an element
    neutral: bytes  # an element that leaves as it is what it is reduced with


def announcements_file(records: Path, rank: int) -> Path:
    """Return where `rank` announces its reductions, beside `records` of the same run."""
    return records.with_name(f"rank{rank}.announced")


class AnnouncementWriter:
    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def write(self, group: str, member: int, tag: int, vector: Vector) -> None:
        line = f"{member} {tag} {vector.size} {vector.element} {vector.neutral.hex()} {group}\n"
        os.write(self._file, line.encode())


class Announcements:
    def __init__(self, records: Path, ranks: Sequence[int]) -> None:
        self._paths = {rank: announcements_file(records, rank) for rank in ranks}
        self._files: dict[int, int] = {}  # by real rank
        self._rest: dict[int, bytes] = {}
        self._announced: dict[tuple[str, int, int], Vector] = {}

    def take(self, group: str, member: int, tag: int) -> Vector | None:
        """Return what a real member reduces as operation `tag` of a group, and forget it.

        None where it has not said that: it is not observed.
        """
        key = group_name(group), member, tag
        if key not in self._announced:
            for rank in self._paths:
                self._read(rank)
        return self._announced.pop(key, None)

    def close(self) -> None:
        for file in self._files.values():
            os.close(file)
        self._files.clear()

    def _read(self, rank: int) -> None:
        if rank not in self._files:
            try:
                self._files[rank] = os.open(self._paths[rank], os.O_RDONLY)
            except FileNotFoundError:
                return
        text = self._rest.get(rank, b"")
        while more := os.read(self._files[rank], 1 << 16):
            text += more
        *lines, self._rest[rank] = text.split(b"\n")
        for line in lines:
            member, tag, size, element, neutral, name = line.decode().split(" ", 5)
            vector = Vector(int(size), int(element), bytes.fromhex(neutral))
            self._announced[name, int(member), int(tag)] = vector
