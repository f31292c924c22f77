"""PyTorch execution traces as graphs: the ops that ran, in their order, by what they touch."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.chakra.tensors import arguments_of, bytes_of
from paracosm.graphs.contents import contents
from paracosm.graphs.graph import Graph
from paracosm.graphs.importers.pytorch.collectives import groups_of, kind_of, ranks_of
from paracosm.graphs.importers.pytorch.join import joined
from paracosm.graphs.importers.pytorch.storages import book, is_view
from paracosm.graphs.importers.pytorch.trace import ObservedCall, parse_trace
from paracosm.graphs.importers.pytorch.units import COLLECTIVE, Unit, steps_of, units_of
from paracosm.graphs.importers.pytorch.work import flops_of
from paracosm.graphs.op import Op
from paracosm.timeline.kineto import OpSpan

__all__ = ["read_execution_trace"]

_SCHEMA = re.compile(r"(\w+)::(\w+)(?:\.(\w+))?\(")
_HOST = frozenset(
    (
        *("empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "set_"),
        *("resize_", "record_stream", "item", "_local_scalar_dense", "is_pinned", "detach"),
        *("detach_", "_nnpack_available", "set_data"),
    )
)
"""Ops of the host alone, beside views."""


def read_execution_trace(
    path: Path, *, step: int | None = None, times: Sequence[OpSpan] = ()
) -> Graph:
    """Read what torch.profiler.ExecutionTraceObserver wrote, of any version of its schema.

    Args:
        path: the JSON file, gzipped or not.
        step: number of the step as the profiler marked it; None for the last one.
        times: of the profiler's trace of the same run; without, no duration is known.

    Raises:
        InputError: no such trace, a field that is missing, no such step, times of another run.
    """
    where = str(path)
    trace = parse_trace(contents(path), where)
    units, chosen = units_of(trace, step, where)
    groups = groups_of(trace)
    booked = book(units)
    timed = joined(trace.calls, times, where) if times else {}
    with_device = any(time.on_device for time in timed.values())
    nodes = [
        _node(unit, waits, allocates, groups, timed.get(unit.call.id), with_device)
        for unit, waits, allocates in zip(units, booked.waits, booked.allocates, strict=True)
    ]
    missing = sum(node.resource == "communication" and not node.group for node in nodes)
    provenance = {
        "importer": "pytorch",
        "source": "PyTorch execution trace",
        "file": path.name,
        "schema": trace.schema,
        "step": chosen,
        "steps": sorted(steps_of(trace)),
        "collectives_without_group": missing,
        "without_duration": sum(math.isnan(node.duration) for node in nodes) if times else None,
    }
    return build_graph(nodes, booked.resident, provenance, where)


def _node(
    unit: Unit,
    waits: tuple[int, ...],
    allocates: tuple[tuple[int, int], ...],
    groups: Mapping[str, tuple[int, ...]],
    time: OpSpan | None,
    with_device: bool,
) -> Node:
    call = unit.call
    resource = _resource(unit, call)
    if time is not None and with_device and not time.on_device and resource == "compute":
        resource = "host"  # it launched nothing
    return Node(
        id=call.id,
        op=_op(call, resource),
        name=unit.place,
        phase=unit.phase,
        resource=resource,
        dependencies=waits,
        group=ranks_of(call, groups) if resource == "communication" else (),
        duration=math.nan if time is None else time.seconds,
        allocates=allocates,
    )


def _resource(unit: Unit, call: ObservedCall) -> str:
    if call.name == COLLECTIVE:
        return "communication"
    name = call.name.rpartition("::")[2]
    if name in _HOST or is_view(unit) or not (call.read or call.made):
        return "host"
    return "memory" if name in ("copy_", "_to_copy") and _crosses(call) else "compute"


def _crosses(call: ObservedCall) -> bool:
    """Whether a copy goes from one device to another."""
    values = (*call.inputs.values, *call.outputs.values)
    devices = {v[5].split(":")[0] for v in values if isinstance(v, list) and len(v) >= 6
               and isinstance(v[5], str) and v[5]}  # fmt: skip
    return len(devices) > 1


def _op(call: ObservedCall, resource: str) -> Op:
    if resource == "communication":
        name = kind_of(call)
    elif found := _SCHEMA.match(call.schema):
        name = f"{found[1]}.{found[2]}.{found[3] or 'default'}"
    else:
        name = call.name
    arguments = arguments_of(call.inputs)
    if resource == "host":
        return Op(name, arguments)
    flops = 0 if resource in ("communication", "memory") else flops_of(call)
    return Op(name, arguments, flops, bytes_of(call.inputs), bytes_of(call.outputs))
