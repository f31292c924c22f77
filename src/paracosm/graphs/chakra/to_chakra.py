"""A graph as a Chakra trace.

What Chakra has a place for goes there, so that other programs can read it: type, dependencies,
whole microseconds, `num_ops`, `tensor_size`, `comm_type`, `comm_size`, `is_cpu_op`. All the rest
stands in attributes that begin with `paracosm_`, of the nodes and of the whole.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from paracosm.errors import InputError
from paracosm.graphs.chakra.trace import (
    COLLECTIVES,
    NODE_TYPES,
    Tensors,
    Trace,
    TraceNode,
    write_json,
    write_protobuf,
)
from paracosm.graphs.file import allocations, encode_metadata
from paracosm.graphs.graph import PHASES, RESOURCES, Graph, Op, TensorArgument, decode_arguments

VERSION = 1
"""Of our attributes; raised when a reader of the old ones would misread the new ones."""

_SCHEMA = "0.0.4"


def write_chakra(graph: Graph, path: str | Path) -> None:
    """Write `graph` as a Chakra trace: .et (protobuf) or .json, by the name.

    Raises:
        InputError: another name; the file cannot be written.
        MissingExtraError: .et without protobuf.
    """
    writers = {".et": write_protobuf, ".json": write_json}
    suffix = Path(path).suffix.lower()
    if suffix not in writers:
        raise InputError(f"{path}: a Chakra trace is named .et or .json")
    writers[suffix](trace_of(graph), path)


def trace_of(graph: Graph) -> Trace:
    """Return the trace, from which `graph_of` makes the same graph again."""
    allocates, released_by, before = allocations(graph)
    ids, offsets = graph.id.tolist(), allocates.offsets.tolist()
    sizes, users = allocates.values.tolist(), released_by.values.tolist()
    arguments = {op.arguments: 0 for op in graph.ops}
    for number, text in enumerate(arguments):
        arguments[text] = number
    inputs = [_inputs(op) for op in graph.ops]
    nodes = [
        TraceNode(
            id=ids[row],
            name=graph.ops[op].name,
            type=_type(graph.ops[op], RESOURCES[graph.resource[row]]),
            data_deps=tuple(ids[each] for each in graph.predecessors(row).tolist()),
            duration=_microseconds(float(graph.duration[row])),
            inputs=inputs[op],
            attributes=_attributes(
                graph,
                row,
                arguments,
                sizes[offsets[row] : offsets[row + 1]],
                users[offsets[row] : offsets[row + 1]],
            ),
        )
        for row, op in enumerate(graph.op.tolist())
    ]
    whole = {
        "schema": _SCHEMA,
        "paracosm_graph": VERSION,
        "paracosm_arguments": list(arguments),
        **{
            f"paracosm_{key}": text
            for key, text in encode_metadata(graph.resident, before, graph.provenance).items()
        },
    }
    return Trace(_SCHEMA, whole, nodes)


def _attributes(
    graph: Graph, row: int, arguments: dict[str, int], allocates: list[int], released_by: list[int]
) -> dict[str, Any]:
    op, resource = graph.ops[graph.op[row]], RESOURCES[graph.resource[row]]
    duration, group = float(graph.duration[row]), int(graph.group[row])
    attributes: dict[str, Any] = {
        "is_cpu_op": resource == "host",
        "num_ops": op.flops,
        "tensor_size": op.bytes_read + op.bytes_written,
    }
    if resource == "communication":
        attributes["comm_size"] = op.bytes_read
        if (collective := _collective(op)) is not None:
            attributes["comm_type"] = collective
    if group >= 0:
        attributes["pg_name"] = str(group)
        attributes["paracosm_group"] = list(graph.groups[group])
    attributes |= {
        "paracosm_resource": resource,
        "paracosm_phase": PHASES[graph.phase[row]],
        "paracosm_name": graph.names[graph.name[row]],
        "paracosm_arguments": arguments[op.arguments],
        "paracosm_bytes_read": op.bytes_read,
        "paracosm_bytes_written": op.bytes_written,
    }
    if not math.isnan(duration):
        attributes["paracosm_duration"] = duration
    if allocates:
        attributes |= {"paracosm_allocates": allocates, "paracosm_released_by": released_by}
    return attributes


def _microseconds(duration: float) -> float:
    """Return what Chakra holds: 0 where nobody knows, and no more than fits."""
    return 0 if math.isnan(duration) else min(duration * 1e6, 2.0**63)


def _type(op: Op, resource: str) -> int:
    name = "COMP_NODE"
    if resource == "memory":
        name = "MEM_LOAD_NODE"
    elif resource == "communication":
        lower = op.name.lower()
        point = "SEND" if "send" in lower else "RECV" if "recv" in lower else "COLL"
        name = f"COMM_{point}_NODE"
    return NODE_TYPES.index(name)


def _collective(op: Op) -> int | None:
    """Return the number of the collective that the op's name holds, the longest that fits."""
    plain = op.name.lower().replace("_", "")
    fitting = [each for each in COLLECTIVES if each.replace("_", "") in plain]
    return COLLECTIVES.index(max(fitting, key=len)) if fitting else None


def _inputs(op: Op) -> Tensors:
    try:
        positional, named = decode_arguments(op.arguments)
    except InputError:  # recorded by others, in words of their own, or not at all
        return Tensors()
    tensors = [each for value in (*positional, *named.values()) for each in _tensors(value)]
    return Tensors(
        [list(tensor.shape) for tensor in tensors], [f"Tensor({t.dtype})" for t in tensors]
    )


def _tensors(value: Any) -> list[TensorArgument]:
    if isinstance(value, TensorArgument):
        return [value]
    return [each for part in value for each in _tensors(part)] if isinstance(value, list) else []
