"""TensorFlow's RunMetadata (or its StepStats alone) as a graph with measured durations."""

from __future__ import annotations

import re
from pathlib import Path

from paracosm.errors import InputError
from paracosm.graphs.contents import contents
from paracosm.graphs.graph import Graph
from paracosm.graphs.importers.tensorflow.nodes import dtype_of, shape_proto
from paracosm.graphs.importers.tensorflow.schema import TENSORFLOW
from paracosm.graphs.importers.tensorflow.step_ops import StepOp, graph_of_step
from paracosm.graphs.importers.tensors import shape_of
from paracosm.graphs.importers.wire import Message, decode
from paracosm.graphs.op import TensorArgument

__all__ = ["read_run_metadata", "run_metadata_ops"]

_LABEL = re.compile(r"(?P<name>.*?) = (?P<op>\w+)\((?P<inputs>.*)\)$", re.DOTALL)
"""What the executor writes: "fc/MatMul = MatMul(fc/Reshape, fc/kernel)"."""


def read_run_metadata(path: Path, *, step_stats: bool = False) -> Graph:
    """Read the statistics of one traced step.

    Args:
        path: a RunMetadata in protobuf's binary form, gzipped or not.
        step_stats: the file holds the field `step_stats` alone.

    Raises:
        InputError: damaged, no step was traced.
    """
    where = str(path)
    ops = run_metadata_ops(contents(path), where, step_stats=step_stats)
    return graph_of_step(ops, where, {"file": path.name, "form": "RunMetadata"})


def run_metadata_ops(data: bytes, where: str, *, step_stats: bool = False) -> list[StepOp]:
    """Return the ops that a RunMetadata has traced, of all devices, as they stand in it.

    Args:
        data: a RunMetadata in protobuf's binary form.
        where: its file, for messages.
        step_stats: the data are those of the field `step_stats` alone.

    Raises:
        InputError: damaged, no step was traced.
    """
    if step_stats:
        found = decode(data, "StepStats", TENSORFLOW, where)
    else:
        found = decode(data, "RunMetadata", TENSORFLOW, where)["step_stats"]
    if found is None or not any(device["node_stats"] for device in found["dev_stats"]):
        raise InputError(
            f"{where}: no step was traced: RunMetadata.step_stats is empty (run with "
            "trace_level FULL_TRACE)"
        )
    return [
        _op(node, device["device"])
        for device in found["dev_stats"]
        for node in device["node_stats"]
    ]


def _op(found: Message, device: str) -> StepOp:
    label = _LABEL.match(found["timeline_label"])
    op = label["op"] if label else found["node_name"].rpartition(":")[2]
    inputs = label["inputs"].split(", ") if label and label["inputs"] else []
    start, length = found["all_start_nanos"], found["all_end_rel_nanos"]
    if not start:
        start, length = found["all_start_micros"] * 1000, found["all_end_rel_micros"] * 1000
    return StepOp(
        name=found["node_name"],
        op=op,
        inputs=tuple(each for each in inputs if each),
        device=device,
        start=start,
        duration=length / 1e9,
        outputs=tuple(_tensor(each) for each in found["output"]),
        allocated=_allocated(found["output"]),
        label=found["timeline_label"],
        ended=length != 0 or (not found["all_start_nanos"] and op != "RecvTensor"),
    )


def _allocated(outputs: list[Message]) -> int | None:
    described = outputs[0]["tensor_description"] if outputs else None
    allocation = described and described["allocation_description"]
    return allocation["requested_bytes"] if allocation else None


def _tensor(found: Message) -> TensorArgument | None:
    description = found["tensor_description"]
    shape = None if description is None else shape_proto(description["shape"])
    if description is None or shape is None or shape_of(shape) is None:
        return None
    return TensorArgument(shape, dtype_of(description["dtype"]))
