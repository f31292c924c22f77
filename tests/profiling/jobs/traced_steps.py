"""RunMetadata written by hand: a step of one worker and its servers, in protobuf's binary form."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from paracosm.graphs.importers.tensorflow.nodes import messages

__all__ = ["WORKER", "Op", "graph", "op", "plain_step", "receive", "run_metadata", "server"]

WORKER = "/job:worker/replica:0/task:0/device:CPU:0"
START = 1_700_000_000_000_000


@dataclass(frozen=True)
class Op:
    """One record; times in microseconds from the step's begin, end None where none was traced."""

    device: str
    name: str
    label: str
    begin: float
    end: float | None
    size: int | None = None


def server(task: int = 0) -> str:
    return f"/job:ps/replica:0/task:{task}/device:CPU:0"


def op(device: str, name: str, kind: str, inputs: str, begin: float, end: float | None) -> Op:
    return Op(device, name, f"{name} = {kind}({inputs})", begin, end)


def receive(source: str, target: str, tensor: str, size: int, begin: float, end: float) -> Op:
    told = f"[{size}B] [1.0Mb/s] {tensor} from {source} to {target}"
    return Op(target, "RecvTensor", told, begin, end, size)


def plain_step() -> list[Op]:
    """Return a step in which a weight of 4000 bytes comes down, and its gradient goes up.

    The worker needs 100 us for x, 1000 us for y of x and the weight, 500 us for its gradient.
    """
    down, up = "edge_7_w/read", "edge_9_gradients/y"
    return [
        op(WORKER, "_SOURCE", "NoOp", "", 0, 1),
        op(WORKER, "x", "RandomUniform", "", 10, 110),
        op(server(), "w", "VariableV2", "", 50, 52),
        op(server(), "w/read", "Identity", "w", 60, 62),
        receive(server(), WORKER, down, 4000, 64, 400),
        op(WORKER, "y", "MatMul", "x, w/read_S3", 410, 1410),
        op(WORKER, "gradients/y", "MatMul", "x, y, ^x", 1420, 1920),
        receive(WORKER, server(), up, 4000, 1925, 2300),
        op(server(), "update", "ApplyGradientDescent", "w, gradients/y_S5", 2310, 2360),
    ]


def run_metadata(ops: Sequence[Op], *, after: float = 0.0, graphs: Sequence[bytes] = ()) -> bytes:
    """Return a RunMetadata of records; `after` is microseconds from the first step's begin."""
    run = messages()["RunMetadata"]()
    devices = {device: run.step_stats.dev_stats.add(device=device) for device in _devices(ops)}
    for record in ops:
        _add_record(devices[record.device].node_stats, record, after)
    partitions = messages()["PartitionedRun"]()
    for data in graphs:
        partitions.partition_graphs.add().MergeFromString(data)
    return bytes(run.SerializeToString() + partitions.SerializeToString())


def _devices(ops: Sequence[Op]) -> list[str]:
    return list(dict.fromkeys(record.device for record in ops))


def graph(device: str, nodes: Iterable[tuple[str, str, str, str]]) -> bytes:
    """Return a GraphDef of nodes: name, op, inputs, the tensor of _Send and _Recv or ""."""
    partition = messages()["Partition"]()
    for name, kind, inputs, tensor in nodes:
        node = partition.node.add(name=name, op=kind, input=inputs.split(), device=device)
        if tensor:
            node.attr["tensor_name"].s = tensor.encode()
    return bytes(partition.SerializeToString())


def _add_record(stats: Any, record: Op, after: float) -> None:
    begin = START * 1000 + round((record.begin + after) * 1000)
    length = 0 if record.end is None else round((record.end - record.begin) * 1000)
    if record.name == "RecvTensor":
        times = {"all_start_micros": begin // 1000, "all_end_rel_micros": length // 1000}
    else:
        times = {"all_start_nanos": begin, "all_end_rel_nanos": length}
    node = stats.add(node_name=record.name, timeline_label=record.label, **times)
    if record.size is not None:
        description = node.output.add().tensor_description
        description.allocation_description.requested_bytes = record.size
