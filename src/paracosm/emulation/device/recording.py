"""What one rank's script asks of a device: a row for each request, in the order of the host.

A request is an op or a copy on a stream, a collective, a wait of a stream or of the host, an event,
or the end of an iteration. Nothing here says how long anything takes: that follows from the
hardware (`durations.py`) and the cluster (`program.py`). In a run folder a recording is a Parquet
file, "device.parquet", with what is distinct (ops, collectives, groups) in its metadata.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from paracosm.arrays import Codes, Ints
from paracosm.columns import number_column, numbers_in
from paracosm.data_files import parse_json
from paracosm.errors import InputError
from paracosm.files import sealing
from paracosm.graphs.graph import PHASES, Op
from paracosm.jobs.job import MEMORY
from paracosm.tables import read_parquet

if TYPE_CHECKING:
    import pyarrow as pa

Entry = TypeVar("Entry", Op, "Call")

FILE = "device.parquet"
"""Of a recording in a run folder, where one rank was recorded; of others `recording_file`."""

REQUESTS = (
    *("op", "copy", "collective", "wait", "record event", "wait for event"),
    *("synchronize stream", "synchronize event", "synchronize device", "step"),
    *("graph", "step of preparation", "release memory"),
)
"""Kinds of request.

`wait` is for a collective, by a stream or (stream -1) by the host. `graph` is the launch of a CUDA
graph: the host does no more for as many requests after it as its number says.
"""

OP, COPY, COLLECTIVE, WAIT, RECORD, WAIT_EVENT = range(6)
STREAM, EVENT, DEVICE, STEP, GRAPH, PREPARED, RELEASE = range(6, len(REQUESTS))
Row = tuple[int, int, int, int, int, int, int]
"""kind, code, stream, phase, number, module, again"""

HOST = -1
"""The stream of what the host waits for, or of a collective of tensors of the host."""


@dataclass(frozen=True, slots=True)
class Call:
    """A distinct collective, or a message."""

    kind: str  # one of `paracosm.emulation.records.COLLECTIVES`
    size: int  # bytes, as `paracosm.emulation.records.Collective` counts them
    group: str  # name of the process group
    peer: int = -1  # global rank of the root or of the other end; -1 where there is none


@dataclass(frozen=True, slots=True)
class Assumption:
    """A value that nobody can know, since nothing is computed, and what was taken for it."""

    text: str  # "losses of 1"
    site: str  # the line that asked, "train.py:42"; empty if unknown
    count: int


@dataclass(frozen=True, eq=False)
class Storages:
    """The m storages of tensors on the device."""

    size: Ints  # m bytes, as PyTorch's allocator rounds them
    first: Ints  # m rows: the request for which it is allocated; ascending
    last: Ints  # m rows: the request after which it is free; n where it outlives them all
    kind: Codes  # m indices into `MEMORY`
    stream: Codes  # m streams on which it was allocated
    module: Codes  # m indices into `Recording.modules`, of that which made it; -1 of none
    handed_to: Codes  # m indices into `Recording.modules`: the block of the model that is given
    # it, else the one that returns it; -1 of what passes between no blocks
    read: Ints  # m rows: the last request that reads or writes it

    def __len__(self) -> int:
        return len(self.size)


@dataclass(frozen=True)
class Context:
    """What surrounds the ops of an iteration on a CPU, where it adds to what they take alone."""

    # Ops that only the host sees (views, sizes), outside of the optimizer's step and in it
    of_host: tuple[int, int] = (0, 0)
    # By op, an index into `ops`: bytes that it reads by how long ago they were last in use, an
    # index of `reuse_bytes`
    reuse: Mapping[int, Mapping[int, int]] = field(default_factory=dict)


_OCTAVE = 4
MOST_REUSE = 26 * _OCTAVE
"""The index of all that was last in use longer ago than 64 MiB, or never."""


def reuse_index(size: int) -> int:
    """Return the index of data between whose uses so many bytes were, its own included."""
    return min(int(_OCTAVE * math.log2(max(size, 1))), MOST_REUSE)


def reuse_bytes(index: int) -> float:
    """Return the bytes that an index of `Context.reuse` stands for at most."""
    return float(2 ** ((index + 1) / _OCTAVE)) if index < MOST_REUSE else math.inf


@dataclass(frozen=True, eq=False)
class Recording:
    """The n requests of one rank."""

    rank: int
    world_size: int
    device: str  # what the script was told that it is, as the catalogue names it
    ops: tuple[Op, ...]  # the distinct ones
    calls: tuple[Call, ...]
    groups: Mapping[str, tuple[int, ...]]  # global ranks of each process group, by its name
    kind: Codes  # n indices into `REQUESTS`
    code: Codes  # n indices into `ops` (op, copy) or `calls` (collective); -1 for others
    stream: Codes  # n streams; 0 is the default one, -1 the host
    phase: Codes  # n indices into `PHASES`
    # n numbers of the collective or event that is made, or waited for; how many requests a graph
    # has; else -1
    number: Ints
    module: Codes  # n indices into `modules`, of that which is under way; -1 of none
    again: Codes  # n: 1 in a forward pass that is computed again in the backward pass, else 0
    storages: Storages  # the memory that tensors hold, in the order of allocation
    assumed: tuple[Assumption, ...] = ()
    assumptions: tuple[str, ...] = ()  # what it was told to assume, by `--assume`
    notes: tuple[str, ...] = ()  # what a user should know: torch.compile left out, ...
    framework: str = ""  # "torch 2.13.0"
    sharing: int = 1  # ranks that look up the same tokens, as those of tensor parallelism do
    context: Context | None = None  # of a CPU
    asks_capability: bool = False  # whether the script asked for the device's compute capability
    modules: tuple[str, ...] = ()  # fully qualified names
    allocator: str = ""  # settings of PyTorch's, "expandable_segments:True"
    batch: int = 0  # the first dimension of what the model is given; 0 where that is not known

    def __len__(self) -> int:
        return len(self.kind)

    @property
    def steps(self) -> Ints:
        """The rows at which iterations end."""
        return np.flatnonzero(self.kind == STEP)

    def iteration(self, number: int) -> Recording:
        """Return the requests of one iteration, its end included; 0 is what comes before it too."""
        ends = self.steps
        first = 0 if number == 0 else int(ends[number - 1]) + 1
        return self.rows(slice(first, int(ends[number]) + 1))

    def rows(self, rows: slice | NDArray[Any]) -> Recording:
        """Return some of the requests; `storages` stays that of all."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _COLUMNS})

    @property
    def peers(self) -> set[int]:
        """The ranks with which this one exchanges messages."""
        used = set(np.unique(self.code[self.kind == COLLECTIVE]).tolist())
        calls = (self.calls[code] for code in used)
        return {call.peer for call in calls if call.kind in ("send", "recv") and call.peer >= 0}

    def save(self, path: Path) -> None:
        """Write it as a Parquet file, replacing an existing one atomically."""
        import pyarrow as pa
        from pyarrow import parquet

        about = {
            "rank": self.rank,
            "world_size": self.world_size,
            "device": self.device,
            "ops": [list(asdict(op).values()) for op in self.ops],
            "calls": [list(asdict(call).values()) for call in self.calls],
            "groups": {name: list(ranks) for name, ranks in self.groups.items()},
            "assumed": [list(asdict(assumption).values()) for assumption in self.assumed],
            "assumptions": list(self.assumptions),
            "notes": list(self.notes),
            "framework": self.framework,
            "sharing": self.sharing,
            "context": None if self.context is None else asdict(self.context),
            "asks_capability": self.asks_capability,
            "modules": list(self.modules),
            "allocator": self.allocator,
            "batch": self.batch,
        }
        metadata = {_VERSION: str(VERSION), "recording": json.dumps(about)}
        columns = {name: number_column(getattr(self, name)) for name in _COLUMNS}
        counts = np.bincount(self.storages.first, minlength=len(self))[: len(self)]
        offsets = np.concatenate(([0], np.cumsum(counts))).astype(np.int64)
        for name, of in _OF_STORAGES.items():
            values = number_column(getattr(self.storages, of))
            columns[name] = pa.LargeListArray.from_arrays(number_column(offsets), values)
        table = pa.table(columns, metadata=metadata)
        with sealing(path) as unfinished:
            parquet.write_table(table, unfinished)


VERSION = 2
"""Of the format; raised when a reader of the old one would misread the new one."""

_VERSION = "paracosm_recording"
_COLUMNS = ("kind", "code", "stream", "phase", "number", "module", "again")
_TYPES: Mapping[str, type] = dict.fromkeys(_COLUMNS, np.int32) | {"number": np.int64}
_OF_STORAGES = {
    "allocates": "size",
    "freed_after": "last",
    "memory": "kind",
    "memory_stream": "stream",
    "memory_module": "module",
    "memory_handed_to": "handed_to",
    "memory_read": "read",
}
_STORAGE_TYPES: Mapping[str, type] = {
    **dict.fromkeys(("size", "first", "last"), np.int64),
    **dict.fromkeys(("kind", "stream", "module", "handed_to"), np.int32),
    "read": np.int64,
}


def load_recording(path: Path) -> Recording:
    """Read what `Recording.save` has written.

    Raises:
        InputError: it is no recording, a damaged or a newer one.
    """
    import pyarrow as pa

    plain = [(name, pa.from_numpy_dtype(_TYPES[name])) for name in _COLUMNS]
    lists = [
        (name, pa.large_list(pa.from_numpy_dtype(_STORAGE_TYPES[of])))
        for name, of in _OF_STORAGES.items()
    ]
    schema = pa.schema([*plain, *lists])
    table = read_parquet(
        path, "recording of a script on a device", "paracosm emulate --hardware writes one", schema
    )
    texts = table.schema.metadata or {}
    if texts.get(_VERSION.encode()) != str(VERSION).encode():
        raise InputError(f"{path}: no recording of a script on a device that this version reads")
    about = parse_json(texts.get(b"recording", b""), str(path))
    columns: dict[str, Any] = {
        name: numbers_in(table.column(name)).astype(_TYPES[name]) for name in _COLUMNS
    }
    try:
        recording = Recording(
            ops=tuple(Op(*values) for values in about["ops"]),
            calls=tuple(Call(*values) for values in about["calls"]),
            groups={name: tuple(ranks) for name, ranks in about["groups"].items()},
            storages=_storages(table),
            assumed=tuple(Assumption(*values) for values in about["assumed"]),
            assumptions=tuple(about.get("assumptions", ())),
            notes=tuple(about["notes"]),
            sharing=int(about.get("sharing", 1)),
            context=_context(about.get("context")),
            asks_capability=bool(about.get("asks_capability", True)),
            modules=tuple(about["modules"]),
            **{name: about[name] for name in ("rank", "world_size", "device", "framework")},
            **{name: about[name] for name in ("allocator", "batch")},
            **columns,
        )
    except (KeyError, TypeError, AttributeError, ValueError):
        raise InputError(f"{path}: damaged: record the script again") from None
    _check(recording, path)
    return recording


def _context(about: Any) -> Context | None:
    if about is None:
        return None
    reuse = {
        int(code): {int(index): int(size) for index, size in sizes.items()}
        for code, sizes in about["reuse"].items()
    }
    outside, inside = about["of_host"]
    return Context((int(outside), int(inside)), reuse)


def _storages(table: pa.Table) -> Storages:
    lists = {of: table.column(name).combine_chunks() for name, of in _OF_STORAGES.items()}
    counts = np.array([len(sizes) for sizes in lists["size"]], dtype=np.int64)
    columns = {of: numbers_in(each.flatten()) for of, each in lists.items()}
    columns["first"] = np.repeat(np.arange(len(counts)), counts)
    if len({len(column) for column in columns.values()}) > 1:
        raise ValueError("lists of different lengths")
    return Storages(**{of: column.astype(_STORAGE_TYPES[of]) for of, column in columns.items()})


def _check(recording: Recording, path: Path) -> None:
    of_ops = (recording.kind == OP) | (recording.kind == COPY)
    calls = recording.kind == COLLECTIVE
    limits = {
        "kind": (recording.kind, len(REQUESTS)),
        "phase": (recording.phase, len(PHASES)),
        "op": (recording.code[of_ops], len(recording.ops)),
        "collective": (recording.code[calls], len(recording.calls)),
        "kind of memory": (recording.storages.kind, len(MEMORY)),
        "module": (
            np.concatenate(
                [recording.module, recording.storages.module, recording.storages.handed_to]
            )
            + 1,
            len(recording.modules) + 1,
        ),
    }
    for name, (codes, count) in limits.items():
        if len(codes) and not (codes.min() >= 0 and codes.max() < count):
            raise InputError(f"{path}: damaged: no such {name}: record the script again")
    for call in recording.calls:
        if call.group not in recording.groups:
            raise InputError(f'{path}: damaged: a collective of the unknown group "{call.group}"')


class Clock(Protocol):
    """What is told of each request as it comes."""

    in_graph: bool  # whether the host does nothing for what comes

    def op(self, code: int, op: Op, phase: int, stream: int, *, is_copy: bool) -> None: ...

    def collective(
        self, call: Call, members: tuple[int, ...], stream: int, number: int
    ) -> None: ...

    def request(self, kind: int, stream: int, number: int) -> None: ...


@dataclass
class RecordingWriter:
    """Takes requests as the script makes them."""

    rank: int
    world_size: int
    device: str
    framework: str = ""
    assumptions: tuple[str, ...] = ()
    groups: dict[str, tuple[int, ...]] = field(default_factory=dict)
    notes: dict[str, None] = field(default_factory=dict)
    captured: list[Row] | None = None  # takes requests, while a CUDA graph is captured
    _rows: list[Row] = field(default_factory=list)
    _left: int = 0  # requests of the graph under way
    _graph: tuple[Any, int] | None = None  # a graph that grows: its key, and the row of its launch
    _ops: dict[Op, int] = field(default_factory=dict)
    _calls: dict[Call, int] = field(default_factory=dict)
    _assumed: dict[tuple[str, str], int] = field(default_factory=dict)
    _op_list: list[Op] = field(default_factory=list)
    _call_list: list[Call] = field(default_factory=list)
    steps: int = 0
    sharing: int = 1  # ranks that look up the same tokens
    context: Context | None = None  # of a CPU
    asks_capability: bool = False
    is_finished: bool = False  # whether enough was seen: what comes then is not recorded
    clock: Clock | None = None  # that goes with the requests
    pending: Callable[[], None] | None = None  # records what is not yet complete
    place: Callable[[], tuple[int, int]] = lambda: (-1, 0)  # `module` and `again` of a request
    modules: Iterable[str] = ()
    allocator: str = ""
    batch: int = 0

    def __len__(self) -> int:
        return len(self._rows)

    def op_code(self, op: Op) -> int:
        """Return the number of an op, for `add`."""
        return _numbered(op, self._ops, self._op_list)

    def op(self, code: int) -> Op:
        return self._op_list[code]

    def call_code(self, call: Call) -> int:
        return _numbered(call, self._calls, self._call_list)

    def add(
        self,
        kind: int,  # index into `REQUESTS`
        stream: int,
        *,
        code: int = -1,
        phase: int = PHASES.index("other"),
        number: int = -1,
        place: tuple[int, int] | None = None,
    ) -> None:
        """Take a request; the arguments are those of `Recording`."""
        self.flush()
        self._graph = None
        self._add((kind, code, stream, phase, number, *(place or self.place())))

    def add_to_graph(
        self, key: Any, kind: int, stream: int, *, code: int, phase: int, place: tuple[int, int]
    ) -> None:
        """Take an op or a copy of a CUDA graph that is told from others by its key."""
        self.flush()
        if self._graph is None or self._graph[0] != key:
            self._add((GRAPH, -1, stream, phase, 0, *place))
            self._graph = key, len(self) - 1
        if self.captured is None and not self.is_finished:
            *launch, count, module, again = self._rows[self._graph[1]]
            row: Any = (*launch, count + 1, module, again)
            self._rows[self._graph[1]] = row
        self._left = 1
        self._add((kind, code, stream, phase, -1, *place))

    def restart(self) -> None:
        """Let the iterations so far be preparation."""
        self._rows = [(PREPARED, *row[1:]) if row[0] == STEP else row for row in self._rows]
        self.steps = 0

    def _add(self, row: Row) -> None:
        if self.is_finished:
            return
        if self.captured is not None:
            self.captured.append(row)
            return
        kind, code, stream, phase, number, *_ = row
        self._rows.append(row)
        self.steps += kind == STEP
        in_graph = self._left > 0
        self._left = number if kind == GRAPH else max(self._left - 1, 0)
        if self.clock is None:
            return
        self.clock.in_graph = in_graph
        if kind in (OP, COPY):
            self.clock.op(code, self._op_list[code], phase, stream, is_copy=kind == COPY)
        elif kind == COLLECTIVE:
            call = self._call_list[code]
            self.clock.collective(call, self.groups[call.group], stream, number)
        else:
            self.clock.request(kind, stream, number)

    def flush(self) -> None:
        """Record what is pending: a chain of ops that ends with the next request."""
        pending, self.pending = self.pending, None
        if pending is not None:
            pending()

    def assume(self, text: str, site: str) -> None:
        """Count an assumption that was made at a line."""
        if not self.is_finished:
            self._assumed[text, site] = self._assumed.get((text, site), 0) + 1

    def recording(self, storages: Sequence[tuple[int, ...]]) -> Recording:
        """Return all requests; storages have the columns of `Storages`, a row each."""
        columns = list(zip(*self._rows, strict=True)) or [()] * len(_COLUMNS)
        arrays: dict[str, Any] = {
            name: np.array(values, dtype=_TYPES[name])
            for name, values in zip(_COLUMNS, columns, strict=True)
        }
        held = np.array(storages, dtype=np.int64).reshape(-1, len(_STORAGE_TYPES))
        held = held[held[:, 1] < len(self)]
        held = held[np.argsort(held[:, 1], kind="stable")]
        of_storages: dict[str, Any] = {
            name: held[:, place].astype(dtype)
            for place, (name, dtype) in enumerate(_STORAGE_TYPES.items())
        }
        assumed = [Assumption(*key, count) for key, count in self._assumed.items()]
        return Recording(
            rank=self.rank,
            world_size=self.world_size,
            device=self.device,
            ops=tuple(self._ops),
            calls=tuple(self._calls),
            groups=dict(self.groups),
            storages=Storages(**of_storages),
            assumed=tuple(assumed),
            assumptions=self.assumptions,
            notes=tuple(self.notes),
            framework=self.framework,
            sharing=self.sharing,
            context=self.context,
            asks_capability=self.asks_capability,
            modules=tuple(self.modules),
            allocator=self.allocator,
            batch=self.batch,
            **arrays,
        )


def _numbered(entry: Entry, numbers: dict[Entry, int], entries: list[Entry]) -> int:
    number = numbers.setdefault(entry, len(numbers))
    if number == len(entries):
        entries.append(entry)
    return number


def iterations_of(recording: Recording) -> Sequence[Recording]:
    """Return all iterations but the first two, or the last one of fewer.

    The first one makes the optimizer's state, the second lets DistributedDataParallel divide its
    buckets anew.
    """
    count = len(recording.steps)
    return [recording.iteration(number) for number in range(min(2, count - 1), count)]
