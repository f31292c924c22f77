"""Programs and jobs, written down task by task."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Codes, Floats, Ints
from paracosm.errors import InputError, unknown
from paracosm.jobs.job import (
    KINDS,
    MEMORY,
    POLICIES,
    STEPS,
    Communicators,
    Holdings,
    Job,
    Program,
)
from paracosm.network import Stations

COLUMN_TYPES: dict[str, type] = {
    **dict.fromkeys(("name", "step", "kind", "lane"), np.int32),
    "duration": np.float64,
    "role": np.int32,
    "size": np.int64,
}

_KIND_CODES = {kind: code for code, kind in enumerate(KINDS)}
_STEP_CODES = {step: code for code, step in enumerate(STEPS)}


Use = tuple[str, str]
"""What memory is for: a kind of `paracosm.jobs.job.MEMORY`, and what it is."""

UNKNOWN: Use = ("temporary", "")


class Codebook:
    """Numbers for texts, assigned on first use. All programs of a job share one of each."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._codes: dict[str, int] = {text: code for code, text in enumerate(texts)}

    def code(self, text: str) -> int:
        number = self._codes.get(text)
        if number is None:
            number = self._codes[text] = len(self._codes)
        return number

    @property
    def texts(self) -> tuple[str, ...]:
        return tuple(self._codes)


class ColumnWriter:
    """Records tasks in the order of issue; all programs of a job share the codebooks."""

    def __init__(self, names: Codebook, lanes: Codebook, roles: Codebook) -> None:
        self.names, self.lanes, self.roles = names, lanes, roles
        self._rows: list[tuple[int, int, int, int, float, int, int]] = []
        self._holdings: list[tuple[int, int, int, int]] = []

    def __len__(self) -> int:
        return len(self._rows)

    def add_row(
        self,
        name: str,
        lane: str | None,
        duration: float,
        *,
        step: str,
        kind: str,
        role: str | None,
        size: int,
    ) -> int:
        """Record one task and return its row; the arguments are those of `Program`."""
        if kind not in _KIND_CODES:
            raise unknown("kind of task", kind, KINDS)
        if step not in _STEP_CODES:
            raise unknown("step", step, STEPS)
        if (role is None) != (kind == "task"):
            needs = "needs a" if role is None else "has no"
            raise InputError(f"task {name}: a {kind} {needs} role")
        self._rows.append(
            (
                self.names.code(name),
                _STEP_CODES[step],
                _KIND_CODES[kind],
                -1 if lane is None else self.lanes.code(lane),
                duration,
                -1 if role is None else self.roles.code(role),
                size,
            )
        )
        return len(self._rows) - 1

    def allocate(self, size: int, row: int, use: Use = UNKNOWN) -> None:
        """Hold a block of `size` bytes from the begin of a row on."""
        self._hold(size, row, use)

    def release(self, size: int, row: int, use: Use = UNKNOWN) -> None:
        """Release a block of `size` bytes of the same use at the end of a row."""
        self._hold(-size, row, use)

    def _hold(self, size: int, row: int, use: Use) -> None:
        if size:
            kind, name = use
            self._holdings.append((row, size, MEMORY.index(kind), self.names.code(name)))

    def arrays(self) -> dict[str, npt.NDArray[Any]]:
        columns = list(zip(*self._rows, strict=True)) or [()] * len(COLUMN_TYPES)
        arrays: dict[str, npt.NDArray[Any]] = {
            column: np.array(values, dtype=dtype)
            for (column, dtype), values in zip(COLUMN_TYPES.items(), columns, strict=True)
        }
        return arrays

    def holdings(self) -> Holdings:
        """Return the blocks in the order of their rows; a row takes its blocks before it gives."""
        moved = np.array(self._holdings, dtype=np.int64).reshape(-1, 4)
        moved = moved[np.lexsort((moved[:, 1] < 0, moved[:, 0]))]
        return Holdings(
            moved[:, 0], moved[:, 1], moved[:, 2].astype(np.int32), moved[:, 3].astype(np.int32)
        )


class ProgramWriter(ColumnWriter):
    """Records the tasks of one rank, in the order of issue."""

    def __init__(self, names: Codebook, lanes: Codebook, roles: Codebook) -> None:
        super().__init__(names, lanes, roles)
        self._placed: list[tuple[int, int]] = []  # priority, micro-batch
        self._offsets = [0]
        self._dependencies: list[int] = []

    def add(
        self,
        name: str,
        lane: str | None,
        duration: float,
        after: Iterable[int] = (),
        *,
        step: str = "other",
        kind: str = "task",
        role: str | None = None,
        size: int = 0,
        priority: int = 0,
        microbatch: int = -1,
    ) -> int:
        """Record one task and return its row; the arguments are those of `Program`.

        Args:
            lane: that it keeps busy; None for none.
            duration: seconds.
            after: rows that must have ended before.

        Raises:
            InputError: a kind or step that is unknown, a dependency on a row that is not there, a
                role that is missing or has no effect.
        """
        row = len(self)
        before = sorted(set(after))
        if before and not 0 <= before[0] <= before[-1] < row:
            raise InputError(f"task {name}: depends on row {before[-1]}, and is row {row} itself")
        self.add_row(name, lane, duration, step=step, kind=kind, role=role, size=size)
        self._placed.append((priority, microbatch))
        self._dependencies.extend(before)
        self._offsets.append(len(self._dependencies))
        return row

    def hold(self, size: int, first: int, last: int | None) -> None:
        """Hold `size` bytes from the begin of row `first` to the end of row `last`, or for good."""
        self.allocate(size, first)
        if last is not None:
            self.release(size, last)

    def program(self, throughout: Mapping[str, int] = MappingProxyType({})) -> Program:
        """Return the program of the recorded tasks, and of bytes that are held `throughout`."""
        placed = np.array(self._placed, dtype=np.int32).reshape(-1, 2)
        return Program(
            **self.arrays(),
            offsets=np.array(self._offsets, dtype=np.int64),
            dependencies=np.array(self._dependencies, dtype=np.int64),
            priority=placed[:, 0].copy(),
            microbatch=placed[:, 1].copy(),
            holdings=self.holdings(),
            throughout=throughout,
            on_host={},
        )


def write_communicators(
    groups: Iterable[Sequence[int]], network: Stations | None = None
) -> Communicators:
    """Return communicators of these ranks, the first of which send over the network's connections.

    The network has at most as many connections as there are groups; None if nothing is shared.
    """
    members = [tuple(group) for group in groups]
    counts = np.array([len(group) for group in members], dtype=np.int64)
    return Communicators(
        offsets=np.concatenate((np.zeros(1, dtype=np.int64), np.cumsum(counts))),
        members=np.array([rank for group in members for rank in group], dtype=np.int32),
        network=network,
    )


def write_job(
    writers: Sequence[ProgramWriter],
    program: Sequence[int],
    communicators: Communicators,
    communicator: Sequence[Mapping[str, int]],
    *,
    speed: Sequence[float] | None = None,
    policies: Mapping[str, str] = MappingProxyType({}),
    throughout: Sequence[Mapping[str, int]] | None = None,
    labels: Sequence[str] | None = None,
    examples: int | None = None,
    provenance: Mapping[str, Any] = MappingProxyType({}),
) -> Job:
    """Return the job of these programs; the arguments are those of `Job`, by name.

    Args:
        writers: one for each program; they share their codebooks.
        program: of each of R ranks, which program.
        communicator: R mappings from role to communicator; roles that no program has are left out.
        speed: R relative speeds; 1 by default.
        policies: by lane, where it is not "in order".
        throughout: bytes that each program holds throughout, by what they are for.
        labels: R names; "rank 0", ... by default.

    Raises:
        InputError: no writers, or writers that do not share their codebooks; mappings that are not
            one for each rank; a policy or lane that is unknown.
    """
    ranks = len(program)
    if not writers:
        raise InputError("a job needs at least one program")
    first = writers[0]
    for number, writer in enumerate(writers):
        if (writer.names, writer.lanes, writer.roles) != (first.names, first.lanes, first.roles):
            raise InputError(
                f"program {number} has codebooks of its own: programs of a job share them"
            )
    if len(communicator) != ranks:
        raise InputError(f"communicators of {len(communicator)} ranks for a job of {ranks} ranks")
    lanes, roles = first.lanes.texts, first.roles.texts
    table = np.full((ranks, len(roles)), -1, dtype=np.int32)
    for rank, of_role in enumerate(communicator):
        for role, number in of_role.items():
            if role in roles:
                table[rank, roles.index(role)] = number
    for lane, policy in policies.items():
        if lane not in lanes:
            raise unknown("lane", lane, lanes)
        if policy not in POLICIES:
            raise unknown("policy", policy, POLICIES)
    return Job(
        names=first.names.texts,
        lanes=lanes,
        policies=tuple(policies.get(lane, POLICIES[0]) for lane in lanes),
        roles=roles,
        programs=tuple(
            writer.program({} if throughout is None else throughout[number])
            for number, writer in enumerate(writers)
        ),
        program=np.array(program, dtype=np.int32),
        speed=np.ones(ranks) if speed is None else np.array(speed, dtype=np.float64),
        communicators=communicators,
        communicator=table,
        labels=tuple(labels) if labels is not None else tuple(f"rank {r}" for r in range(ranks)),
        examples=examples,
        provenance=provenance,
    )


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

    Row i depends on row `after[k]` behind the anchor `anchors[anchor[k]]`, k from `offsets[i]` to
    `offsets[i + 1]`; `HERE` is the first anchor. `marks` are the rows that later blocks can have as
    anchors, by name.
    """

    name: Codes
    step: Codes
    kind: Codes
    lane: Codes
    duration: Floats
    role: Codes
    size: Ints
    holdings: Holdings
    offsets: Ints
    anchor: Codes
    after: Ints
    anchors: tuple[str, ...]
    marks: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.name)


class BlockWriter(ColumnWriter):
    """Records the tasks of one block, in the order of issue."""

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
        """Record one task and return its row; the arguments are those of `Program`."""
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
        """Record a collective, or one end of a message, of `size` bytes."""
        return self.add(
            name, lane, duration, after, step="communication", kind=kind, role=role, size=size
        )

    def mark(self, name: str, row: int) -> None:
        """Make a row available as an anchor of later blocks."""
        self._marks[name] = row

    def block(self) -> Block:
        after = np.array(self._after, dtype=np.int64).reshape(-1, 2)
        return Block(
            **self.arrays(),
            holdings=self.holdings(),
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
        """Append a block and return its first row.

        An anchor has the row that `anchors` gives, or else the last one that an earlier block has
        marked under its name. Dependencies on anchors without a row are left out.
        """
        first = self._length
        known = {**self._marks, **anchors, HERE: first}
        bases = [known.get(anchor, -1) for anchor in block.anchors]
        self._placed.append((block, microbatch, bases))
        self._length += len(block)
        self._marks |= {name: first + row for name, row in block.marks.items()}
        return first

    def program(
        self,
        throughout: Mapping[str, int] = MappingProxyType({}),
        on_host: Mapping[str, int] = MappingProxyType({}),
    ) -> Program:
        """Return the program of the blocks, and of bytes that are held `throughout`, by the rank
        itself and by its host for it."""
        blocks = [block for block, _, _ in self._placed]
        lengths = np.array([len(block) for block in blocks], dtype=np.int64)
        firsts = np.cumsum(lengths) - lengths
        offsets, dependencies = self._dependencies()
        microbatch = np.array([number for _, number, _ in self._placed], dtype=np.int32)
        return Program(
            **{
                column: _joined([getattr(block, column) for block in blocks], dtype)
                for column, dtype in COLUMN_TYPES.items()
            },
            offsets=offsets,
            dependencies=dependencies,
            priority=np.zeros(self._length, dtype=np.int32),
            microbatch=np.repeat(microbatch, lengths),
            holdings=Holdings(
                np.repeat(firsts, [len(block.holdings.row) for block in blocks])
                + _joined([block.holdings.row for block in blocks], np.int64),
                _joined([block.holdings.size for block in blocks], np.int64),
                _joined([block.holdings.kind for block in blocks], np.int32),
                _joined([block.holdings.name for block in blocks], np.int32),
            ),
            throughout=throughout,
            on_host=on_host,
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
        pairs.sort()  # np.unique uses a hash table, ten times slower
        owner, row = np.divmod(pairs[np.diff(pairs, prepend=-1) > 0], max(first, 1))
        counts = np.bincount(owner, minlength=first)
        return np.concatenate(([0], np.cumsum(counts))).astype(np.int64), row.astype(np.int64)


def _joined(columns: Sequence[npt.NDArray[Any]], dtype: type) -> npt.NDArray[Any]:
    return np.concatenate([np.zeros(0, dtype=dtype), *columns]).astype(dtype, copy=False)
