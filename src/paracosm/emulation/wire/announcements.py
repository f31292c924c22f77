"""What real ranks announce because gloo's messages lack it.

A rank appends a line to a file of its own before gloo begins, so that whoever has seen a message of
an operation finds its line there: the length of a vector to reduce, the type of a message between
two ranks, the root of a broadcast, or where a copy lies of what emulated ranks give or pass on in a
broadcast, or give in a gather. Vectors and parts that are gathered are in a file of their own,
without text, which `answer.c` reads as well.
"""

from __future__ import annotations

import json
import os
from collections import OrderedDict, deque
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from struct import Struct
from typing import Any

from paracosm.emulation.pipeline import Pipeline
from paracosm.emulation.records import PipelineStep
from paracosm.emulation.wire.answers import group_key
from paracosm.emulation.wire.protocol import KINDS
from paracosm.emulation.wire.store import group_name


@dataclass(frozen=True, slots=True)
class Vector:
    size: int  # bytes
    element: int  # bytes of an element
    neutral: bytes  # an element that leaves as it is what it is reduced with


@dataclass(frozen=True, slots=True)
class Message:
    dtype: str
    likely: bytes  # elements that may be received, over and over, where nothing like it was sent


def announcements_file(records: Path, rank: int) -> Path:
    """Return the file of `rank`'s announcements, next to the `records` of the run."""
    return records.with_name(f"rank{rank}.announced")


def vectors_file(records: Path, rank: int) -> Path:
    """Return the file of the vectors that `rank` reduces."""
    return announcements_file(records, rank).with_suffix(".vectors")


_VECTOR = Struct("<QQIIIHH16s")
"""Group, bytes, member, tag, bytes of an element and of its neutral one, kind of the operation, and
the neutral element. Of a part that is gathered, instead of an element's bytes, those of its data,
which follow."""

SMALL_PART = 1 << 14  # bytes of a part that is announced with its data

_VECTORS = 4096  # that are kept until they are asked for; those answered elsewhere never are


class AnnouncementWriter:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_TRUNC
        self._vectors = os.open(path.with_suffix(".vectors"), flags, 0o600)
        self._copies = 0

    def vector(
        self, group: str, member: int, tag: int, vector: Vector, kind: str = "all_reduce"
    ) -> None:
        sizes = vector.element, len(vector.neutral), KINDS.index(kind)
        os.write(
            self._vectors,
            _VECTOR.pack(group_key(group), vector.size, member, tag, *sizes, vector.neutral),
        )

    def part(self, group: str, member: int, tag: int, size: int, data: bytes) -> None:
        """Announce a part of an all-gather; `data` is empty or all of it."""
        kind = KINDS.index("all_gather")
        head = _VECTOR.pack(group_key(group), size, member, tag, len(data), 0, kind, b"")
        os.write(self._vectors, head + data)

    def root(self, group: str, member: int, tag: int, root: int) -> None:
        self._write(("root", group, member, tag), root)

    def message(self, group: str, ends: tuple[int, int], tag: int, message: Message) -> None:
        self._write(("message", group, *ends, tag), message.dtype, message.likely)

    def copy(self, group: str, member: int, tag: int, data: Any) -> None:
        copy = self._path.with_suffix(f".{self._copies}")
        self._copies += 1
        with copy.open("wb", buffering=0) as file:
            file.write(data)
        self._write(("copy", group, member, tag), copy.name)

    def step(self, step: PipelineStep) -> None:
        self._write(("step",), *astuple(step))

    def _write(self, key: tuple[str | int, ...], *values: Any) -> None:
        plain = [value.hex() if isinstance(value, bytes) else value for value in values]
        os.write(self._file, json.dumps([key, plain]).encode() + b"\n")


class Announcements:
    """Each method returns a real member's next announcement, once, or None.

    A group is given by its name in the store.
    """

    def __init__(self, records: Path, ranks: Sequence[int]) -> None:
        self._paths = {rank: announcements_file(records, rank) for rank in ranks}
        self._vector_paths = {rank: vectors_file(records, rank) for rank in ranks}
        self._vector_files: dict[int, int] = {}  # by real rank, and how much has been read
        self._vectors_read: dict[int, int] = {}
        self._vectors: OrderedDict[tuple[int, int, int], Vector] = OrderedDict()
        self._files: dict[int, int] = {}  # by real rank
        self._rest: dict[int, bytes] = {}
        self._announced: dict[tuple[str | int, ...], deque[list[Any]]] = {}
        self._pipelines: dict[tuple[int, ...], Pipeline] = {}

    def vector(self, group: str, member: int, tag: int) -> Vector | None:
        """Return the vector that a member reduces in operation `tag`."""
        for rank in self._vector_paths:
            self._read_vectors(rank)
        return self._vectors.pop((group_key(group_name(group)), member, tag), None)

    def vectors_file(self, rank: int) -> Path:
        return self._vector_paths[rank]

    def root(self, group: str, member: int, tag: int) -> int | None:
        """Return the root of the broadcast that is a member's operation `tag`."""
        announced = self._take("root", group_name(group), member, tag)
        return announced and int(announced[0])

    def message(self, group: str, ends: tuple[int, int], tag: int) -> Message | None:
        """Return the next message with a user's tag from one member to another."""
        announced = self._take("message", group_name(group), *ends, tag)
        return announced and Message(announced[0], bytes.fromhex(announced[1]))

    def copy(self, group: str, member: int, tag: int) -> memoryview | None:
        """Return a copy of what `member` has in operation `tag`."""
        copied = self._take("copy", group_name(group), member, tag)
        if copied is None:
            return None
        path = next(iter(self._paths.values())).with_name(copied[0])
        data = path.read_bytes()
        path.unlink()
        return memoryview(data)

    def pipeline(self, source: int, target: int) -> Pipeline | None:
        """Return the pipeline in which two ranks are neighbours, once its steps are announced."""
        return next(
            (pipeline for pipeline in self._pipelines.values() if pipeline.has(source, target)),
            None,
        )

    def close(self) -> None:
        for files in (self._files, self._vector_files):
            for file in files.values():
                os.close(file)
            files.clear()

    def _take(self, *key: str | int) -> Any:
        if key not in self._announced:
            for rank in self._paths:
                self._read(rank)
        announced = self._announced.get(key)
        if announced is None:
            return None
        values = announced.popleft()
        if not announced:
            del self._announced[key]
        return values

    def _read_vectors(self, rank: int) -> None:
        if rank not in self._vector_files:
            try:
                self._vector_files[rank] = os.open(self._vector_paths[rank], os.O_RDONLY)
            except FileNotFoundError:
                return
        file = self._vector_files[rank]
        at = self._vectors_read.get(rank, 0)
        while len(vector := os.pread(file, _VECTOR.size, at)) == _VECTOR.size:
            at += _VECTOR.size
            group, size, member, tag, element, length, kind, neutral = _VECTOR.unpack(vector)
            if KINDS[kind] == "all_gather":
                at += element
                continue
            self._vectors[group, member, tag] = Vector(size, element, neutral[:length])
            if len(self._vectors) > _VECTORS:
                self._vectors.popitem(last=False)
        self._vectors_read[rank] = at

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
            key, values = json.loads(line)
            if key == ["step"]:
                number, begin, ranks, *rest = values
                step = PipelineStep(number, begin, tuple(ranks), *rest)
                pipeline = Pipeline(step, self._paths)
                self._pipelines.setdefault(step.ranks, pipeline).begin(step, begin)
                continue
            self._announced.setdefault(tuple(key), deque()).append(values)
