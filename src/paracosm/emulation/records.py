"""Records of an emulated job while it runs: one file per process.

A line is a JSON array: the letter of the record's kind, then its fields. Lines are written in
bundles, twice a second while records arrive, so that a killed process leaves all but its last ones.
Times are seconds of `time.monotonic`, which all processes of a machine share.
"""

from __future__ import annotations

import dataclasses
import json
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from pathlib import Path
from typing import IO, Any

from paracosm.errors import InputError, unknown

COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "reduce", "broadcast", "gather", "scatter"),
    *("all_to_all", "barrier", "send", "recv"),
)
"""Kinds of `Collective`, which what-ifs name, too."""

MESSAGES = ("send", "recv")
ROOTED = ("broadcast", "reduce", "gather", "scatter")
"""Those of which one member is the root."""

GLOO_WORKERS = 2
"""Comm workers of a gloo group in PyTorch; NCCL has one stream."""

MEASUREMENT = "measured.records"
"""The file in a run folder with the records of a run that measured computing alone."""


CPU_FOR_CUDA = (
    "the script asked for CUDA devices: the CPU replaces them, and computing takes the CPU's time "
    "(--device cpu)"
)
"""The note of a rank whose script runs on the CPU, but means to be on a GPU."""

RAN_AGAIN = "the script ran again: "
"""How a note begins on why what it did in another world of a sweep does not hold in this one."""


@dataclass(frozen=True, slots=True)
class Collective:
    """One collective, or one message of a pair, as a real rank saw it.

    `size` is the bytes of the message, or of the whole vector: what each rank has before an
    all-reduce or reduce-scatter, has after an all-gather or broadcast, or sends in an all-to-all;
    what the root has before a scatter or after a gather.
    """

    rank: int
    group: str  # name of the process group
    number: int  # counts the collectives of this rank in this group, from 0
    kind: str  # one of `COLLECTIVES`
    size: int
    peer: int  # global rank of the root or of the other end; -1 where there is none
    asked: float  # when the rank asked for it
    entered: float  # when the last of the other members had come to it
    begun: float  # when a comm worker took it up
    done: float  # when the rank had its result
    # Which comm worker of the group: 0, 1; minus how many the library has in a run that measures
    # computing alone
    worker: int = 0
    site: str = ""  # "train.py:42", the line of the script that asked; empty if unknown

    def beyond(self, timeout: float) -> str:
        """Describe how it exceeds the group's `timeout`; empty where it does not."""
        if self.done - self.asked <= timeout:
            return ""
        return (
            f"{self.kind} of group {self.group} at {self.site or 'an unknown line'} takes "
            f"{self.done - self.asked:.1f} s: a real group gives up after {timeout:.0f} s"
        )


@dataclass(frozen=True, slots=True)
class Wait:
    rank: int
    begin: float
    end: float
    group: str = ""  # of the collective that is waited for; empty for all that are under way
    number: int = -1  # of that collective in its group


@dataclass(frozen=True, slots=True)
class Iteration:
    """The end of an iteration: of a step of the optimizer that stepped first."""

    rank: int
    number: int  # from 0, which began before the first collective and is no measurement
    end: float
    cpu: float  # seconds of processor time that the rank's process had used by then
    peak_memory: int  # largest resident set so far, or of the accelerator's allocator, in bytes
    core_wait: float = 0.0  # seconds without a core that instants leave out by then


@dataclass(frozen=True, slots=True)
class PipelineStep:
    """The beginning of a step of a pipeline, GPipe's or 1F1B, of which the rank is a stage."""

    rank: int
    begin: float
    ranks: tuple[int, ...]  # global ranks by stage
    microbatches: int
    fills: bool  # whether all micro-batches go forward before any goes back: GPipe
    forward: float  # seconds of a micro-batch in the step before; 0 in the first
    backward: float


@dataclass(frozen=True, slots=True)
class Group:
    rank: int
    name: str
    size: int
    members: tuple[int, ...]  # global ranks, in the group's order; empty if unknown
    backend: str  # what the script asked for: "gloo", "nccl"
    timeout: float = inf  # seconds after which a collective of a real group fails


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the emulator sent to and received from a real rank so far, in bytes, and CPU seconds."""

    rank: int
    sent: int
    received: int
    messages: int
    cpu: float


@dataclass(frozen=True, slots=True)
class Note:
    """A sentence for the user: something unexpected, and what was done about it."""

    rank: int  # the real rank; -1 for the emulator
    grave: bool  # whether the run failed for it
    text: str


Record = Collective | Wait | Iteration | PipelineStep | Group | Exchange | Note

_LETTERS: dict[str, type[Record]] = {
    "c": Collective,
    "w": Wait,
    "i": Iteration,
    "p": PipelineStep,
    "g": Group,
    "x": Exchange,
    "n": Note,
}
_LETTER_OF = {kind: letter for letter, kind in _LETTERS.items()}
_FIELDS = {kind: attrgetter(*(f.name for f in dataclasses.fields(kind))) for kind in _LETTER_OF}

_EVERY = 0.5  # seconds
_BUNDLE = 256  # records


class RecordWriter:
    """Appends records to a file, from any thread.

    Writing a line between a script's computations takes several times as long as writing many at
    once, so records are buffered.
    """

    def __init__(self, path: Path) -> None:
        self._file: IO[str] = path.open("w", encoding="utf-8", buffering=1 << 16)
        self._lock = threading.RLock()  # a handler of signals may record, too
        self._flushed = time.monotonic()
        self._buffer: deque[Record] = deque()
        self._forsaken = False
        self.count = 0

    def append(self, record: Record) -> None:
        """Write one record; notes reach the disk at once."""
        if self._forsaken:
            return
        self._buffer.append(record)
        self.count += 1
        is_due = len(self._buffer) >= _BUNDLE or time.monotonic() - self._flushed > _EVERY
        if is_due or type(record) is Note:
            self.flush()

    def append_lines(self, text: str) -> None:
        """Write records that are lines of the file already, each with its end."""
        if self._forsaken or not text:
            return
        with self._lock:
            self.flush()
            if not self._file.closed:
                self._file.write(text)

    def flush(self) -> None:
        if self._forsaken:
            return
        with self._lock:
            if self._file.closed:
                self._buffer.clear()
                return
            while self._buffer:
                record = self._buffer.popleft()
                kind = type(record)
                self._file.write(json.dumps((_LETTER_OF[kind], *_FIELDS[kind](record))) + "\n")
            self._file.flush()
            self._flushed = time.monotonic()

    def abandon(self) -> None:
        """In a forked child, leave the file and the buffered records to the parent."""
        self._forsaken = True
        if not self._file.closed:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._file.fileno())  # takes what the child's copy of the buffer holds
            os.close(nowhere)

    def close(self) -> None:
        with self._lock:
            self.flush()
            self._file.close()


def write_records(records: Sequence[Record], path: Path) -> None:
    writer = RecordWriter(path)
    for record in records:
        writer.append(record)
    writer.close()


class RecordReader:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def more(self) -> list[Record]:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                text = file.read()
        except FileNotFoundError:
            return []
        whole = text.rfind(b"\n") + 1  # a line that is cut off is read when it is complete
        records = [_read(json.loads(line)) for line in text[:whole].splitlines()]
        self._at += whole
        return records


def _read(fields: list[Any]) -> Record:
    letter, *values = fields
    values = [tuple(value) if isinstance(value, list) else value for value in values]
    return _LETTERS[letter](*values)


def load_records(path: Path) -> list[Record]:
    """Read the records that `write_records` has left in a run folder.

    Raises:
        InputError: a line is no record, or contradicts another one.
    """
    # Here, since every rank imports this module, and none reads.
    from paracosm.data_files import parse_json
    from paracosm.files import read_bytes

    records: list[Record] = []
    seen: set[tuple[Any, ...]] = set()
    for line, text in enumerate(read_bytes(path).splitlines(), 1):
        where = f"{path}: line {line}"
        record = _checked(parse_json(text, where), where)
        records.append(record)
        if isinstance(record, Collective | Iteration):
            key = type(record), record.rank, getattr(record, "group", ""), record.number
            if key in seen:
                raise InputError(f"{where}: number {record.number} of its kind is there twice")
            seen.add(key)
    groups = {record.name for record in records if isinstance(record, Group)}
    for each in records:
        if isinstance(each, Collective) and each.group not in groups:
            raise InputError(f'{path}: a collective of the unknown group "{each.group}"')
    return records


def _checked(found: Any, where: str) -> Record:
    """Return the record that a line holds."""
    kind = _LETTERS.get(str(found[0])) if isinstance(found, list) and found else None
    known = [] if kind is None else dataclasses.fields(kind)
    needed = sum(field.default is dataclasses.MISSING for field in known)
    if kind is None or not needed < len(found) <= len(known) + 1:
        raise InputError(f"{where}: no record of an emulated job")
    for field, value in zip(known, found[1:], strict=False):
        if not _fits(str(field.type), value) and (field.name, value) != ("timeout", inf):
            raise InputError(f"{where}: damaged: {value!r:.40} cannot stand as {field.name}")
    record = _read(found)
    match record:
        case Collective(asked=begin, done=end) | Wait(begin=begin, end=end) if end < begin:
            raise InputError(f"{where}: damaged: it ends before it begins")
    if isinstance(record, Collective) and record.kind not in COLLECTIVES:
        raise InputError(f"{where}: {unknown('collective', record.kind, COLLECTIVES)}")
    if isinstance(record, Group) and not set(record.members) <= set(range(record.size)):
        raise InputError(f"{where}: damaged: members of the group are not among {record.size}")
    return record


def _fits(kind: str, value: Any) -> bool:
    """Whether a value of JSON is of the kind of a field."""
    match kind:
        case "float":
            return type(value) in (int, float) and 0 <= value < inf
        case "int":
            return type(value) is int and abs(value) < 2**63
        case "tuple[int, ...]":
            return isinstance(value, list) and all(type(item) is int for item in value)
    return type(value).__name__ == kind
