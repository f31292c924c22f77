"""One traced step of TensorFlow as a graph with measured durations: RunMetadata or timeline.

A device's executor and its streams are separate: "/job:.../device:GPU:0" has when the host issued
an op, "/device:GPU:0/stream:all" when its kernels ran, "/device:GPU:0/memcpy" the copies. An op
with kernels takes as long as they do; one of a GPU's executor without any is the host's.
"""

import bisect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paracosm.data_files import parse_json
from paracosm.errors import InputError
from paracosm.files import read_bytes
from paracosm.graphs.graph import Graph, TensorArgument
from paracosm.graphs.importers.calls import Call, graph_of_calls
from paracosm.graphs.importers.shape_rules import shape_of
from paracosm.graphs.importers.tensorflow.graph_def import (
    flops_of,
    module_path,
    phase_by_name,
    resource_of,
)
from paracosm.graphs.importers.tensorflow.nodes import dtype_of, messages, shape_of_message
from paracosm.graphs.protobuf import parse_message
from paracosm.units import parse_whole


@dataclass(frozen=True, slots=True)
class StepOp:
    """One op as it was traced.

    Attributes:
        name: of its node; of a kernel, "node:op".
        op: its type.
        inputs: names of nodes, "node:1" for a second output, "^node" to be waited for alone.
        device: of the executor or the stream.
        start: nanoseconds.
        duration: seconds.
        outputs: shapes and types, where they were traced.
        allocated: bytes that were asked for, for its first output; None where nothing says so.
        label: as it was traced; of a RecvTensor, the tensor and both devices.
        ended: whether an end was traced; the duration is 0 where it was not.
    """

    name: str
    op: str
    inputs: tuple[str, ...]
    device: str
    start: int
    duration: float
    outputs: tuple[TensorArgument | None, ...] = ()
    allocated: int | None = None
    label: str = ""
    ended: bool = True


def graph_of_step(ops: Sequence[StepOp], where: str, provenance: Mapping[str, Any]) -> Graph:
    """Return the graph of one step: what was traced, with its durations, in the order it began."""
    issued = sorted(
        (op for op in ops if not is_stream(op.device) and op.op != "_SOURCE"),
        key=lambda op: (op.start, op.device, op.name),
    )
    if not issued:
        raise InputError(f"{where}: no op of an executor was traced, only streams of devices")
    for op in issued:
        if op.duration < 0:
            raise InputError(f"{where}: {op.name} takes {op.duration} s: the file is damaged")
    kernels = _kernels(ops)
    tensors = {
        f"{row}:{slot}": tensor
        for row, op in enumerate(issued)
        for slot, tensor in enumerate(op.outputs)
        if tensor is not None
    }
    makers, missing = _makers(issued)
    calls = [
        _call(op, row, made, kernels, tensors)
        for row, (op, made) in enumerate(zip(issued, makers, strict=True))
    ]
    return graph_of_calls(
        calls,
        tensors,
        where=where,
        resident={},
        provenance={
            "importer": "tensorflow-step",
            "source": "TensorFlow step statistics",
            **provenance,
            "devices": sorted({op.device for op in ops}),
            "inputs_not_traced": missing,
        },
    )


def is_stream(device: str) -> bool:
    """Whether a device is one of an accelerator's streams, which runs kernels and copies."""
    return "/stream:" in device or "/memcpy" in device.lower() or device == "/host:CPU"


def kernel_node(name: str) -> str:
    """Return the node of a kernel: "fc/MatMul" of "fc/MatMul:MatMul"."""
    return re.split(r":|@@", name)[0]


def _kernels(ops: Sequence[StepOp]) -> dict[str, float]:
    every = [op for op in ops if "/stream:" in op.device or "/memcpy" in op.device.lower()]
    whole = [op for op in every if op.device.endswith("stream:all")]
    seconds: dict[str, float] = {}
    for op in whole or every:
        node = kernel_node(op.name)
        seconds[node] = seconds.get(node, 0.0) + max(op.duration, 0.0)
    return seconds


def _makers(issued: Sequence[StepOp]) -> tuple[list[list[tuple[int, int]]], int]:
    """Return row and slot of each op's inputs (slot -1: to be waited for alone), and how many
    inputs were not traced.

    A node that ran several times (in a loop) is met where it ran last before.
    """
    runs: dict[str, list[int]] = {}
    for row, op in enumerate(issued):
        runs.setdefault(op.name, []).append(row)
    makers, missing = [], 0
    for row, op in enumerate(issued):
        met = []
        for value in op.inputs:
            name, _, slot = value.removeprefix("^").partition(":")
            if name not in runs:
                missing += 1
                continue
            # An op may be noted as begun before the one that it waits for.
            maker = runs[name][max(bisect.bisect_left(runs[name], row) - 1, 0)]
            if maker != row:
                only = value.startswith("^")
                met.append((maker, -1 if only else parse_whole(slot) or 0))
        makers.append(met)
    return makers, missing


def _call(
    op: StepOp,
    row: int,
    made: Sequence[tuple[int, int]],
    kernels: Mapping[str, float],
    tensors: Mapping[str, TensorArgument],
) -> Call:
    on_device = "gpu" in op.device.lower() and bool(kernels)
    resource, duration = resource_of(op.op), op.duration
    if on_device and op.name in kernels:
        resource = "compute" if resource == "host" else resource
        duration = kernels[op.name]
    elif on_device and resource == "compute":
        resource = "host"
    values = [f"{maker}:{slot}" for maker, slot in made]
    inputs = tuple(value for value in values if value in tensors)
    outputs = [f"{row}:{slot}" for slot in range(len(op.outputs))]
    outputs = [value if value in tensors else "" for value in outputs]
    return Call(
        op=f"tensorflow.{op.op}",
        name=module_path(op.name),
        inputs=inputs,
        outputs=tuple(outputs),
        flops=0
        if resource == "host"
        else flops_of(op.op, [tensors[v] for v in inputs], [tensors.get(v) for v in outputs]),
        phase=phase_by_name(op.name, op.op),
        resource=resource,
        waits=tuple(sorted({maker for maker, _ in made})),
        duration=duration,
    )


_LABEL = re.compile(r"(?P<name>.*?) = (?P<op>\w+)\((?P<inputs>.*)\)$", re.DOTALL)
"""What the executor writes: "fc/MatMul = MatMul(fc/Reshape, fc/kernel)"."""


def read_run_metadata(path: Path, *, step_stats: bool = False) -> Graph:
    """Read the statistics of one traced step.

    Args:
        path: a RunMetadata in protobuf's binary form, gzipped or not.
        step_stats: the file holds the field `step_stats` alone.
    """
    where = str(path)
    ops = run_metadata_ops(read_bytes(path), where, step_stats=step_stats)
    return graph_of_step(ops, where, {"file": path.name, "form": "RunMetadata"})


def run_metadata_ops(data: bytes, where: str, *, step_stats: bool = False) -> list[StepOp]:
    """Return the ops that a RunMetadata has traced, of all devices, in its order.

    With `step_stats`, the data are those of that field alone.

    Raises:
        InputError: damaged, no step was traced.
    """
    if step_stats:
        stats = parse_message(messages()["StepStats"], data, where)
    else:
        stats = parse_message(messages()["RunMetadata"], data, where).step_stats
    if not any(device.node_stats for device in stats.dev_stats):
        raise InputError(
            f"{where}: no step was traced: RunMetadata.step_stats is empty (run with "
            "trace_level FULL_TRACE)"
        )
    return [
        _stats_op(node, device.device) for device in stats.dev_stats for node in device.node_stats
    ]


def _stats_op(stats: Any, device: str) -> StepOp:
    label = _LABEL.match(stats.timeline_label)
    op = label["op"] if label else stats.node_name.rpartition(":")[2]
    inputs = label["inputs"].split(", ") if label and label["inputs"] else []
    start, length = stats.all_start_nanos, stats.all_end_rel_nanos
    if not start:
        start, length = stats.all_start_micros * 1000, stats.all_end_rel_micros * 1000
    return StepOp(
        name=stats.node_name,
        op=op,
        inputs=tuple(filter(None, inputs)),
        device=device,
        start=start,
        duration=length / 1e9,
        outputs=tuple(_tensor(output.tensor_description) for output in stats.output),
        allocated=_allocated(stats.output),
        label=stats.timeline_label,
        ended=length != 0 or (not stats.all_start_nanos and op != "RecvTensor"),
    )


def _allocated(outputs: Sequence[Any]) -> int | None:
    description = outputs[0].tensor_description if outputs else None
    if description is None or not description.HasField("allocation_description"):
        return None
    return int(description.allocation_description.requested_bytes)


def _tensor(description: Any) -> TensorArgument | None:
    shape = shape_of_message(description.shape) if description.HasField("shape") else None
    if shape is None or shape_of(shape) is None:
        return None
    return TensorArgument(shape, dtype_of(description.dtype))


Event = dict[str, Any]


def read_timeline(path: Path) -> Graph:
    """Read what `timeline.Timeline(...).generate_chrome_trace_format()` returned."""
    ops = timeline_ops(timeline_events(path), str(path))
    return graph_of_step(ops, str(path), {"file": path.name, "form": "timeline"})


def timeline_events(path: Path) -> list[Event]:
    """Return the events of a Chrome trace."""
    where = str(path)
    data = read_bytes(path)
    try:
        events = parse_json(data, where)["traceEvents"]
    except (KeyError, TypeError):
        raise InputError(f'{where}: no timeline: it lacks "traceEvents"') from None
    if not isinstance(events, list) or not all(isinstance(event, dict) for event in events):
        raise InputError(f'{where}: no timeline: "traceEvents" must be a list of events')
    return events


def timeline_ops(events: Sequence[Event], where: str) -> list[StepOp]:
    """Return the ops among a timeline's events."""
    devices = _devices(events)
    ops = [
        _event_op(event, position, devices, where)
        for position, event in enumerate(events)
        if event.get("ph") == "X" and str(event.get("cat", "")).lower() == "op"
    ]
    if not ops:
        raise InputError(
            f'{where}: no timeline of TensorFlow: no event has "cat": "Op" (a trace of PyTorch is '
            "read by paracosm replay)"
        )
    return ops


def _devices(events: Sequence[Event]) -> dict[Any, str]:
    """Return the device of each process: "/job:.../gpu:0 Compute" without the last word."""
    devices = {}
    for event in events:
        arguments = event.get("args")
        if event.get("name") == "process_name" and isinstance(arguments, dict):
            devices[str(event.get("pid"))] = str(arguments.get("name", "")).removesuffix(" Compute")
    return devices


def _event_op(event: Event, position: int, devices: dict[Any, str], where: str) -> StepOp:
    arguments = event.get("args")
    if not isinstance(arguments, dict):
        raise InputError(f'{where}: event {position} lacks "args"')
    for key in ("name", "op"):
        if not isinstance(arguments.get(key), str):
            raise InputError(f'{where}: event {position} lacks "args.{key}"')
    times = [event.get(key) for key in ("ts", "dur")]
    for key, value in zip(("ts", "dur"), times, strict=True):
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e18:
            raise InputError(f'{where}: event {position} ({arguments["name"][:60]}): "{key}" is '
                             f"{value!r}, no number of microseconds")  # fmt: skip
    numbered = {parse_whole(key[5:]): key for key in arguments if key.startswith("input")}
    inputs = [
        arguments[numbered[number]]
        for number in sorted(
            numbered_input for numbered_input in numbered if numbered_input is not None
        )
        if isinstance(arguments[numbered[number]], str)
    ]
    return StepOp(
        name=arguments["name"],
        op=arguments["op"],
        inputs=tuple(inputs),
        device=devices.get(str(event.get("pid")), ""),
        start=round(float(times[0] or 0) * 1000),
        duration=float(times[1] or 0) / 1e6,
    )
