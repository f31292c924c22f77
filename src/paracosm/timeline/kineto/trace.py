"""What a Kineto trace holds: one row for every span, in arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["CATEGORIES", "Collective", "Inputs", "KinetoTrace", "Lane", "Synchronisation"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

CATEGORIES = ("op", "annotation", "runtime", "kernel", "copy", "memset", "sync", "other")
"""An op on the host; a range that the program or the profiler names; a call of the CUDA runtime or
driver; what runs on the device: a kernel, a copy, a memset; a wait that the profiler has seen
(kind and streams are in `synchronisations`); anything else on the host."""


@dataclass(frozen=True, slots=True)
class Lane:
    """Where spans stand: a thread of the host, or a stream of a device.

    Attributes:
        kind: "thread" or "stream".
        owner: the process, or the device.
        number: of the thread or stream, as the file has it.
    """

    kind: str
    owner: str
    number: str

    @property
    def name(self) -> str:
        """For people: "stream 7"."""
        return f"{self.kind} {self.number}"


@dataclass(frozen=True, slots=True)
class Collective:
    """What the arguments of a span say of a collective.

    Attributes:
        kind: "all_reduce", ...; "" where it is not said.
        size: bytes that go in, on this rank; -1 where it is not known.
        group: name of the process group; "" where it is not said.
        group_size: ranks in it; 0 where it is not said.
        ranks: which they are; empty where it is not said.
    """

    kind: str
    size: int
    group: str
    group_size: int
    ranks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Synchronisation:
    """What the profiler has seen of a wait.

    Attributes:
        kind: "stream", "context" (the whole device), "event", or "stream wait event".
        stream: the stream that is waited for, or for the last kind, that waits; "" for none.
        on: the stream in which the event was recorded; "" where it is not known.
        recorded: correlation of the call that recorded it; -1 where it is not known.
    """

    kind: str
    stream: str
    on: str
    recorded: int


@dataclass(frozen=True, slots=True)
class Inputs:
    """What `record_shapes=True` tells of an op's arguments.

    Attributes:
        shapes: one for each; [] of what is no tensor, and a list of shapes of a list of tensors.
        types: "float", "c10::Half", "Scalar", ...; "" of what is not there.
    """

    shapes: tuple[Any, ...]
    types: tuple[str, ...]


@dataclass(frozen=True, eq=False)
class KinetoTrace:
    """The n complete spans of one rank's trace, by begin; an op stands before what is in it.

    Attributes:
        path: of the file.
        rank, world_size: of "distributedInfo"; None where it has none.
        origin: nanoseconds, on the clock of the machine, at which the first span begins.
        names: the distinct names.
        lanes: the distinct threads and streams, in the order of appearance.
        begin: n seconds from the origin.
        end: n seconds from the origin; of spans that touch, equal to the next one's begin.
        duration: n seconds.
        name: n indices into `names`.
        category: n indices into `CATEGORIES`.
        lane: n indices into `lanes`.
        correlation: n numbers, which a call of the runtime shares with what it launches; -1.
        record: n numbers ("Record function id"), by which execution traces name the op; -1.
        sequence: n numbers, which an op and its gradient share; of ops that call others, the number
            that the next one has. -1 where there is none.
        collectives: by row, what is said of collectives.
        synchronisations: by row of category "sync".
        inputs: by row, arguments of ops; empty unless they were recorded and asked for.
        missing: what the file lacks, in words; it was read without.
    """

    path: Path
    rank: int | None
    world_size: int | None
    origin: int
    names: tuple[str, ...]
    lanes: tuple[Lane, ...]
    begin: Floats
    end: Floats
    duration: Floats
    name: Codes
    category: Codes
    lane: Codes
    correlation: Ints
    record: Ints
    sequence: Ints
    collectives: Mapping[int, Collective]
    synchronisations: Mapping[int, Synchronisation]
    inputs: Mapping[int, Inputs]
    missing: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.begin)

    def of(self, *categories: str) -> Ints:
        """Return the rows of these categories, ascending."""
        codes = [CATEGORIES.index(category) for category in categories]
        return np.flatnonzero(np.isin(self.category, codes))

    def text(self, row: int) -> str:
        """Return the name of a row."""
        return self.names[int(self.name[row])]
