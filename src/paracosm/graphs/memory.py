"""How much memory a graph holds as its nodes are issued one after the other."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paracosm.graphs.graph import Graph

__all__ = ["memory_curve", "peak_memory"]


def memory_curve(graph: Graph) -> npt.NDArray[np.int64]:
    """Return the bytes that are held while each of the n nodes runs.

    A storage is held from the start of the node that allocates it to the end of the last one that
    uses it; what is resident, and what was there before, is added.
    """
    n, storages = len(graph), graph.storages
    change = np.zeros(n + 1, dtype=np.int64)
    np.add.at(change, np.maximum(storages.first, 0), storages.size)
    freed = storages.last < n
    np.add.at(change, storages.last[freed] + 1, -storages.size[freed])
    return sum(graph.resident.values()) + np.cumsum(change[:n])


def peak_memory(graph: Graph) -> int:
    """Return the most bytes that are held at a time."""
    if len(graph):
        return int(memory_curve(graph).max())
    return sum(graph.resident.values()) + int(graph.storages.size.sum())
