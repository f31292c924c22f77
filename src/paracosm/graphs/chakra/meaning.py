"""What the nodes of others' traces do, and what they keep busy.

COMP nodes are compute (copies memory), MEM nodes memory, COMM nodes communication, all others host.
In a trace that has ops of the device (`is_cpu_op` false), those of the CPU only dispatch them: they
are host.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from paracosm.graphs.chakra.tensors import arguments_of, bytes_of
from paracosm.graphs.chakra.trace import COLLECTIVES, NODE_TYPES, TraceNode
from paracosm.graphs.op import Op

__all__ = ["ends_of", "op_of", "resources_of"]

_SCHEMA = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?\(")
_RESOURCES = {"COMP": "compute", "MEM": "memory", "COMM": "communication"}


def resources_of(nodes: Sequence[TraceNode]) -> dict[int, str]:
    """Return what each node, by its id, keeps busy."""
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
    if _type(node) not in ("COMM_SEND_NODE", "COMM_RECV_NODE"):
        return ()
    ends = [node.attributes.get(key) for key in ("comm_src", "comm_dst")]
    ranks = tuple(end for end in ends if isinstance(end, int))
    return ranks if len(ranks) == 2 else ()


def _resource(node: TraceNode, has_device: bool) -> str:
    if has_device and node.attributes.get("is_cpu_op"):
        return "host"
    kind = _type(node).split("_")[0]
    if kind == "COMP" and node.name.startswith("Memcpy"):
        return "memory"
    return _RESOURCES.get(kind, "host")


def _type(node: TraceNode) -> str:
    known = node.type is not None and 0 <= node.type < len(NODE_TYPES)
    return NODE_TYPES[node.type or 0] if known else "INVALID_NODE"


def _name(node: TraceNode) -> str:
    """Return "aten.addmm.default" from a recorded schema, a collective, or the node's name."""
    if found := _SCHEMA.match(str(node.attributes.get("op_schema", ""))):
        return f"{found[1]}.{found[2]}.{found[3] or 'default'}"
    number = node.attributes.get("comm_type", -1)
    if _type(node) == "COMM_COLL_NODE" and number in range(len(COLLECTIVES)):
        return COLLECTIVES[number]
    return node.name or _type(node).lower()


def _integer(found: Mapping[str, Any], key: str) -> int:
    value = found.get(key, 0)
    return value if isinstance(value, int) and value > 0 else 0
