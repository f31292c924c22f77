"""PyTorch execution traces as plain data, whichever version of the schema they have.

    1.0.1          {"name", "id", "rf_id", "parent", "inputs": [...], "input_shapes": [...], ...}
    1.0.2-chakra.0.0.4 and later
                   {"id", "name", "ctrl_deps", "inputs": {"values", "shapes", "types"}, "attrs"}

A tensor is [tensor id, storage id, offset, elements, bytes of an element, device].
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from paracosm.errors import InputError
from paracosm.graphs.chakra.trace import Tensors

__all__ = ["ObservedCall", "ObservedTrace", "TensorUse", "parse_trace"]


@dataclass(frozen=True, slots=True)
class TensorUse:
    """A tensor among the arguments of a call.

    Attributes:
        storage: id of the memory that it lies in.
        size: bytes of the tensor.
    """

    storage: int
    size: int


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """A call as the observer wrote it down.

    Attributes:
        id: ascending in the order in which calls begin.
        parent: id of the call that it stands in.
        record: its record function id, by which the profiler knows it; -1.
        sequence: the number that a forward op and its gradient share; -1.
        schema: of an op, "aten::mm(Tensor self, Tensor mat2) -> Tensor".
        inputs, outputs: values, shapes and types as in the file.
        read, made: tensors in them.
        attributes: all others.
    """

    id: int
    name: str
    parent: int
    record: int
    sequence: int
    schema: str
    inputs: Tensors
    outputs: Tensors
    read: tuple[TensorUse, ...]
    made: tuple[TensorUse, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ObservedTrace:
    """A trace: the version of its schema, and its calls by id, ascending."""

    schema: str
    calls: Mapping[int, ObservedCall]


def parse_trace(data: bytes, where: str) -> ObservedTrace:
    """Return the trace that the bytes of a JSON file are.

    Raises:
        InputError: no JSON, no trace, ids that repeat, a node that lacks a field, with the field.
    """
    try:
        found = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{where}: JSON that is cut off or damaged: {error}") from None
    if not isinstance(found, dict) or not isinstance(found.get("nodes"), list):
        raise InputError(f'{where}: no execution trace of PyTorch: it lacks "nodes"')
    calls: dict[int, ObservedCall] = {}
    for position, node in enumerate(found["nodes"]):
        call = _call(node, position, where)
        if call.id in calls:
            raise InputError(f"{where}: two nodes have the id {call.id}: {calls[call.id].name}, "
                             f"{call.name}")  # fmt: skip
        calls[call.id] = call
    return ObservedTrace(str(found.get("schema", "")), dict(sorted(calls.items())))


def _call(node: Any, position: int, where: str) -> ObservedCall:
    if not isinstance(node, dict):
        raise InputError(f"{where}: node {position} of the file is no mapping")
    attributes = _attributes(node)
    nested = isinstance(node.get("inputs"), dict)
    parent = node.get("ctrl_deps") if "ctrl_deps" in node else node.get("parent")
    for key, value in (("id", node.get("id")), ("ctrl_deps or parent", parent)):
        if type(value) is not int or not 0 <= value < 2**63:
            raise InputError(f'{where}: node {position} of the file lacks "{key}": {value!r:.40}')
    if not isinstance(node.get("name"), str):
        raise InputError(f'{where}: node {node["id"]} lacks "name"')
    inputs, outputs = (_tensors(node, what, nested) for what in ("input", "output"))
    return ObservedCall(
        id=node["id"],
        name=node["name"],
        parent=parent if type(parent) is int else 0,
        record=_integer(attributes.get("rf_id")),
        sequence=_integer(attributes.get("seq_id")),
        schema=str(attributes.get("op_schema", "")),
        inputs=inputs,
        outputs=outputs,
        read=tuple(_uses(inputs.values)),
        made=tuple(_uses(outputs.values)),
        attributes=attributes,
    )


def _attributes(node: dict[str, Any]) -> dict[str, Any]:
    """Return what stands in "attrs", or in older schemas in the node itself."""
    found = {key: value for key, value in node.items() if key not in ("inputs", "outputs", "attrs")}
    listed = node.get("attrs")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(each.get("name"), str):
            found[each["name"]] = each.get("value")
    return found


def _tensors(node: dict[str, Any], what: str, nested: bool) -> Tensors:
    if nested:
        part = node.get(f"{what}s")
        part = part if isinstance(part, dict) else {}
        found = [part.get(key) for key in ("shapes", "types", "values")]
    else:
        found = [node.get(f"{what}_shapes"), node.get(f"{what}_types"), node.get(f"{what}s")]
    return Tensors(*(value if isinstance(value, list) else [] for value in found))


def _integer(value: Any) -> int:
    return value if type(value) is int else -1


def _uses(value: Any, depth: int = 0) -> Iterator[TensorUse]:
    """Yield the tensors in nested lists of values; undefined ones have no storage."""
    if not isinstance(value, list) or depth > 8:
        return
    whole = len(value) >= 6 and all(type(each) is int for each in value[:5])
    if whole and isinstance(value[5], str):
        size = value[3] * value[4]
        if value[1] > 0 and 0 <= size < 2**50:
            yield TensorUse(value[1], size)
        return
    for each in value:
        yield from _uses(each, depth + 1)
