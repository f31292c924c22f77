"""A summary of a graph as plain data."""

import hashlib
import json
from typing import Any

import numpy as np

from paracosm.arrays import Codes, Ints
from paracosm.errors import InputError
from paracosm.graphs.check import node_label
from paracosm.graphs.graph import (
    PHASES,
    RESOURCES,
    Graph,
    Op,
    TensorArgument,
    decode_arguments,
    numbered,
)


def summarize(graph: Graph, largest: int = 10) -> dict[str, Any]:
    """Return counts, work and memory of a graph: in all, by phase, by resource and by op name.

    Values are flops, bytes, seconds. `duration` is the sum over the nodes whose duration is known,
    `peak_memory` None if the graph has no storages. `largest` is the number of distinct ops to
    list, those with the most flops (then bytes) of one call first.
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


def step_of(graph: Graph) -> dict[str, Any]:
    """Return what a step computes with, by which its time can differ several times.

    Keys are `dtype`, that of most of its flops where the provenance does not say, `optimizer`,
    "none" for a step that updates nothing, `shape` of an example, and `source`, where the graph is
    from; None for what is not known.
    """
    known = graph.provenance
    dtype = known.get("dtype") or _dtype_of_most_work(graph)
    if (scaling := known.get("float8", "no")) != "no":
        dtype = f"{dtype}, layers in float8 ({scaling})"
    shape = known.get("shape")
    return {
        "dtype": dtype,
        "optimizer": _optimizer(graph),
        "shape": "x".join(map(str, shape)) if isinstance(shape, list | tuple) else None,
        "source": known.get("source"),
    }


def _optimizer(graph: Graph) -> str | None:
    known = graph.provenance
    if known.get("train") is False:
        return "none"
    if isinstance(known.get("optimizer"), str):
        return str(known["optimizer"])
    phases = {PHASES[code] for code in np.unique(graph.phase).tolist()}
    return "none" if "forward" in phases and "optimizer" not in phases else None


def _dtype_of_most_work(graph: Graph) -> str | None:
    """Return the type of the first tensor of floats of ops, of most flops, or else bytes."""
    work: dict[str, tuple[int, int]] = {}
    for op, count in zip(graph.ops, graph.count().tolist(), strict=True):
        try:
            values, _ = decode_arguments(op.arguments)
        except InputError:
            continue
        tensors = [value for value in values if isinstance(value, TensorArgument)]
        dtype = next((tensor.dtype for tensor in tensors if "float" in tensor.dtype), None)
        if dtype is not None:
            flops, moved = work.get(dtype, (0, 0))
            moved += count * (op.bytes_read + op.bytes_written)
            work[dtype] = flops + count * op.flops, moved
    return max(work, key=lambda dtype: work[dtype], default=None)


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
    words: tuple[str, ...], codes: Codes, flops: Ints, moved: Ints
) -> dict[str, dict[str, int]]:
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


def fingerprint(graph: Graph) -> str:
    """Return 32 hexadecimal digits for the ops of a graph, their order and dependencies.

    Which ranks communicate counts. Ids, names, durations, storages and provenance do not, nor how
    the distinct ops are numbered.
    """
    ops, op = numbered([_key(op) for op in graph.ops], graph.op)
    groups, group = numbered(graph.groups, graph.group)
    digest = hashlib.blake2b(digest_size=16)
    digest.update(json.dumps([ops, groups], separators=(",", ":")).encode())
    for column in (op, group, graph.offsets, graph.dependencies):
        digest.update(column.astype("<i8").tobytes())
    return digest.hexdigest()


def _key(op: Op) -> tuple[str, ...] | tuple[str, int, int, int]:
    work = (op.name, op.flops, op.bytes_read, op.bytes_written)
    return (op.name, op.arguments) if op.arguments else work


def memory_curve(graph: Graph) -> Ints:
    """Return the bytes that are held while each of the n nodes runs.

    A storage is held from the start of the node that allocates it to the end of the last one that
    uses it; resident memory, and that from before, is added.
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


def longest_chain(graph: Graph) -> int:
    """Return the number of nodes on the longest path of dependencies."""
    offsets, dependencies = graph.offsets.tolist(), graph.dependencies.tolist()
    depth = [0] * len(graph)
    for row in range(len(graph)):
        waits = dependencies[offsets[row] : offsets[row + 1]]
        depth[row] = 1 + max((depth[before] for before in waits), default=0)
    return max(depth, default=0)
