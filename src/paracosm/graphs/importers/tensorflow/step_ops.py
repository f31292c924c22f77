"""The ops of one traced TensorFlow step, from whichever form of file, as a graph.

A device's executor and its streams are listed apart: "/job:.../device:GPU:0" has when the host
issued an op, "/device:GPU:0/stream:all" when its kernels ran, "/device:GPU:0/memcpy" the copies. An
op with kernels takes as long as they do; one of a GPU's executor without any is the host's.
"""

from __future__ import annotations

import bisect
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paracosm.errors import InputError
from paracosm.graphs.graph import Graph
from paracosm.graphs.importers.calls import Call, graph_of_calls
from paracosm.graphs.importers.tensorflow.meaning import (
    flops_of,
    phase_by_name,
    place_of,
    resource_of,
)
from paracosm.graphs.op import TensorArgument

__all__ = ["StepOp", "graph_of_step", "is_stream", "kernel_node"]


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
    """Return the graph of one step: what was traced, with its durations, in the order it began.

    Raises:
        InputError: no op of an executor; a negative duration.
    """
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
    """Return the node that a kernel is of: "fc/MatMul" of "fc/MatMul:MatMul"."""
    return re.split(r":|@@", name)[0]


def _kernels(ops: Sequence[StepOp]) -> dict[str, float]:
    """Return seconds of the kernels of each node; streams are listed one by one and all again."""
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
                met.append((maker, -1 if only else int(slot) if slot.isdecimal() else 0))
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
        name=place_of(op.name),
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
