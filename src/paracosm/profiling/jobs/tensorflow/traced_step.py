"""One traced step as TensorFlow wrote it, from a RunMetadata or from a timeline."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from paracosm.errors import InputError
from paracosm.graphs.contents import contents
from paracosm.graphs.importers import format_of
from paracosm.graphs.importers.tensorflow.schema import TENSORFLOW
from paracosm.graphs.importers.tensorflow.step_ops import StepOp
from paracosm.graphs.importers.tensorflow.step_stats import run_metadata_ops
from paracosm.graphs.importers.tensorflow.timeline import Event, timeline_events, timeline_ops
from paracosm.graphs.importers.tensors import bytes_of
from paracosm.graphs.importers.wire import decode

__all__ = ["Node", "TracedStep", "read_traced_step", "traced_step"]

_BYTES = re.compile(r"requested_bytes:\s*(\d+)")


@dataclass(frozen=True, slots=True)
class Node:
    """A node of a partition, which is the part of the graph that one device runs.

    Attributes:
        op: its type.
        inputs: names of nodes, without slots and without "^".
        device: full name.
        tensor: of _Send and _Recv: the tensor that is sent, "edge_12_w/read"; else "".
    """

    op: str
    inputs: tuple[str, ...]
    device: str
    tensor: str


@dataclass(frozen=True, slots=True)
class TracedStep:
    """What was traced of one step.

    Attributes:
        where: its file.
        ops: of all devices, as they stand in the file.
        nodes: of all partitions by name; empty where no partitioned graph was traced.
        sizes: bytes of tensors by the node that makes them, where they were traced.
        span: nanoseconds at which the worker asked for the step and was told that it is done, if
            known.
        pause: seconds after the step that went into keeping it, which belong to no step.
    """

    where: str
    ops: Sequence[StepOp]
    nodes: Mapping[str, Node]
    sizes: Mapping[str, int]
    span: tuple[int, int] | None = None
    pause: float = 0.0


def read_traced_step(path: Path) -> TracedStep:
    """Read a RunMetadata, its StepStats alone, or a timeline; gzipped or not.

    Raises:
        InputError: none of these, damaged, no step in it.
    """
    form, where = format_of(path), str(path)
    if form == "tensorflow-timeline":
        events = timeline_events(path)
        return TracedStep(where, timeline_ops(events, where), {}, _sizes(events))
    if form in ("tensorflow-run-metadata", "tensorflow-step-stats"):
        return traced_step(contents(path), where, step_stats=form == "tensorflow-step-stats")
    raise InputError(
        f"{where}: no step of TensorFlow: give RunMetadata (run_metadata.SerializeToString()) or "
        "timelines (timeline.Timeline(...).generate_chrome_trace_format())"
    )


def traced_step(
    data: bytes,
    where: str,
    *,
    step_stats: bool = False,
    span: tuple[int, int] | None = None,
    pause: float = 0.0,
) -> TracedStep:
    """Return the step in a RunMetadata's bytes.

    Args:
        data: in protobuf's binary form.
        where: its file, for messages.
        step_stats: the data are those of the field `step_stats` alone.
        span, pause: of the step.

    Raises:
        InputError: damaged, no step was traced.
    """
    ops = run_metadata_ops(data, where, step_stats=step_stats)
    nodes = {} if step_stats else _nodes(data, where)
    sizes = {op.name: op.allocated for op in ops if op.allocated is not None}
    sizes |= {op.name: bytes_of(op.outputs[0]) for op in ops if any(op.outputs[:1])}
    return TracedStep(where, ops, nodes, sizes, span, pause)


def _nodes(data: bytes, where: str) -> dict[str, Node]:
    found = decode(data, "PartitionedRun", TENSORFLOW, where)["partition_graphs"]
    nodes = {}
    for each in (node for graph in found for node in graph["node"]):
        attributes = each["attr"]
        # What is sent to and from the program that called is no transfer between machines.
        called = attributes.get("client_terminated", {"b": False})["b"]
        tensor = attributes.get("tensor_name", {"s": b""})["s"].decode("utf-8", "replace")
        names = (name.removeprefix("^").partition(":")[0] for name in each["input"])
        nodes[each["name"]] = Node(
            each["op"], tuple(names), each["device"], "" if called else tensor
        )
    return nodes


def _sizes(events: Sequence[Event]) -> dict[str, int]:
    """Return bytes of tensors; a timeline has them if it was made with show_memory=True."""
    sizes: dict[str, int] = {}
    for event in events:
        if event.get("ph") != "O" or not isinstance(event.get("args"), dict):
            continue
        snapshot = event["args"].get("snapshot")
        told = snapshot.get("tensor_description") if isinstance(snapshot, dict) else None
        name = event.get("name")
        found = _BYTES.search(told) if isinstance(told, str) else None
        if isinstance(name, str) and isinstance(told, str):
            # Protobuf as text leaves out a number that is 0.
            sizes[name] = int(found[1]) if found else 0
    return sizes
