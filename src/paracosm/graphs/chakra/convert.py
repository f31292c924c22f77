"""Chakra traces as graphs: those that `write_chakra` wrote, and those of other programs.

For others, data and control dependencies count alike. Durations are whole microseconds; 0 means
unknown. COMP nodes are compute (copies memory), MEM nodes memory, COMM nodes communication, all
others host. In a trace with ops of the device (`is_cpu_op` false), those of the CPU only dispatch
them: they are host.
"""

import math
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from paracosm.errors import InputError
from paracosm.files import read_bytes
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.chakra.trace import (
    COLLECTIVES,
    NODE_TYPES,
    Tensors,
    Trace,
    TraceNode,
    arguments_of,
    bytes_of,
    read_json,
    read_protobuf,
    write_json,
    write_protobuf,
)
from paracosm.graphs.check import in_issue_order, node_label
from paracosm.graphs.file import allocations, decode_metadata, encode_metadata
from paracosm.graphs.graph import PHASES, RESOURCES, Graph, Op, TensorArgument, decode_arguments


def read_chakra(path: str | Path, drop_missing: bool = False, data_only: bool = False) -> Graph:
    """Read one rank's Chakra trace, .et or JSON, either of them gzipped or not.

    A trace that `write_chakra` wrote gives back the original graph.

    Args:
        path: the file; .json is read as JSON, any other as .et.
        drop_missing: leave out dependencies on missing nodes, instead of refusing.
        data_only: leave out control dependencies.

    Raises:
        InputError: no trace, not the whole of it, or one that is not sound.
    """
    path, where = Path(path), str(path)
    data = read_bytes(path)
    name = path.name.lower().removesuffix(".gz")
    read = read_json if name.endswith(".json") else read_protobuf
    trace = read(data, where)
    if "paracosm_graph" in trace.attributes:
        return graph_of(trace, where)
    return graph_of_others(trace, where, drop_missing, data_only)


Value = TypeVar("Value")


def graph_of(trace: Trace, where: str) -> Graph:
    """Return the graph of a trace that `write_chakra` wrote, the same to the bit."""
    whole = trace.attributes
    version = whole["paracosm_graph"]
    if not isinstance(version, int) or version > VERSION:
        raise InputError(
            f"{where}: a trace with a graph of format {version}; this version reads up to "
            f"{VERSION}: upgrade paracosm, or export the graph again"
        )
    prefix = "paracosm_"
    texts = {
        key.removeprefix(prefix): text for key, text in whole.items() if key.startswith(prefix)
    }
    metadata = decode_metadata(texts, where)
    arguments = whole.get("paracosm_arguments")
    if not isinstance(arguments, list) or not all(
        isinstance(argument, str) for argument in arguments
    ):
        raise InputError(f'{where}: "paracosm_arguments" must be a list of texts')
    nodes = [_our_node(node, arguments, where) for node in trace.nodes]
    return build_graph(nodes, metadata.resident, metadata.provenance, where, metadata.before)


def _our_node(node: TraceNode, arguments: Sequence[str], where: str) -> Node:
    attributes = node.attributes
    try:
        op = Op(
            name=node.name,
            arguments=arguments[_typed(attributes, "paracosm_arguments", int)],
            flops=_typed(attributes, "num_ops", int),
            bytes_read=_typed(attributes, "paracosm_bytes_read", int),
            bytes_written=_typed(attributes, "paracosm_bytes_written", int),
        )
        allocates, released = (
            _integers(attributes, "allocates"),
            _integers(attributes, "released_by"),
        )
        return Node(
            id=node.id,
            op=op,
            name=_typed(attributes, "paracosm_name", str),
            phase=_typed(attributes, "paracosm_phase", str),
            resource=_typed(attributes, "paracosm_resource", str),
            dependencies=(*node.data_deps, *node.ctrl_deps),
            group=_integers(attributes, "group"),
            duration=float(attributes.get("paracosm_duration", math.nan)),
            allocates=tuple(zip(allocates, released, strict=True)),
        )
    except KeyError as error:
        raise InputError(f"{where}: node {node.id}: the attribute {error} is missing") from None
    except (IndexError, TypeError, ValueError) as error:
        raise InputError(f"{where}: node {node.id}: damaged attributes: {error}") from None


def _typed(attributes: Mapping[str, Any], key: str, kind: type[Value]) -> Value:
    value = attributes[key]
    if not isinstance(value, kind):
        raise TypeError(f"{key} is {value!r}")
    return value


def _integers(attributes: Mapping[str, Any], key: str) -> tuple[int, ...]:
    values = attributes.get(f"paracosm_{key}", [])
    if not all(isinstance(value, int) for value in values):
        raise TypeError(f"paracosm_{key} is {values!r}")
    return tuple(values)


def graph_of_others(
    trace: Trace, where: str, drop_missing: bool = False, data_only: bool = False
) -> Graph:
    """Return the graph of a trace that another program wrote.

    Ids that do not ascend in the order of issue (by dependencies, then start time, then id) are
    replaced by positions in it; provenance says so, and what was dropped.
    """
    nodes = trace.nodes
    if not nodes:
        raise InputError(f"{where}: a Chakra trace without nodes")
    _refuse_repeats(nodes, where)
    wanted, dropped = _dependencies(nodes, where, drop_missing, data_only)
    hint = "" if data_only else "; --data-only leaves out control dependencies"
    rows = {node.id: row for row, node in enumerate(nodes)}
    order = in_issue_order(
        [[rows[before] for before in wanted[node.id]] for node in nodes],
        [(node.start, node.id) for node in nodes],
        lambda row: node_label(nodes[row].id, nodes[row].name),
        where,
        hint,
    )
    issued = [nodes[row] for row in order]
    ids = [node.id for node in issued]
    renumbered = ids[-1] >= 2**63 or any(one > other for one, other in pairwise(ids))
    number = {old: row if renumbered else old for row, old in enumerate(ids)}
    resources = resources_of(nodes)
    provenance = {
        "source": "Chakra execution trace",
        "file": Path(where).name,
        "version": trace.version,
        "renumbered": renumbered,
        "dropped_dependencies": dropped,
        "control_dependencies": not data_only,
        "trace": {
            key: value
            for key, value in trace.attributes.items()
            if isinstance(value, str | int | float | bool)
        },
    }
    return build_graph(
        [
            _foreign_node(node, resources[node.id], wanted[node.id], number)
            for node in map(nodes.__getitem__, order)
        ],
        provenance=provenance,
        where=where,
    )


def _foreign_node(
    node: TraceNode, resource: str, dependencies: Sequence[int], number: dict[int, int]
) -> Node:
    op = op_of(node, resource)
    return Node(
        id=number[node.id],
        op=op,
        name="" if op.name == node.name else node.name,
        resource=resource,
        dependencies=tuple(number[before] for before in dependencies),
        group=ends_of(node),
        duration=node.duration / 1e6 if node.duration else math.nan,
    )


def _refuse_repeats(nodes: Sequence[TraceNode], where: str) -> None:
    met: dict[int, str] = {}
    for node in nodes:
        if node.id in met:
            raise InputError(
                f"{where}: two nodes have the id {node.id}: {met[node.id]}, {node.name}"
            )
        met[node.id] = node.name


def _dependencies(
    nodes: Sequence[TraceNode], where: str, drop_missing: bool, data_only: bool
) -> tuple[dict[int, list[int]], int]:
    there = {node.id for node in nodes}
    present: dict[int, list[int]] = {}
    missing: list[tuple[TraceNode, int]] = []
    for node in nodes:
        wanted = dict.fromkeys(node.data_deps if data_only else node.data_deps + node.ctrl_deps)
        missing += [(node, dependency) for dependency in wanted if dependency not in there]
        present[node.id] = [dependency for dependency in wanted if dependency in there]
    if missing and not drop_missing:
        node, each = missing[0]
        many = f"{len(missing)} dependencies are" if len(missing) > 1 else "1 dependency is"
        raise InputError(
            f"{where}: {many} on nodes that are not in the file, the first of node {node.id} "
            f"({node.name}) on {each}; --drop-missing leaves them out"
        )
    return present, len(missing)


_OP_SCHEMA = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?\(")
_RESOURCES = {"COMP": "compute", "MEM": "memory", "COMM": "communication"}


def resources_of(nodes: Sequence[TraceNode]) -> dict[int, str]:
    has_device = any(not node.attributes.get("is_cpu_op", True) for node in nodes)
    return {node.id: _resource(node, has_device) for node in nodes}


def op_of(node: TraceNode, resource: str) -> Op:
    """Return what a node does; on the host, no work."""
    arguments = arguments_of(node.inputs)
    if resource == "host":
        return Op(_name(node), arguments)
    read, written = bytes_of(node.inputs), bytes_of(node.outputs)
    if not read and not written:
        read = _integer(node.attributes, "comm_size") or _integer(node.attributes, "tensor_size")
    return Op(_name(node), arguments, _integer(node.attributes, "num_ops"), read, written)


def ends_of(node: TraceNode) -> tuple[int, ...]:
    """Return the sending and the receiving rank of a message; nothing for other nodes."""
    if _type_name(node) not in ("COMM_SEND_NODE", "COMM_RECV_NODE"):
        return ()
    ends = [node.attributes.get(key) for key in ("comm_src", "comm_dst")]
    ranks = tuple(end for end in ends if isinstance(end, int))
    return ranks if len(ranks) == 2 else ()


def _resource(node: TraceNode, has_device: bool) -> str:
    if has_device and node.attributes.get("is_cpu_op"):
        return "host"
    kind = _type_name(node).split("_")[0]
    if kind == "COMP" and node.name.startswith("Memcpy"):
        return "memory"
    return _RESOURCES.get(kind, "host")


def _type_name(node: TraceNode) -> str:
    known = node.type is not None and 0 <= node.type < len(NODE_TYPES)
    return NODE_TYPES[node.type or 0] if known else "INVALID_NODE"


def _name(node: TraceNode) -> str:
    """Return "aten.addmm.default" from a recorded schema, a collective, or the node's name."""
    if match := _OP_SCHEMA.match(str(node.attributes.get("op_schema", ""))):
        return f"{match[1]}.{match[2]}.{match[3] or 'default'}"
    number = node.attributes.get("comm_type", -1)
    if _type_name(node) == "COMM_COLL_NODE" and number in range(len(COLLECTIVES)):
        return COLLECTIVES[number]
    return node.name or _type_name(node).lower()


def _integer(attributes: Mapping[str, Any], key: str) -> int:
    value = attributes.get(key, 0)
    return value if isinstance(value, int) and value > 0 else 0


VERSION = 1
"""Of our attributes; raised when a reader of the old ones would misread the new ones."""

_SCHEMA = "0.0.4"
_UNITS = (
    "us: runtime, start_time_micros, duration_micros; s: paracosm_duration; bytes: comm_size, "
    "tensor_size, paracosm_bytes_read, paracosm_bytes_written, paracosm_allocates"
)
"""Written in every file, because names do not express it."""


def write_chakra(graph: Graph, path: str | Path) -> None:
    """Write `graph` as a Chakra trace: .et (protobuf) or .json, by the name.

    Raises:
        InputError: another name; the file cannot be written.
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
            data_deps=tuple(ids[predecessor] for predecessor in graph.predecessors(row).tolist()),
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
        "units": _UNITS,
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
    fitting = [collective for collective in COLLECTIVES if collective.replace("_", "") in plain]
    return COLLECTIVES.index(max(fitting, key=len)) if fitting else None


def _inputs(op: Op) -> Tensors:
    try:
        positional, named = decode_arguments(op.arguments)
    except InputError:  # recorded by others, in words of their own, or not at all
        return Tensors()
    tensors = [tensor for value in (*positional, *named.values()) for tensor in _tensors(value)]
    return Tensors(
        [list(tensor.shape) for tensor in tensors], [f"Tensor({t.dtype})" for t in tensors]
    )


def _tensors(value: Any) -> list[TensorArgument]:
    if isinstance(value, TensorArgument):
        return [value]
    return (
        [tensor for part in value for tensor in _tensors(part)] if isinstance(value, list) else []
    )
