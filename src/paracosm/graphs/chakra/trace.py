"""A Chakra execution trace as plain data, whichever kind of file it is in."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field
from typing import Any

__all__ = ["COLLECTIVES", "NODE_TYPES", "Tensors", "Trace", "TraceNode", "literal"]

NODE_TYPES = (
    *("INVALID_NODE", "METADATA_NODE", "MEM_LOAD_NODE", "MEM_STORE_NODE", "COMP_NODE"),
    *("COMM_SEND_NODE", "COMM_RECV_NODE", "COMM_COLL_NODE"),
    *("STORAGE_NODE", "BATCH_NODE", "CHECKPOINT_NODE"),
)
"""Names of the types of nodes, in the order of their numbers."""

COLLECTIVES = (
    *("all_reduce", "reduce", "all_gather", "gather", "scatter", "broadcast", "all_to_all"),
    *("reduce_scatter", "reduce_scatter_block", "barrier"),
)
"""What the attribute `comm_type` stands for, in the order of its numbers."""


@dataclass(frozen=True, slots=True)
class Tensors:
    """What goes into a node or comes out: nested lists of shapes, and of types by name."""

    shapes: Any = ()
    types: Any = ()
    values: Any = ()


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One node of a trace.

    Attributes:
        id: as in the file.
        type: index into `NODE_TYPES`, or more; None where the file has none.
        data_deps, ctrl_deps: ids of the nodes that must end before.
        start, duration: microseconds; 0 where they are not known.
        attributes: by name.
    """

    id: int
    name: str = ""
    type: int | None = None
    data_deps: tuple[int, ...] = ()
    ctrl_deps: tuple[int, ...] = ()
    start: float = 0
    duration: float = 0
    inputs: Tensors = Tensors()
    outputs: Tensors = Tensors()
    attributes: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Trace:
    """A trace: its version, the attributes of the whole, its nodes in the order of the file."""

    version: str
    attributes: dict[str, Any]
    nodes: list[TraceNode]


def literal(text: str) -> Any:
    """Return the lists that a field of `Tensors` is in files; none where the text is damaged."""
    try:
        return ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []
