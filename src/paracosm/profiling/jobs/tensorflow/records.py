"""One traced step of TensorFlow, read and sorted into runs of nodes and received tensors."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from paracosm.errors import InputError
from paracosm.files import read_bytes
from paracosm.graphs.importers.calls import bytes_of
from paracosm.graphs.importers.formats import format_of
from paracosm.graphs.importers.tensorflow.nodes import messages
from paracosm.graphs.importers.tensorflow.step_ops import (
    StepOp,
    is_stream,
    kernel_node,
    run_metadata_ops,
)
from paracosm.graphs.protobuf import parse_message


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a partition, which is the part of the graph that one device runs."""

    op: str
    inputs: tuple[str, ...]  # names of nodes, without slots and without "^"
    device: str
    tensor: str  # of _Send and _Recv: the tensor that is sent, "edge_12_w/read"; else ""


@dataclass(frozen=True, slots=True)
class TracedStep:
    where: str
    ops: Sequence[StepOp]  # of all devices, as they stand in the file
    # Of all partitions by name; empty where no partitioned graph was traced
    nodes: Mapping[str, Node]
    sizes: Mapping[str, int]  # bytes of tensors by the node that makes them, where they were traced
    # Nanoseconds at which the worker requested the step and it was reported done, if known
    span: tuple[int, int] | None = None
    pause: float = 0.0  # seconds after the step that went into keeping it, which belong to no step


def read_traced_step(path: Path) -> TracedStep:
    """Read a RunMetadata, or its StepStats alone; gzipped or not."""
    form, where = format_of(path), str(path)
    if form in ("tensorflow-run-metadata", "tensorflow-step-stats"):
        return traced_step(read_bytes(path), where, step_stats=form == "tensorflow-step-stats")
    raise InputError(
        f"{where}: not a step of TensorFlow: give RunMetadata (run_metadata.SerializeToString()), "
        "or its StepStats; a timeline lacks the arrival of tensors"
    )


def traced_step(
    data: bytes,
    where: str,
    *,
    step_stats: bool = False,
    span: tuple[int, int] | None = None,
    pause: float = 0.0,
) -> TracedStep:
    ops = run_metadata_ops(data, where, step_stats=step_stats)
    nodes = {} if step_stats else _nodes(data, where)
    sizes = {op.name: op.allocated for op in ops if op.allocated is not None}
    sizes |= {op.name: bytes_of(op.outputs[0]) for op in ops if any(op.outputs[:1])}
    return TracedStep(where, ops, nodes, sizes, span, pause)


def _nodes(data: bytes, where: str) -> dict[str, Node]:
    nodes = {}
    run = parse_message(messages()["PartitionedRun"], data, where)
    for graph in run.partition_graphs:
        for node in graph.node:
            attributes = dict(node.attr)
            # What is sent to and from the program that called is no transfer between machines.
            is_call = "client_terminated" in attributes and attributes["client_terminated"].b
            tensor = attributes["tensor_name"].s if "tensor_name" in attributes else b""
            nodes[node.name] = Node(
                node.op,
                tuple(name.removeprefix("^").partition(":")[0] for name in node.input),
                node.device,
                "" if is_call else tensor.decode("utf-8", "replace"),
            )
    return nodes


SERVERS = "ps"  # the job of the parameter servers: `replica_device_setter` and TF_CONFIG call it so

_DEVICE = re.compile(r"/job:(?P<job>[^/]+)(/replica:\d+)?/task:(?P<task>\d{1,18})(/|$)")


@dataclass(frozen=True, slots=True, order=True)
class Device:
    """One process of the job, as in the names of devices: "/job:ps/task:0"."""

    job: str
    task: int

    @property
    def is_server(self) -> bool:
        return self.job == SERVERS

    def __str__(self) -> str:
        return f"/job:{self.job}/task:{self.task}"


Key = tuple[Device, str, int]
"""A run of a node: where, its name, and which of its runs in the step (in a loop it has many)."""

Edge = tuple[Device, Device, str, int]
"""A transfer: from where, to where, the tensor's name, and which of its transfers in the step."""

_RECEIVE = "RecvTensor"

_SOURCE = "_SOURCE"  # with which every executor begins

_LABEL = re.compile(
    r"\[(?P<size>[\d.]+)(?P<unit>B|MB)\](?: \[[^\]]*\])? (?P<tensor>.+) from (?P<source>\S+) to "
)
"""Of a receive: "[1024B] [9.7Mb/s] edge_13_b1/read from /job:ps/... to /job:worker/...". Large ones
have mebibytes with one decimal; their exact bytes stand in what is allocated."""


@dataclass(frozen=True, slots=True)
class Run:
    """One run of a node; times in seconds from the records' `base`, NaN where none was traced."""

    kind: str
    inputs: tuple[str, ...]
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Receive:
    """One tensor received from another device; bytes, and times like those of a run."""

    size: int
    begin: float
    end: float


@dataclass(frozen=True, slots=True)
class Records:
    step: TracedStep
    base: int  # nanoseconds of the clocks at which times begin
    begin: float  # when the worker's executor began, in seconds as those of runs
    runs: Mapping[Key, Run]
    receives: Mapping[Edge, Receive]


def records_of(step: TracedStep) -> Records:
    check_devices(step.ops, step.where)
    base = min((op.start for op in step.ops if op.start), default=0)
    executed = [op for op in step.ops if not is_stream(op.device)]
    placed = [(device, op) for op in executed if (device := device_of(op.device)) is not None]
    placed.sort(key=lambda each: (each[1].start, each[1].name))
    count: Counter[tuple[object, ...]] = Counter()
    runs: dict[Key, Run] = {}
    receives: dict[Edge, Receive] = {}
    for device, op in placed:
        begin, end = _times(op, base)
        if op.op == _RECEIVE:
            label = _LABEL.match(op.label)
            source = device_of(label["source"]) if label else None
            if label is None or source is None:
                continue
            tensor = (source, device, label["tensor"])
            told = round(float(label["size"]) * (1 << 20 if label["unit"] == "MB" else 1))
            size = told if op.allocated is None else op.allocated
            receives[*tensor, count[tensor]] = Receive(size, begin, end)
            count[tensor] += 1
        else:
            node = (device, op.name)
            runs[*node, count[node]] = Run(op.op, op.inputs, begin, end)
            count[node] += 1
    _time_kernels(runs, [op for op in step.ops if is_stream(op.device)], base)
    begins = [run.begin for key, run in runs.items() if not key[0].is_server]
    sources = [run.begin for key, run in runs.items() if key[1] == _SOURCE and not key[0].is_server]
    begin = min(sources or begins, default=math.nan)
    runs = {key: run for key, run in runs.items() if key[1] != _SOURCE}
    return Records(step, base, begin, runs, receives)


def _times(op: StepOp, base: int) -> tuple[float, float]:
    begin = (op.start - base) / 1e9 if op.start else math.nan
    return begin, begin + op.duration if op.ended else math.nan


def _time_kernels(runs: dict[Key, Run], traced: Sequence[StepOp], base: int) -> None:
    """Set times of accelerator nodes from their kernels, which the executor only launches."""
    every = [op for op in traced if op.device.endswith("stream:all")] or list(traced)
    kernels: dict[str, list[tuple[float, float]]] = {}
    for op in sorted(every, key=lambda op: (op.start, op.name)):
        kernels.setdefault(kernel_node(op.name), []).append(_times(op, base))
    keys: dict[str, list[Key]] = {}
    for key in runs:
        if not key[0].is_server:
            keys.setdefault(key[1], []).append(key)
    for node, node_kernels in kernels.items():
        of_run, rest = divmod(len(node_kernels), len(keys.get(node, node_kernels)))
        if node not in keys or rest:
            continue
        for number, key in enumerate(keys[node]):
            kernels_of_run = node_kernels[number * of_run : (number + 1) * of_run]
            runs[key] = replace(
                runs[key], begin=kernels_of_run[0][0], end=max(end for _, end in kernels_of_run)
            )


def device_of(name: str) -> Device | None:
    """Return the device of a name; None if it has no job, such as a GPU's stream."""
    match = _DEVICE.match(name)
    return None if match is None else Device(match["job"], int(match["task"]))


def check_devices(ops: Iterable[StepOp], where: str) -> None:
    first: dict[Device, str] = {}
    for op in ops:
        device = device_of(op.device)
        if device is not None:
            first.setdefault(device, op.name)
        elif not is_stream(op.device):
            raise InputError(f'{where}: {op.name}: device "{op.device}" names no job and task')
    workers = sorted(device for device in first if not device.is_server)
    if not workers:
        raise InputError(f"{where}: no op of a worker was traced, only of /job:{SERVERS}")
    if len(workers) == len(first) == 1:
        raise InputError(
            f"{where}: all ops ran on {workers[0]}, so nothing was transferred: profile a job of "
            "one worker and a parameter server (paracosm graph import reads the step of one "
            "machine)"
        )
    for device in workers:
        if len(workers) > 1 or (device.job == "worker" and device.task > 0):
            raise InputError(
                f"{where}: {first[workers[-1]]} ran on {workers[-1]}: the job had several workers, "
                "which share links and servers: profile it with one"
            )
