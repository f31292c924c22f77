"""PyTorch execution traces as they were recorded: their calls, and the times of these.

    1.0.1          {"name", "id", "rf_id", "parent", "inputs": [...], "input_shapes": [...], ...}
    1.0.2-chakra.0.0.4 and later
                   {"id", "name", "ctrl_deps", "inputs": {"values", "shapes", "types"}, "attrs"}

Traces that `chakra_trace_link` has joined with the profiler's have more: a call may have its time
on the host in microseconds ("inclusive_dur"), and kernels ("cat") are nested in the calls that
launched them.

A tensor is [tensor id, storage id, offset, elements, bytes of an element, device].
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from paracosm.arrays import Codes
from paracosm.data_files import parse_json
from paracosm.errors import InputError
from paracosm.graphs.chakra.trace import Tensors
from paracosm.timeline.kineto.device import OpSpan


@dataclass(frozen=True, slots=True)
class TensorUse:
    """A tensor among the arguments of a call: its storage, and the bytes up to its end there."""

    storage: int
    size: int


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """A call as recorded by the observer; ids ascend in the order in which calls begin.

    `parent` is the enclosing call, `record` the profiler's id of it or -1, `sequence` the number
    that a forward op and its gradient share or -1; `read` and `made` are the tensors in `inputs`
    and `outputs`.
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
    """A trace: the version of its schema, and its calls by id, ascending.

    `linked` has the times of calls, where Chakra's `chakra_trace_link` has put the profiler's in.
    """

    schema: str
    calls: Mapping[int, ObservedCall]
    linked: Mapping[int, OpSpan]


def parse_trace(data: bytes, where: str) -> ObservedTrace:
    content = parse_json(data, where)
    if not isinstance(content, dict) or not isinstance(content.get("nodes"), list):
        raise InputError(f'{where}: no execution trace of PyTorch: it lacks "nodes"')
    calls: dict[int, ObservedCall] = {}
    device: list[ObservedCall] = []
    for position, node in enumerate(content["nodes"]):
        call = _call(node, position, where)
        if isinstance(call.attributes.get("cat"), str):
            device.append(call)
            continue
        if call.id in calls:
            raise InputError(f"{where}: two nodes have the id {call.id}: {calls[call.id].name}, "
                             f"{call.name}")  # fmt: skip
        calls[call.id] = call
    linked = _linked(calls, device, where)
    return ObservedTrace(str(content.get("schema", "")), dict(sorted(calls.items())), linked)


def _linked(
    calls: Mapping[int, ObservedCall], device: Sequence[ObservedCall], where: str
) -> dict[int, OpSpan]:
    """Return the times of calls: of all that they launched, else their own on the host."""

    def seconds(call: ObservedCall) -> float:
        duration = call.attributes.get("inclusive_dur")
        if not isinstance(duration, int | float) or not 0 <= duration < math.inf:
            raise InputError(
                f'{where}: node {call.id}: "inclusive_dur" is {duration!r:.40}, no time'
            )
        return duration / 1e6

    launched: dict[int, float] = {}
    for kernel in device:
        at, met = kernel.parent, {kernel.id}
        while at in calls and at not in met:
            met.add(at)
            launched[at] = launched.get(at, 0.0) + seconds(kernel)
            at = calls[at].parent
    return {
        call.id: OpSpan(
            record=call.record,
            thread=_integer(call.attributes.get("tid")),
            name=call.name,
            seconds=launched[call.id] if call.id in launched else seconds(call),
            on_device=call.id in launched,
        )
        for call in calls.values()
        if call.id in launched or "inclusive_dur" in call.attributes
    }


def _call(node: Any, position: int, where: str) -> ObservedCall:
    if not isinstance(node, dict):
        raise InputError(f"{where}: node {position} of the file must be a mapping")
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
        read=tuple(uses_in(inputs.values)),
        made=tuple(uses_in(outputs.values)),
        attributes=attributes,
    )


def _attributes(node: dict[str, Any]) -> dict[str, Any]:
    """Return the content of "attrs", or in older schemas of the node itself."""
    attributes = {
        key: value for key, value in node.items() if key not in ("inputs", "outputs", "attrs")
    }
    listed = node.get("attrs")
    for each in listed if isinstance(listed, list) else ():
        if isinstance(each, dict) and isinstance(each.get("name"), str):
            attributes[each["name"]] = each.get("value")
    return attributes


def _tensors(node: dict[str, Any], what: str, nested: bool) -> Tensors:
    if nested:
        part = node.get(f"{what}s")
        part = part if isinstance(part, dict) else {}
        columns = [part.get(key) for key in ("shapes", "types", "values")]
    else:
        columns = [node.get(f"{what}_shapes"), node.get(f"{what}_types"), node.get(f"{what}s")]
    return Tensors(*(value if isinstance(value, list) else [] for value in columns))


def _integer(value: Any) -> int:
    return value if type(value) is int else -1


def uses_in(value: Any, depth: int = 0) -> Iterator[TensorUse]:
    if not isinstance(value, list) or depth > 8:
        return
    whole = len(value) >= 6 and all(type(item) is int for item in value[:5])
    if whole and isinstance(value[5], str):
        size = (max(value[2], 0) + value[3]) * value[4]  # of its storage, as far as it reaches
        if value[1] > 0 and 0 <= size < 2**50:
            yield TensorUse(value[1], size)
        return
    for item in value:
        yield from uses_in(item, depth + 1)


_ANCHOR = 2000
"""Calls of a thread by which its place in the profiler's trace is found."""

_ALIKE = 0.8
"""Share of the names that must be the same there."""


def joined(
    calls: Mapping[int, ObservedCall], times: Sequence[OpSpan], where: str
) -> dict[int, OpSpan]:
    """Return the times of calls by their ids, as far as they can be matched.

    Both traces count record functions: the execution trace's "rf_id" is the profiler's "Record
    function id", since PyTorch 2.2. Traces without it are aligned: the calls of each thread are
    placed so that as many names as possible agree in order.
    """
    wanted = sorted((c for c in calls.values() if c.record > 0), key=lambda c: c.record)
    by_record = {time.record: time for time in times if time.record > 0}
    if by_record:
        spans = {
            call.id: by_record[call.record]
            for call in wanted
            if call.record in by_record and by_record[call.record].name == call.name
        }
    else:
        spans = _aligned(calls.values(), times)
    if not spans:
        raise InputError(
            f"{where}: the profiler's trace has none of its ops: it is of another run, or of "
            "another rank"
        )
    return spans


def _aligned(calls: Iterable[ObservedCall], times: Sequence[OpSpan]) -> dict[int, OpSpan]:
    codes: dict[str, int] = {}
    threads: dict[object, list[ObservedCall]] = {}
    for call in calls:
        if call.record > 0:
            threads.setdefault(call.attributes.get("tid"), []).append(call)
    lanes: dict[int, list[OpSpan]] = {}
    for time in times:
        lanes.setdefault(time.thread, []).append(time)

    def coded(names: Iterable[str]) -> Codes:
        return np.array([codes.setdefault(name, len(codes)) for name in names], dtype=np.int32)

    seen = {lane: coded(time.name for time in ops) for lane, ops in lanes.items()}
    spans: dict[int, OpSpan] = {}
    for thread in threads.values():
        wanted = coded(call.name for call in thread)
        share, lane, offset = _found_in(wanted, seen)
        if share < _ALIKE:
            continue
        for call, time in zip(thread, lanes[lane][offset:], strict=False):
            if call.name == time.name:
                spans[call.id] = time
    return spans


def _found_in(wanted: Codes, seen: Mapping[int, Codes]) -> tuple[float, int, int]:
    anchor = wanted[:_ANCHOR]
    best = (0.0, 0, 0)
    for lane, names in seen.items():
        if len(names) < len(anchor):
            continue
        windows = np.lib.stride_tricks.sliding_window_view(names, len(anchor))
        same = np.array([np.count_nonzero(window == anchor) for window in windows])
        place = int(same.argmax())
        best = max(best, (float(same[place]) / len(anchor), lane, place), key=lambda each: each[0])
    return best
