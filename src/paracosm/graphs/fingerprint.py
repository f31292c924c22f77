"""What a graph computes, in one short text: equal for equal graphs."""

from __future__ import annotations

import hashlib
import json

from paracosm.graphs.graph import Graph
from paracosm.graphs.numbering import numbered
from paracosm.graphs.op import Op

__all__ = ["fingerprint"]


def fingerprint(graph: Graph) -> str:
    """Return 32 hexadecimal digits for the ops of a graph, their order and dependencies.

    Which ranks communicate counts. Ids, names, durations, storages and provenance do not, nor how
    the distinct ops are numbered.
    """
    ops, op = numbered([_key(each) for each in graph.ops], graph.op)
    groups, group = numbered(graph.groups, graph.group)
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([ops, groups], separators=(",", ":")).encode())
    for column in (op, group, graph.offsets, graph.dependencies):
        digest.update(column.astype("<i8").tobytes())
    return digest.hexdigest()


def _key(op: Op) -> tuple[str, ...] | tuple[str, int, int, int]:
    """Return what tells ops apart; their work, only where nobody recorded their arguments."""
    if op.arguments:
        return op.name, op.arguments
    return op.name, op.flops, op.bytes_read, op.bytes_written
