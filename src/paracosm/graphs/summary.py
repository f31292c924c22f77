"""What there is to know of a graph at a glance, as plain data."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.graphs.check import node_label
from paracosm.graphs.depth import longest_chain
from paracosm.graphs.fingerprint import fingerprint
from paracosm.graphs.graph import PHASES, RESOURCES, Graph
from paracosm.graphs.memory import memory_curve

__all__ = ["summarize"]

Ints = npt.NDArray[np.int64]


def summarize(graph: Graph, largest: int = 10) -> dict[str, Any]:
    """Return counts, work and memory of a graph: in all, by phase, by resource and by op name.

    Args:
        graph: what to sum up.
        largest: how many of the distinct ops to list, those with the most flops (then bytes) of
            one call first.

    Returns:
        Plain data: flops, bytes, seconds. `duration` is the sum over the nodes whose duration is
        known, `peak_memory` None where the graph knows of no storages.
    """
    flops, moved = graph.flops, graph.bytes_read + graph.bytes_written
    known = ~np.isnan(graph.duration)
    return {
        "nodes": len(graph),
        "distinct_ops": len(graph.ops),
        "dependencies": len(graph.dependencies),
        "longest_chain": longest_chain(graph),
        "flops": int(flops.sum()),
        "bytes": int(moved.sum()),
        "duration": float(graph.duration[known].sum()),
        "nodes_with_duration": int(known.sum()),
        "resident": dict(graph.resident),
        **_memory(graph),
        "phases": _by(PHASES, graph.phase, flops, moved),
        "resources": _by(RESOURCES, graph.resource, flops, moved),
        "ops": _by_name(graph),
        "largest_ops": _largest(graph, largest),
        "fingerprint": fingerprint(graph),
        "provenance": dict(graph.provenance),
    }


def _memory(graph: Graph) -> dict[str, Any]:
    if not len(graph) or not len(graph.storages.size):
        return {"peak_memory": None, "peak_memory_at": None}
    curve = memory_curve(graph)
    row = int(curve.argmax())
    op, name = graph.ops[graph.op[row]].name, graph.names[graph.name[row]]
    return {
        "peak_memory": int(curve[row]),
        "peak_memory_at": node_label(int(graph.id[row]), op, name),
    }


def _by(
    words: tuple[str, ...], codes: npt.NDArray[np.int32], flops: Ints, moved: Ints
) -> dict[str, dict[str, int]]:
    """Return the sums for each of the words that occur."""
    return {
        word: {
            "nodes": int(chosen.sum()),
            "flops": int(flops[chosen].sum()),
            "bytes": int(moved[chosen].sum()),
        }
        for code, word in enumerate(words)
        if (chosen := codes == code).any()
    }


def _by_name(graph: Graph) -> dict[str, dict[str, int]]:
    """Return the sums for each op name, those with the most flops (then bytes) first."""
    sums: dict[str, dict[str, int]] = {}
    for op, nodes in zip(graph.ops, graph.count().tolist(), strict=True):
        entry = sums.setdefault(op.name, {"nodes": 0, "distinct": 0, "flops": 0, "bytes": 0})
        entry["nodes"] += nodes
        entry["distinct"] += 1
        entry["flops"] += nodes * op.flops
        entry["bytes"] += nodes * (op.bytes_read + op.bytes_written)
    return dict(
        sorted(sums.items(), key=lambda item: (-item[1]["flops"], -item[1]["bytes"], item[0]))
    )


def _largest(graph: Graph, largest: int) -> list[dict[str, Any]]:
    counts = graph.count().tolist()
    order = sorted(
        range(len(graph.ops)),
        key=lambda code: (
            -graph.ops[code].flops,
            -graph.ops[code].bytes_read - graph.ops[code].bytes_written,
            code,
        ),
    )
    return [
        {
            "name": op.name,
            "arguments": op.arguments,
            "nodes": counts[code],
            "flops": op.flops,
            "bytes": op.bytes_read + op.bytes_written,
        }
        for code in order[:largest]
        for op in [graph.ops[code]]
    ]
