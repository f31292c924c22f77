"""Chakra traces as JSON, in the forms that are about.

    {"workload_graph": [{"Id": 0, "Name": "...", "NodeType": 4, ...}, ...], ...}   as we write it
    {"schema": "1.0.2-chakra.0.0.4", "nodes": [{"id": 2, "name": "...", ...}, ...], ...}
    {"version": "0.0.4", ...} {"id": "0", "name": "...", "type": "COMP_NODE", ...} ...

The third is the .et file, message by message, as protobuf writes JSON. Keys are told apart without
capitals and underscores. Where ctrl_deps is the one caller of a call, PyTorch's observer wrote the
file: no Chakra trace yet (see `graphs.importers.pytorch`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paracosm.errors import InputError
from paracosm.files import replacing
from paracosm.graphs.chakra.trace import NODE_TYPES, Tensors, Trace, TraceNode, literal

__all__ = ["read_json", "write_json"]


def read_json(data: bytes, where: str) -> Trace:
    """Return the trace that the bytes of a JSON file are.

    Raises:
        InputError: they are not JSON, or no trace; with the key that is missing or wrong.
    """
    whole, nodes = _parts(data, where)
    attributes = {key: value for key, value in whole.items() if key not in ("attr", "version")}
    version = str(whole.get("version", whole.get("schema", "")))
    return Trace(
        version,
        attributes | _listed(whole.get("attr", [])),
        [_node(node, position, where) for position, node in enumerate(nodes)],
    )


def write_json(trace: Trace, path: str | Path) -> None:
    """Write a trace as JSON, one line for every node; the file appears when it is complete.

    Raises:
        InputError: the file cannot be written.
    """
    with replacing(path) as beside, beside.open("w", encoding="utf-8") as sink:
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
    """Return what is said of the whole, and the nodes."""
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
    """Return the JSON objects that follow each other."""
    try:
        text = data.decode()
        decoder, documents, at = json.JSONDecoder(), [], 0
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            document, at = decoder.raw_decode(text, at)
            documents.append(document)
    except UnicodeDecodeError:
        raise InputError(f"{where}: no Chakra trace: neither JSON nor .et") from None
    except ValueError as error:
        raise InputError(f"{where}: JSON that is cut off or damaged: {error}") from None
    if not documents:
        raise InputError(f"{where}: the file is empty")
    if not all(isinstance(document, dict) for document in documents):
        raise InputError(f"{where}: JSON, but no Chakra trace: that is an object")
    return documents


_KEYS = {
    "id": "id",
    "name": "name",
    "type": "type",
    "nodetype": "type",
    "datadeps": "data_deps",
    "ctrldeps": "ctrl_deps",
    "starttimemicros": "start",
    "runtime": "duration",
    "durationmicros": "duration",
    "inputs": "inputs",
    "outputs": "outputs",
    "attr": "attr",
    "attrs": "attr",
}


def _node(found: Any, position: int, where: str) -> TraceNode:
    if not isinstance(found, dict):
        raise InputError(f"{where}: node {position} of the file is no JSON object")
    known, attributes = {}, {}
    for key, value in found.items():
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
            id=int(known["id"]),
            name=str(known.get("name", "")),
            type=_type(known.get("type")),
            data_deps=tuple(int(each) for each in known.get("data_deps", [])),
            ctrl_deps=tuple(int(each) for each in known.get("ctrl_deps", [])),
            start=float(known.get("start", 0)),
            duration=float(known.get("duration", 0)),
            inputs=_tensors(known.get("inputs")),
            outputs=_tensors(known.get("outputs")),
            attributes=attributes | _listed(known.get("attr", [])),
        )
    except (TypeError, ValueError, AttributeError, KeyError) as error:
        raise InputError(f"{where}: node {known['id']}: {error}") from None


def _type(found: Any) -> int | None:
    if isinstance(found, str) and not found.isdecimal():
        if found not in NODE_TYPES:
            raise ValueError(f"unknown type {found}: choose from {', '.join(NODE_TYPES)}")
        return NODE_TYPES.index(found)
    return None if found is None else int(found)


def _tensors(found: Any) -> Tensors:
    if not isinstance(found, Mapping):
        return Tensors()
    shapes, types, values = (
        literal(value) if isinstance(value, str) else value
        for value in (found.get(key, []) for key in ("shapes", "types", "values"))
    )
    return Tensors(shapes, types, values)


def _listed(found: list[Mapping[str, Any]]) -> dict[str, Any]:
    """Return attributes that are written as a list of names and values."""
    attributes = {}
    for each in found:
        for key, value in each.items():
            if key.lower().endswith(("val", "value", "list")):
                attributes[str(each["name"])] = _value(key.lower(), value)
    return attributes


def _value(key: str, value: Any) -> Any:
    """Return a value; protobuf writes integers of 64 bits as strings."""
    if isinstance(value, Mapping):
        return [_value(key, each) for each in value.get("values", [])]
    return int(value) if isinstance(value, str) and "int64" in key else value
