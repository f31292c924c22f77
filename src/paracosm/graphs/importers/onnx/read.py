"""ONNX files as graphs: the forward pass, and optionally the backward pass that would train it."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from paracosm.errors import InputError, unknown
from paracosm.files import read_bytes
from paracosm.graphs.flops import (
    convolution_flops,
    elementwise_flops,
    product_flops,
)
from paracosm.graphs.graph import Graph, TensorArgument
from paracosm.graphs.importers.calls import Call, bytes_of, graph_of_calls, shapes_of
from paracosm.graphs.importers.onnx.backward import OPTIMIZERS, PRODUCTS, training_calls
from paracosm.graphs.importers.onnx.model import Model, OnnxNode, read_model


def read_onnx(
    path: Path,
    *,
    sizes: Mapping[str, int] | None = None,
    train: bool = False,
    optimizer: str | None = None,
) -> Graph:
    """Read an ONNX model; the onnx package is needed.

    Shapes are those of the file, else those that onnx infers. Initializers of floating-point
    numbers with a size (and no running mean or variance) are parameters.

    Args:
        path: the file, gzipped or not. Weights kept in files beside it are not looked for.
        sizes: what sizes with names are, {"N": 8}; "batch" for first sizes without one.
        train: add a backward pass and an optimizer (see `onnx.backward`).
        optimizer: "sgd" or "adam", of `train`; "sgd" where it is None.
    """
    where = str(path)
    if optimizer is not None and not train:
        raise InputError(f"{where}: --optimizer has no effect without --train")
    if optimizer is not None and optimizer not in OPTIMIZERS:
        raise InputError(f"{where}: {unknown('optimizer', optimizer, OPTIMIZERS)}")
    model = read_model(read_bytes(path), where, sizes or {})
    parameters = _parameters(model)
    calls = [_call(node, model, parameters) for node in model.nodes if node.op != "Constant"]
    forward = len(calls)
    resident = _resident(model, parameters)
    kept = list(model.outputs)
    chosen = optimizer or "sgd"
    if train:
        added, kept = training_calls(calls, model.tensors, parameters, model.outputs, chosen, where)
        calls += added
        resident["optimizer"] = OPTIMIZERS[chosen] * sum(
            bytes_of(model.tensors.get(value)) for value in parameters
        )
    return graph_of_calls(
        calls,
        model.tensors,
        where=where,
        resident=resident,
        provenance=_provenance(path, model, calls[:forward], train, chosen),
        kept=kept,
    )


def _call(node: OnnxNode, model: Model, parameters: Mapping[str, None]) -> Call:
    # A product takes its weight in either layout: nothing is moved for that.
    turned = node.op == "Transpose" and node.inputs[:1] and node.inputs[0] in parameters
    view = node.op in VIEWS or turned or (node.outputs and node.outputs[0] in model.constants)
    return Call(
        op=f"onnx.{node.op}",
        name=node.module,
        inputs=node.inputs,
        outputs=node.outputs,
        attributes={key: value for key, value in node.attributes.items() if value is not None},
        flops=0 if view else flops_of(node, model.tensors),
        resource="host" if view else "compute",
        moved=_gathered(node, model) if node.op == "Gather" and not view else None,
    )


def _gathered(node: OnnxNode, model: Model) -> tuple[int, int]:
    """Return bytes read and written: a gather reads as much as it returns, and its indices."""
    written = sum(bytes_of(model.tensors.get(value)) for value in node.outputs)
    indices = sum(bytes_of(model.tensors.get(value)) for value in node.inputs[1:])
    return written + indices, written


def _parameters(model: Model) -> dict[str, None]:
    statistics = {
        value
        for node in model.nodes
        if node.op == "BatchNormalization"
        for value in node.inputs[3:5]
    }
    return {
        name: None
        for name, tensor in model.weights.items()
        if tensor.shape and tensor.dtype.startswith(("float", "bfloat")) and name not in statistics
    }


def _resident(model: Model, parameters: Mapping[str, None]) -> dict[str, int]:
    held = {"parameters": 0, "buffers": 0}
    for name, tensor in model.weights.items():
        held["parameters" if name in parameters else "buffers"] += bytes_of(tensor)
    return held | {"inputs": sum(bytes_of(model.tensors.get(value)) for value in model.inputs)}


def _provenance(
    path: Path, model: Model, calls: list[Call], train: bool, optimizer: str
) -> dict[str, Any]:
    open_values = [
        value
        for call in calls
        if call.resource != "host"
        for value in call.outputs
        if value and value not in model.tensors
    ]
    provenance: dict[str, Any] = {
        "importer": "onnx",
        "source": "ONNX model",
        "file": path.name,
        "producer": model.producer,
        "opset": model.opset,
        "train": train,
        "without_shape": len(open_values),
        "unknown_sizes": sorted(model.unknown_sizes),
        "not_looked_into": sorted({call.op for call in calls} & {f"onnx.{op}" for op in OPAQUE}),
    }
    if train:
        provenance["optimizer"] = optimizer
    first = model.tensors.get(model.inputs[0]) if model.inputs else None
    if first is not None and first.shape:
        provenance["examples"] = first.shape[0]
    return provenance


VIEWS = frozenset(
    ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape", "Size", "SequenceAt")
)
"""Ops that show what is there in another form, or look at its shape alone."""

OPAQUE = frozenset(("If", "Loop", "Scan", "SequenceMap"))
"""Ops that hold graphs of their own, which are not looked into."""

_MOVES = frozenset(
    (
        *("Transpose", "Concat", "Split", "Slice", "Gather", "GatherElements", "GatherND"),
        *("Expand", "Tile", "Pad", "Cast", "CastLike", "ConstantOfShape", "ScatterND"),
        *("Range", "OneHot", "EyeLike", "RandomNormal", "RandomUniform", "DepthToSpace", "Trilu"),
        *("SpaceToDepth", "NonZero", "Where", "Compress", "ReverseSequence", "ScatterElements"),
    )
)


def flops_of(node: OnnxNode, tensors: Mapping[str, TensorArgument]) -> int:
    """Return the floating-point operations of a node; 0 if its shapes are unknown."""
    if node.op in VIEWS or node.op in _MOVES or node.op in OPAQUE:
        return 0
    inputs = shapes_of(map(tensors.get, node.inputs))
    outputs = shapes_of(map(tensors.get, node.outputs))
    if node.op not in PRODUCTS:
        return elementwise_flops((*inputs, *outputs))
    x, weight, output = [*inputs, None, None][:2] + [*outputs, None][:1]
    if x is None or weight is None:
        return 0
    if node.op == "ConvTranspose":
        return convolution_flops(x, weight[1:])
    if output is None or not x or not weight:
        return 0
    if node.op == "Conv":
        return convolution_flops(output, weight[1:])
    return product_flops(output, x[0 if node.attributes.get("transA") else -1])
