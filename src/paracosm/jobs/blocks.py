"""Programs put together from blocks: runs of tasks that a rank repeats for every micro-batch.

A block is written down once. Its tasks depend on each other, and on *anchors*: rows that it does
not know yet, such as the forward block of the same micro-batch, or the last task on a lane. Each
time that the block is placed, the anchors get their rows, and whole columns are copied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.jobs.job import Program
from paracosm.jobs.writer import COLUMN_TYPES, Codebook, ColumnWriter

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

Place = tuple[str, int]
"""A row: the name of an anchor, and how many rows after it."""

HERE = ""
"""The anchor of a block's own rows."""


def last_on(lane: str) -> str:
    """Return the anchor of the last task on a lane that was placed before the block."""
    return f"last on {lane}"


@dataclass(frozen=True, eq=False)
class Block:
    """n tasks, with the columns of `Program`.

    Attributes:
        name, step, kind, lane, duration, role, size, allocated, released: as in `Program`.
        offsets: n + 1 offsets into `anchor` and `after`.
        anchor: indices into `anchors` for every dependency.
        after: how many rows after its anchor each dependency is.
        anchors: their names, `HERE` first.
        marks: rows of this block that later blocks can have as anchors, by name.
    """

    name: Codes
    step: Codes
    kind: Codes
    lane: Codes
    duration: Floats
    role: Codes
    size: Ints
    allocated: Ints
    released: Ints
    offsets: Ints
    anchor: Codes
    after: Ints
    anchors: tuple[str, ...]
    marks: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.name)


class BlockWriter(ColumnWriter):
    """Takes down the tasks of one block, in the order of issue.

    Args:
        names, lanes, roles: codebooks, the same for all blocks of a job.
    """

    def __init__(self, names: Codebook, lanes: Codebook, roles: Codebook) -> None:
        super().__init__(names, lanes, roles)
        self._offsets = [0]
        self._after: list[tuple[int, int]] = []
        self._anchors = Codebook([HERE])
        self._marks: dict[str, int] = {}
        self.last: dict[str, int] = {}
        """The last row on each lane."""

    def add(
        self,
        name: str,
        lane: str,
        duration: float,
        after: Iterable[Place] = (),
        *,
        step: str = "other",
        kind: str = "task",
        role: str | None = None,
        size: int = 0,
    ) -> int:
        """Take down one task and return its row; the arguments are those of `Program`."""
        row = self.add_row(name, lane, duration, step=step, kind=kind, role=role, size=size)
        self._after.extend((self._anchors.code(anchor), at) for anchor, at in after)
        self._offsets.append(len(self._after))
        self.last[lane] = row
        return row

    def communicate(
        self,
        name: str,
        lane: str,
        duration: float,
        after: Iterable[Place],
        kind: str,
        size: int,
        role: str,
    ) -> int:
        """Take down a collective, or one end of a message, of `size` bytes; return its row."""
        return self.add(
            name, lane, duration, after, step="communication", kind=kind, role=role, size=size
        )

    def mark(self, name: str, row: int) -> None:
        """Let later blocks have a row as an anchor."""
        self._marks[name] = row

    def block(self) -> Block:
        after = np.array(self._after, dtype=np.int64).reshape(-1, 2)
        return Block(
            **self.arrays(),
            offsets=np.array(self._offsets, dtype=np.int64),
            anchor=after[:, 0].astype(np.int32),
            after=after[:, 1],
            anchors=self._anchors.texts,
            marks={last_on(lane): row for lane, row in self.last.items()} | self._marks,
        )


class ProgramOfBlocks:
    """The program of one rank: blocks, one after the other."""

    def __init__(self) -> None:
        self._length = 0
        self._marks: dict[str, int] = {}
        self._placed: list[tuple[Block, int, list[int]]] = []

    def place(
        self, block: Block, microbatch: int = -1, anchors: Mapping[str, int] = MappingProxyType({})
    ) -> int:
        """Put a block at the end and return its first row.

        An anchor has the row that `anchors` gives, or the last one that an earlier block has
        marked so. Dependencies on anchors that have none are left out.
        """
        first = self._length
        known = {**self._marks, **anchors, HERE: first}
        bases = [known.get(anchor, -1) for anchor in block.anchors]
        self._placed.append((block, microbatch, bases))
        self._length += len(block)
        self._marks |= {name: first + row for name, row in block.marks.items()}
        return first

    def program(self, resident: int = 0) -> Program:
        """Return the program; `resident` bytes are held throughout."""
        blocks = [block for block, _, _ in self._placed]
        lengths = np.array([len(block) for block in blocks], dtype=np.int64)
        offsets, dependencies = self._dependencies()
        microbatch = np.array([number for _, number, _ in self._placed], dtype=np.int32)
        return Program(
            **{
                column: _joined([getattr(block, column) for block in blocks], dtype)
                for column, dtype in {
                    **COLUMN_TYPES,
                    "allocated": np.int64,
                    "released": np.int64,
                }.items()
            },
            offsets=offsets,
            dependencies=dependencies,
            priority=np.zeros(self._length, dtype=np.int32),
            microbatch=np.repeat(microbatch, lengths),
            resident=resident,
        )

    def _dependencies(self) -> tuple[Ints, Ints]:
        rows, owners = [], []
        first = 0
        for block, _, bases in self._placed:
            base = np.array(bases, dtype=np.int64)[block.anchor]
            owner = first + np.repeat(np.arange(len(block)), np.diff(block.offsets))
            there = base >= 0
            rows.append((base + block.after)[there])
            owners.append(owner[there])
            first += len(block)
        pairs = _joined(owners, np.int64) * max(first, 1) + _joined(rows, np.int64)
        owner, row = np.divmod(np.unique(pairs), max(first, 1))
        counts = np.bincount(owner, minlength=first)
        return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), row.astype(np.int64)


def _joined(columns: Sequence[npt.NDArray[Any]], dtype: type) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype=dtype), *columns]).astype(dtype, copy=False)
