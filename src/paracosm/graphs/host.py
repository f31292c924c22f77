"""Which nodes the host must wait for, and which it carries out itself."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paracosm.graphs.graph import RESOURCES, Graph

__all__ = ["COMPUTE", "HOST", "host_nodes", "waiting_nodes"]

HOST = RESOURCES.index("host")
COMPUTE = RESOURCES.index("compute")

WAITS = frozenset(
    {
        "aten._local_scalar_dense",
        "aten._unique2",
        "aten.equal",
        "aten.is_nonzero",
        "aten.item",
        "aten.masked_select",
        "aten.nonzero",
        "aten.unique_consecutive",
        "aten.unique_dim",
        "synchronize",
    }
)
"""Ops whose result the host looks at, if only for its size, so that an asynchronous device has to
have it first."""


def waiting_nodes(graph: Graph, asynchronous: bool) -> npt.NDArray[np.bool_]:
    """Return for every node that the host carries out whether it needs values for that.

    A view needs none. What a synchronous device computes does.
    """
    reads = np.array([_without_overload(op.name) in WAITS for op in graph.ops], dtype=np.bool_)
    waits = reads[graph.op] if len(graph.ops) else np.zeros(0, dtype=np.bool_)
    computes = (graph.resource == COMPUTE) & (not asynchronous)
    return np.asarray(waits | computes, dtype=np.bool_)


def host_nodes(graph: Graph, asynchronous: bool) -> npt.NDArray[np.bool_]:
    """Return for every node whether the host carries it out.

    On a synchronous device (a CPU) these are the compute nodes as well; copies and communication
    have lanes of their own everywhere.
    """
    its_own = waiting_nodes(graph, asynchronous) | (graph.resource == HOST)
    return np.asarray(its_own, dtype=np.bool_)


def _without_overload(name: str) -> str:
    """Return "aten.item" of "aten.item.default"."""
    return name.rpartition(".")[0] if name.count(".") > 1 else name
