"""A Chakra execution trace as plain data, and the files that it may be in.

JSON is in one of three forms, keys told apart without capitals and underscores:

    {"workload_graph": [{"Id": 0, "Name": "...", "NodeType": 4, ...}, ...], ...}   as we write it
    {"schema": "1.0.2-chakra.0.0.4", "nodes": [{"id": 2, "name": "...", ...}, ...], ...}
    {"version": "0.0.4", ...} {"id": "0", "name": "...", "type": "COMP_NODE", ...} ...

The third is the .et file, message by message, as protobuf writes JSON. An .et file has one message
for the whole, then one for every node, each after its length. The messages are described at run
time: field names, numbers and types of MLCommons Chakra, schema 0.0.4; what later versions add is
skipped by the parser.
"""

import ast
import io
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paracosm.data_files import parse_json_documents
from paracosm.errors import InputError
from paracosm.files import replacing
from paracosm.graphs.graph import BYTES, TensorArgument, encode_arguments
from paracosm.graphs.protobuf import SCALARS, message_classes
from paracosm.units import parse_whole

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
    """The inputs or outputs of a node: nested lists of shapes, and of types by name."""

    shapes: Any = ()
    types: Any = ()
    values: Any = ()


@dataclass(frozen=True, slots=True)
class TraceNode:
    """One node of a trace.

    The type is an index into `NODE_TYPES` or more, None where the file has none; start and duration
    are microseconds, 0 where they are not known.
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
    """A trace: its version, its own attributes, its nodes in the order of the file."""

    version: str
    attributes: dict[str, Any]
    nodes: list[TraceNode]


def parsed(text: str) -> Any:
    """Return the lists that a field of `Tensors` has in files; none if the text is damaged."""
    try:
        return ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return []


_DTYPES = {
    "double": "float64",
    "float": "float32",
    "c10::Half": "float16",
    "c10::BFloat16": "bfloat16",
    "long int": "int64",
    "long": "int64",
    "int": "int32",
    "short": "int16",
    "signed char": "int8",
    "unsigned char": "uint8",
    "bool": "bool",
}
"""Our names for PyTorch's of C++ types."""

_TENSOR = re.compile(r"Tensor\((.+)\)")


def arguments_of(tensors: Tensors) -> str:
    """Return the arguments, as far as the trace has them; "" if it has none.

    They are all positional, and non-tensors are as in the trace.
    """
    try:
        values = tensors.values or [None] * len(tensors.types)
        parts = zip(tensors.types, tensors.shapes, values, strict=True)
        arguments = [_argument(*part) for part in parts]
    except (TypeError, ValueError):
        return ""
    return encode_arguments(arguments, {}) if arguments else ""


def bytes_of(tensors: Tensors) -> int:
    """Return the bytes of all tensors; 0 if the trace has none."""
    try:
        parts = zip(tensors.types, tensors.shapes, strict=True)
        return sum(_bytes(_argument(kind, shape, None)) for kind, shape in parts)
    except (TypeError, ValueError):
        return 0


def _argument(kind: str, shape: Any, value: Any) -> Any:
    if match := _TENSOR.fullmatch(kind):
        return TensorArgument(tuple(int(size) for size in shape), _DTYPES.get(match[1], match[1]))
    if kind.startswith("GenericList[") and "Tensor(" in kind:
        inner = _split(kind.removeprefix("GenericList[").removesuffix("]"))
        if len(inner) == 1:  # one type stands for all
            inner *= len(shape)
        return [_argument(*part, None) for part in zip(inner, shape, strict=True)]
    return None if kind == "Device" or value == "<None>" else value


def _split(kinds: str) -> list[str]:
    """Return the types between commas outside of brackets."""
    parts, depth = [""], 0
    for letter in kinds:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _bytes(argument: Any) -> int:
    if isinstance(argument, TensorArgument):
        known = argument.dtype in _DTYPES.values()
        return math.prod(argument.shape) * BYTES[argument.dtype] if known else 0
    return sum(map(_bytes, argument)) if isinstance(argument, list) else 0


def read_json(data: bytes, where: str) -> Trace:
    whole, nodes = _parts(data, where)
    attributes = {key: value for key, value in whole.items() if key not in ("attr", "version")}
    version = str(whole.get("version", whole.get("schema", "")))
    return Trace(
        version,
        attributes | _listed(whole.get("attr", [])),
        [_json_node(node, position, where) for position, node in enumerate(nodes)],
    )


def write_json(trace: Trace, path: str | Path) -> None:
    """Write a trace as JSON, one line for every node, atomically."""
    with replacing(path) as unfinished, unfinished.open("w", encoding="utf-8") as sink:
        head = {"version": trace.version, **trace.attributes}
        sink.write(json.dumps(head)[:-1] + ', "workload_graph": [')
        for position, node in enumerate(trace.nodes):
            sink.write(",\n" if position else "\n")
            sink.write(json.dumps(_written(node)))
        sink.write("\n]}\n")


def _written(node: TraceNode) -> dict[str, Any]:
    written: dict[str, Any] = {
        "Id": node.id,
        "Name": node.name,
        "NodeType": node.type,
        "ctrlDeps": list(node.ctrl_deps),
        "data_deps": list(node.data_deps),
        "runtime": round(node.duration),
    }
    if node.inputs.shapes:
        written["inputs"] = {"shapes": node.inputs.shapes, "types": node.inputs.types}
    return written | node.attributes


def _parts(data: bytes, where: str) -> tuple[dict[str, Any], list[Any]]:
    documents = _documents(data, where)
    whole = documents[0]
    for key in ("workload_graph", "nodes"):
        if isinstance(whole.get(key), list):
            return {name: value for name, value in whole.items() if name != key}, whole[key]
    if len(documents) == 1:
        raise InputError(
            f'{where}: JSON, but no Chakra trace: it has neither "workload_graph" nor "nodes"'
        )
    return whole, documents[1:]


def _documents(data: bytes, where: str) -> list[dict[str, Any]]:
    try:
        documents = parse_json_documents(data.decode(), where)
    except UnicodeDecodeError:
        raise InputError(f"{where}: no Chakra trace: neither JSON nor .et") from None
    if not documents:
        raise InputError(f"{where}: the file is empty")
    if not all(isinstance(document, dict) for document in documents):
        raise InputError(f"{where}: JSON, but no Chakra trace: that is an object")
    return documents


_KEYS = {
    **{name: name for name in ("id", "name", "type", "inputs", "outputs", "attr")},
    "nodetype": "type",
    "datadeps": "data_deps",
    "ctrldeps": "ctrl_deps",
    "attrs": "attr",
    "starttimemicros": "start",
    "runtime": "duration",
    "durationmicros": "duration",
}


def _json_node(mapping: Any, position: int, where: str) -> TraceNode:
    if not isinstance(mapping, dict):
        raise InputError(f"{where}: node {position} of the file must be a JSON object")
    known, attributes = {}, {}
    for key, value in mapping.items():
        if (field := _KEYS.get(key.lower().replace("_", ""))) is not None:
            known[field] = value
        else:
            attributes[key] = value
    if "id" not in known:
        raise InputError(f'{where}: node {position} of the file has no "id"')
    try:
        if isinstance(known.get("ctrl_deps"), int):
            raise ValueError(
                "its ctrl_deps is one caller: an execution trace of PyTorch, not converted to "
                "Chakra: --format pytorch reads it"
            )
        return TraceNode(
            id=_whole(known["id"], "id"),
            name=str(known.get("name", "")),
            type=_json_type(known.get("type")),
            data_deps=_ids(known.get("data_deps", []), "data_deps"),
            ctrl_deps=_ids(known.get("ctrl_deps", []), "ctrl_deps"),
            start=float(known.get("start", 0)),
            duration=float(known.get("duration", 0)),
            inputs=_json_tensors(known.get("inputs")),
            outputs=_json_tensors(known.get("outputs")),
            attributes=attributes | _listed(known.get("attr", [])),
        )
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise InputError(f"{where}: node {known['id']}: {error}") from None


def _whole(value: Any, key: str) -> int:
    """Return a whole number; protobuf writes integers of 64 bits as strings."""
    number = parse_whole(value, 2**64 - 1) if isinstance(value, str) else value
    if type(number) is not int:
        raise ValueError(f"{key}: {value!r:.40} is no whole number")
    return number


def _ids(values: Any, key: str) -> tuple[int, ...]:
    if not isinstance(values, list):
        raise ValueError(f"{key}: {values!r:.40} is no list of nodes")
    return tuple(_whole(value, key) for value in values)


def _json_type(value: Any) -> int | None:
    if isinstance(value, str) and not value.isdecimal():
        if value not in NODE_TYPES:
            raise ValueError(f"unknown type {value}: choose from {', '.join(NODE_TYPES)}")
        return NODE_TYPES.index(value)
    return None if value is None else _whole(value, "type")


def _json_tensors(mapping: Any) -> Tensors:
    if not isinstance(mapping, Mapping):
        return Tensors()
    shapes, types, values = (
        parsed(value) if isinstance(value, str) else value
        for value in (mapping.get(key, []) for key in ("shapes", "types", "values"))
    )
    return Tensors(shapes, types, values)


def _listed(entries: list[Mapping[str, Any]]) -> dict[str, Any]:
    attributes = {}
    for attribute in entries:
        for key, value in attribute.items():
            if key.lower().endswith(("val", "value", "list")):
                attributes[str(attribute["name"])] = _json_value(key.lower(), value)
    return attributes


def _json_value(key: str, value: Any) -> Any:
    """Return a value; protobuf writes integers of 64 bits as strings."""
    if isinstance(value, Mapping):
        return [_json_value(key, item) for item in value.get("values", [])]
    return _signed(value, key) if isinstance(value, str) and "int64" in key else value


def _signed(text: str, key: str) -> int:
    number = _whole(text.removeprefix("-"), key)
    return -number if text.startswith("-") else number


def read_protobuf(data: bytes, where: str) -> Trace:
    metadata_class, node_class = message("GlobalMetadata"), message("Node")
    from google.protobuf.message import DecodeError
    from google.protobuf.proto import parse_length_prefixed

    source = io.BytesIO(data)
    nodes: list[TraceNode] = []
    try:
        metadata = parse_length_prefixed(metadata_class, source)
        while (node := parse_length_prefixed(node_class, source)) is not None:
            nodes.append(_read_node(node))
    except (DecodeError, ValueError, OverflowError, IndexError):
        cut_off = f"after {len(nodes)} nodes the file is cut off or damaged"
        problem = cut_off if nodes else "no Chakra trace (.et, schema 0.0.4)"
        raise InputError(f"{where}: {problem}") from None
    if metadata is None:
        raise InputError(f"{where}: the file is empty")
    return Trace(metadata.version, _read_attributes(metadata.attr), nodes)


def write_protobuf(trace: Trace, path: str | Path) -> None:
    """Write a trace as an .et file, atomically."""
    metadata_class, node_class = message("GlobalMetadata"), message("Node")
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
    with replacing(path) as unfinished:
        unfinished.write_bytes(sink.getbuffer())


def _read_node(node: Any) -> TraceNode:
    return TraceNode(
        id=node.id,
        name=node.name,
        type=node.type,
        data_deps=tuple(node.data_deps),
        ctrl_deps=tuple(node.ctrl_deps),
        start=node.start_time_micros,
        duration=node.duration_micros,
        inputs=_read_tensors(node.inputs),
        outputs=_read_tensors(node.outputs),
        attributes=_read_attributes(node.attr),
    )


def _read_tensors(found: Any) -> Tensors:
    return Tensors(parsed(found.shapes), parsed(found.types), parsed(found.values))


def _read_attributes(found: Any) -> dict[str, Any]:
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


_LISTS = "\n".join(f"{kind.capitalize()}List = 1 values {kind}*" for kind in SCALARS)
_VALUES = ", ".join(
    f"{3 + 2 * index} value.{kind}_val {kind}, "
    f"{4 + 2 * index} value.{kind}_list {kind.capitalize()}List"
    for index, kind in enumerate(SCALARS)
)
# The type of a node is an enumeration in the format: the same bytes, and later numbers stay.
DESCRIPTION = f"""
{_LISTS}
AttributeProto = 1 name string, 2 doc_string string, {_VALUES}
IOInfo = 1 values string, 2 shapes string, 3 types string
GlobalMetadata = 1 version string, 2 attr AttributeProto*
Node = 1 id uint64, 2 name string, 3 type int32, 4 ctrl_deps uint64*, 5 data_deps uint64*,
    6 start_time_micros uint64, 7 duration_micros uint64, 8 inputs IOInfo, 9 outputs IOInfo,
    10 attr AttributeProto*
"""


def message(name: str) -> Any:
    purpose = "reading and writing Chakra's .et files"
    return message_classes("ChakraProtoMsg", DESCRIPTION, purpose)[name]
