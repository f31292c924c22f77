"""A Chakra trace that `trace_of` made, back to its graph."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from paracosm.errors import InputError
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.chakra.outward import VERSION
from paracosm.graphs.chakra.trace import Trace, TraceNode
from paracosm.graphs.graph import Graph
from paracosm.graphs.metadata import decode_metadata
from paracosm.graphs.op import Op

__all__ = ["graph_of", "is_ours"]

Value = TypeVar("Value")


def is_ours(trace: Trace) -> bool:
    """Whether the trace carries all that a graph has."""
    return "paracosm_graph" in trace.attributes


def graph_of(trace: Trace, where: str) -> Graph:
    """Return the graph of a trace that is ours, the same to the bit.

    Raises:
        InputError: a newer version, attributes that are missing or wrong, a graph that is not
            sound.
    """
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
    if not isinstance(arguments, list) or not all(isinstance(each, str) for each in arguments):
        raise InputError(f'{where}: "paracosm_arguments" is no list of texts')
    nodes = [_node(node, arguments, where) for node in trace.nodes]
    return build_graph(nodes, metadata.resident, metadata.provenance, where, metadata.before)


def _node(node: TraceNode, arguments: Sequence[str], where: str) -> Node:
    found = node.attributes
    try:
        op = Op(
            name=node.name,
            arguments=arguments[_typed(found, "paracosm_arguments", int)],
            flops=_typed(found, "num_ops", int),
            bytes_read=_typed(found, "paracosm_bytes_read", int),
            bytes_written=_typed(found, "paracosm_bytes_written", int),
        )
        allocates, released = _integers(found, "allocates"), _integers(found, "released_by")
        return Node(
            id=node.id,
            op=op,
            name=_typed(found, "paracosm_name", str),
            phase=_typed(found, "paracosm_phase", str),
            resource=_typed(found, "paracosm_resource", str),
            dependencies=(*node.data_deps, *node.ctrl_deps),
            group=_integers(found, "group"),
            duration=float(found.get("paracosm_duration", math.nan)),
            allocates=tuple(zip(allocates, released, strict=True)),
        )
    except KeyError as error:
        raise InputError(f"{where}: node {node.id}: the attribute {error} is missing") from None
    except (IndexError, TypeError, ValueError) as error:
        raise InputError(f"{where}: node {node.id}: damaged attributes: {error}") from None


def _typed(found: Mapping[str, Any], key: str, kind: type[Value]) -> Value:
    value = found[key]
    if not isinstance(value, kind):
        raise TypeError(f"{key} is {value!r}")
    return value


def _integers(found: Mapping[str, Any], key: str) -> tuple[int, ...]:
    values = found.get(f"paracosm_{key}", [])
    if not all(isinstance(value, int) for value in values):
        raise TypeError(f"paracosm_{key} is {values!r}")
    return tuple(values)
