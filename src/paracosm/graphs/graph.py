"""The unified dataflow graph: one row for every node, in arrays.

Rows stand in the order of their ids, which is the order in which one thread issues the ops: an
in-order stream runs them in this order. Where a node came from in a file does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.graphs.op import Op

__all__ = ["PHASES", "RESOURCES", "Graph", "Storages"]

Ints = npt.NDArray[np.int64]
Codes = npt.NDArray[np.int32]
Floats = npt.NDArray[np.float64]

PHASES = ("forward", "backward", "optimizer", "other")
RESOURCES = ("compute", "host", "memory", "communication")
"""What a node keeps busy: the device's stream, the host alone (a view), copies, the network."""


@dataclass(frozen=True, eq=False)
class Storages:
    """Memory that nodes allocate: one entry for every storage, in the order of allocation.

    Attributes:
        size: bytes.
        first: row of the node that allocates it; -1 for what was there before (then it is not
            counted again in `Graph.resident`).
        last: row of the last node that uses it; the number of nodes where it outlives them all.
    """

    size: Ints
    first: Ints
    last: Ints


@dataclass(frozen=True, eq=False)
class Graph:
    """A dataflow graph of n nodes, of one replica of a job.

    Attributes:
        ops: the distinct ops.
        names: the distinct names of places in the model ("layer1.0.conv1"); "" for none.
        groups: the distinct groups of ranks that communicate.
        id: n ids, ascending.
        op: n indices into `ops`.
        name: n indices into `names`.
        phase: n indices into `PHASES`.
        resource: n indices into `RESOURCES`.
        group: n indices into `groups`; -1 for nodes that do not communicate.
        duration: n seconds; NaN where it is not known.
        offsets, dependencies: CSR: rows `dependencies[offsets[i]:offsets[i + 1]]`, ascending, must
            end before row i begins.
        storages: what is allocated and freed on the way.
        resident: bytes that are held throughout, by what they are ("parameters", "gradients",
            "optimizer", "buffers", "inputs").
        provenance: where the graph comes from: model, batch, dtype, every option of the capture,
            versions. Plain JSON.
    """

    ops: tuple[Op, ...]
    names: tuple[str, ...]
    groups: tuple[tuple[int, ...], ...]
    id: Ints
    op: Codes
    name: Codes
    phase: Codes
    resource: Codes
    group: Codes
    duration: Floats
    offsets: Ints
    dependencies: Ints
    storages: Storages
    resident: Mapping[str, int] = field(default_factory=dict)
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.id)

    @property
    def flops(self) -> Ints:
        """Floating-point operations of every node."""
        return np.array([op.flops for op in self.ops], dtype=np.int64)[self.op]

    @property
    def bytes_read(self) -> Ints:
        """Bytes that every node reads."""
        return np.array([op.bytes_read for op in self.ops], dtype=np.int64)[self.op]

    @property
    def bytes_written(self) -> Ints:
        """Bytes that every node writes."""
        return np.array([op.bytes_written for op in self.ops], dtype=np.int64)[self.op]

    @property
    def is_timed(self) -> bool:
        """Whether the duration of all is known that a device computes or copies."""
        own = (self.resource == RESOURCES.index("compute")) | (
            self.resource == RESOURCES.index("memory")
        )
        return bool(own.any() and not np.isnan(self.duration[own]).any())

    def predecessors(self, row: int) -> Ints:
        """Return the rows that must end before `row` begins."""
        return self.dependencies[self.offsets[row] : self.offsets[row + 1]]

    def count(self) -> Ints:
        """Return how many nodes each of `ops` has."""
        return np.bincount(self.op, minlength=len(self.ops)).astype(np.int64)
