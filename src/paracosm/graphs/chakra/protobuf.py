"""Chakra's .et files: one message for the whole, then one for every node, each after its length."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paracosm.errors import InputError
from paracosm.files import replacing
from paracosm.graphs.chakra.schema import GLOBAL_METADATA, NODE, message
from paracosm.graphs.chakra.trace import Tensors, Trace, TraceNode, literal

__all__ = ["read_protobuf", "write_protobuf"]


def read_protobuf(data: bytes, where: str) -> Trace:
    """Return the trace that the bytes of an .et file are.

    Raises:
        InputError: they are none, or not the whole of it.
        MissingExtraError: protobuf is not installed.
    """
    metadata_class, node_class = message(GLOBAL_METADATA), message(NODE)
    from google.protobuf.message import DecodeError
    from google.protobuf.proto import parse_length_prefixed

    source = io.BytesIO(data)
    nodes: list[TraceNode] = []
    try:
        metadata = parse_length_prefixed(metadata_class, source)
        while (node := parse_length_prefixed(node_class, source)) is not None:
            nodes.append(_node(node))
    except (DecodeError, ValueError, OverflowError, IndexError):
        what = f"after {len(nodes)} nodes the file is cut off or damaged"
        raise InputError(
            f"{where}: {what if nodes else 'no Chakra trace (.et, schema 0.0.4)'}"
        ) from None
    if metadata is None:
        raise InputError(f"{where}: the file is empty")
    return Trace(metadata.version, _attributes(metadata.attr), nodes)


def write_protobuf(trace: Trace, path: str | Path) -> None:
    """Write a trace as an .et file, which appears when it is complete.

    Raises:
        InputError: the file cannot be written.
        MissingExtraError: protobuf is not installed.
    """
    metadata_class, node_class = message(GLOBAL_METADATA), message(NODE)
    from google.protobuf.proto import serialize_length_prefixed

    sink = io.BytesIO()
    metadata = metadata_class(version=trace.version)
    _add_attributes(metadata.attr, trace.attributes)
    serialize_length_prefixed(metadata, sink)
    for each in trace.nodes:
        node = node_class(
            id=each.id,
            name=each.name,
            type=each.type or 0,
            ctrl_deps=each.ctrl_deps,
            data_deps=each.data_deps,
            start_time_micros=round(each.start),
            duration_micros=round(each.duration),
        )
        if each.inputs.shapes:
            node.inputs.shapes = repr(each.inputs.shapes)
            node.inputs.types = repr(each.inputs.types)
        _add_attributes(node.attr, each.attributes)
        serialize_length_prefixed(node, sink)
    with replacing(path) as beside:
        beside.write_bytes(sink.getbuffer())


def _node(node: Any) -> TraceNode:
    return TraceNode(
        id=node.id,
        name=node.name,
        type=node.type,
        data_deps=tuple(node.data_deps),
        ctrl_deps=tuple(node.ctrl_deps),
        start=node.start_time_micros,
        duration=node.duration_micros,
        inputs=_tensors(node.inputs),
        outputs=_tensors(node.outputs),
        attributes=_attributes(node.attr),
    )


def _tensors(found: Any) -> Tensors:
    return Tensors(literal(found.shapes), literal(found.types), literal(found.values))


def _attributes(found: Any) -> dict[str, Any]:
    attributes = {}
    for each in found:
        kind = each.WhichOneof("value")
        if kind is not None:
            value = getattr(each, kind)
            attributes[each.name] = list(value.values) if kind.endswith("_list") else value
    return attributes


def _add_attributes(target: Any, attributes: Mapping[str, Any]) -> None:
    for name, value in attributes.items():
        added = target.add(name=name)
        if isinstance(value, list):
            kind = "string" if value and isinstance(value[0], str) else "int64"
            getattr(added, f"{kind}_list").values.extend(value)
        else:
            kind = _UNSIGNED.get(name, _KINDS[type(value)])
            setattr(added, f"{kind}_val", value)


_KINDS = {bool: "bool", int: "int64", float: "double", str: "string"}
_UNSIGNED = {"tensor_size": "uint64"}
"""Attributes that readers of the format expect in another type."""
