"""PyTorch execution traces as graphs: the ops that ran, in order, with their data dependencies."""

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from paracosm.data_files import parse_json
from paracosm.errors import InputError
from paracosm.files import read_bytes
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.chakra.trace import arguments_of, bytes_of
from paracosm.graphs.flops import (
    aten_product_flops,
    call_flops,
    convolution_flops,
    elementwise_flops,
)
from paracosm.graphs.graph import Graph, Op
from paracosm.graphs.importers.pytorch.ops import (
    COLLECTIVE,
    Unit,
    book,
    is_view,
    observed_step,
)
from paracosm.graphs.importers.pytorch.trace import (
    ObservedCall,
    ObservedTrace,
    joined,
    parse_trace,
)
from paracosm.timeline.kineto.communication import collective_of
from paracosm.timeline.kineto.device import OpSpan
from paracosm.units import parse_whole

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
        step: number of the step as the profiler marked it; None for the last one that has ops.
        times: of the profiler's trace of the same run; without, those that are known that
            `chakra_trace_link` has joined with the trace.
    """
    where = str(path)
    trace = parse_trace(read_bytes(path), where)
    chosen = observed_step(trace, step, where)
    units = chosen.units
    groups = groups_of(trace)
    waits_of, allocated, resident = book(units)
    timed = joined(trace.calls, times, where) if times else trace.linked
    with_device = any(time.on_device for time in timed.values())
    nodes = [
        _node(unit, waits, allocates, groups, timed.get(unit.call.id), with_device)
        for unit, waits, allocates in zip(units, waits_of, allocated, strict=True)
    ]
    missing = sum(node.resource == "communication" and not node.group for node in nodes)
    provenance = {
        "importer": "pytorch",
        "source": "PyTorch execution trace",
        "file": path.name,
        "schema": trace.schema,
        "step": chosen.number,
        "steps": list(chosen.ops_of),
        "ops_of_steps": list(chosen.ops_of.values()),
        "collectives_without_group": missing,
        "without_duration": sum(math.isnan(node.duration) for node in nodes) if timed else None,
    }
    return build_graph(nodes, resident, provenance, where)


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
    values = (*call.inputs.values, *call.outputs.values)
    devices = {v[5].split(":")[0] for v in values if isinstance(v, list) and len(v) >= 6
               and isinstance(v[5], str) and v[5]}  # fmt: skip
    return len(devices) > 1


def _op(call: ObservedCall, resource: str) -> Op:
    if resource == "communication":
        name = kind_of(call)
    elif match := _SCHEMA.match(call.schema):
        name = f"{match[1]}.{match[2]}.{match[3] or 'default'}"
    else:
        name = call.name
    arguments = arguments_of(call.inputs)
    if resource == "host":
        return Op(name, arguments)
    flops = 0 if resource in ("communication", "memory") else flops_of(call)
    return Op(name, arguments, flops, bytes_of(call.inputs), bytes_of(call.outputs))


_INIT = "## process_group:init ##"


def kind_of(call: ObservedCall) -> str:
    """Return the kind of a collective, "all_reduce"; the trace's own name if it is unknown."""
    named = call.attributes.get("collective_name")
    values = call.inputs.values
    texts = [value for value in values if isinstance(value, str)] if not named else [named]
    name = str(texts[0]) if texts else "collective"
    return collective_of(name) or name


def groups_of(trace: ObservedTrace) -> dict[str, tuple[int, ...]]:
    """Return the ranks of process groups by name and number; no list means all ranks."""
    groups: dict[str, tuple[int, ...]] = {}
    for call in trace.calls.values():
        if call.name != _INIT:
            continue
        for value in call.inputs.values:
            for group in _described(value):
                listed = group.get("ranks")
                listed = list(listed) if isinstance(listed, list | dict) else []
                numbers = (parse_whole(str(rank)) for rank in listed)
                ranks = [rank for rank in numbers if rank is not None]
                size = group.get("group_size")
                if not ranks and type(size) is int and 0 < size < 10_000_000:
                    ranks = list(range(size))
                for key in ("pg_name", "backend_id"):
                    if key in group:
                        groups[str(group[key])] = tuple(ranks)
    return groups


def _described(value: Any) -> list[dict[str, Any]]:
    try:
        content = parse_json(value, "groups") if isinstance(value, str) else None
    except InputError:
        return []
    return [item for item in content if isinstance(item, dict)] if isinstance(content, list) else []


def ranks_of(call: ObservedCall, groups: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the ranks that a collective runs among; empty if the trace lacks them."""
    named = call.attributes.get("pg_name")
    if isinstance(named, str) and named in groups:
        return groups[named]
    values = call.inputs.values
    for value in values[2:3] + values[1:2]:
        key = str(value[0]) if isinstance(value, list) and value else str(value)
        if key in groups:
            return groups[key]
    return ()


_WRONG_SHAPES = (LookupError, TypeError, ValueError, ArithmeticError)

_MOVES = frozenset(
    (
        *("copy_", "clone", "_to_copy", "cat", "stack", "fill_", "zero_", "full", "full_like"),
        *("zeros", "zeros_like", "ones", "ones_like", "empty", "empty_like", "empty_strided"),
        *("new_empty", "new_empty_strided", "new_zeros", "arange", "rand", "randn", "uniform_"),
        *("normal_", "bernoulli_", "random_", "embedding", "index", "index_select", "gather"),
        *("scatter", "scatter_", "set_", "resize_", "detach_", "record_stream"),
        *("_local_scalar_dense", "constant_pad_nd", "slice_backward", "select_backward"),
        *("index_put_", "repeat", "roll", "flip", "split_with_sizes_copy", "masked_fill_"),
        *("_foreach_copy_", "_foreach_zero_"),
    )
)


def flops_of(call: ObservedCall) -> int:
    """Return the floating-point operations of a call; 0 if the trace lacks its shapes."""
    name, shapes = call.name.rpartition("::")[2], call.inputs.shapes
    if name in _MOVES:
        return 0
    try:
        if (attention := call_flops(name, shapes, call.inputs.values)) is not None:
            return attention
        if (product := aten_product_flops(name, shapes)) is not None:
            return product
        if "convolution" in name:
            return _convolution(name, call)
    except _WRONG_SHAPES:
        return 0
    tensors = (call.inputs, call.outputs)
    return elementwise_flops(shape for tensor in tensors for shape in _tensor_shapes(tensor))


def _tensor_shapes(tensors: Any) -> Iterator[list[int]]:
    for kind, shape in zip(tensors.types, tensors.shapes, strict=False):
        if isinstance(kind, str) and "Tensor(" in kind:
            yield from _shapes_in(shape)


def _shapes_in(shape: Any) -> Iterator[list[int]]:
    """Yield a shape, or those in a list of them."""
    if not isinstance(shape, list):
        return
    if all(type(size) is int for size in shape):
        if 0 <= math.prod(shape) < 2**50:
            yield shape
        return
    for part in shape:
        yield from _shapes_in(part)


def _convolution(name: str, call: ObservedCall) -> int:
    """Gradients: as much again as the product for each that is requested (the output mask of
    convolution_backward; two of cudnn's and mkldnn's own)."""
    shapes = call.inputs.shapes
    if name.endswith("_backward"):
        mask = call.inputs.values[-1] if call.inputs.values else None
        requested = sum(map(bool, mask[:2])) if isinstance(mask, list) and len(mask) > 1 else 2
        return requested * convolution_flops(shapes[0], shapes[2][1:])
    return convolution_flops(call.outputs.shapes[0], shapes[1][1:])
