"""Shapes of the values of a TensorFlow graph: as the file has them, else by a rule of the op."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.graphs.graph import TensorArgument
from paracosm.graphs.importers.calls import like, shape_of
from paracosm.graphs.importers.tensorflow.nodes import TfNode, constant_of, dtype_of, shape_proto

Shape = tuple[int, ...]
Whole = npt.NDArray[np.int64]

_FAULTS = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError)
"""What rules raise for shapes that they lack, or that do not fit."""


@dataclass
class Known:
    """What is known of the values of a graph.

    Attributes:
        tensors: shapes and types.
        constants: whole numbers that shapes are made of.
        free: placeholders with unknown sizes.
        first_open: whether the graph leaves the first size of a value open.
    """

    tensors: dict[str, TensorArgument] = field(default_factory=dict)
    constants: dict[str, Whole] = field(default_factory=dict)
    free: list[str] = field(default_factory=list)
    first_open: bool = False


def infer_shapes(nodes: Sequence[TfNode], sizes: Mapping[str, int]) -> Known:
    """Return what is known of the outputs of nodes, which stand in an order that runs."""
    known = Known()
    for node in nodes:
        shapes = [_known_shape(known, value) for value in node.inputs]
        values = [known.constants.get(value) for value in node.inputs]
        _evaluate(known, node, shapes, values)
        try:
            rule = _RULES.get(node.op.rstrip("V23456789"), _RULES.get(node.op))
            inferred = [] if rule is None else rule(node, shapes, values)
        except _FAULTS:
            inferred = []
        # Of a variable's handle the variable is wanted, not the handle.
        noted_key = "" if node.op == "VarHandleOp" else "_output_shapes"
        listed = (node.attributes.get(noted_key) or {}).get("list")
        given = [shape_proto(each) for each in listed["shape"]] if listed else []
        for position in range(max(len(given), len(inferred))):
            noted = given[position] if position < len(given) else None
            known.first_open |= bool(noted and noted[0] < 0)
            shape = _filled(noted, sizes)
            if shape is None and position < len(inferred) and inferred[position] is not None:
                shape = _filled(tuple(int(size) for size in inferred[position]), sizes)
            if shape is not None and shape_of(shape) is not None:
                dtype = _dtype(known, node, position)
                known.tensors[f"{node.name}:{position}"] = TensorArgument(shape, dtype)
            elif node.op == "Placeholder":
                known.free.append(node.name)
    return known


def _filled(shape: Shape | None, sizes: Mapping[str, int]) -> Shape | None:
    """Return a shape with the first size given by the user, if only that one is unknown."""
    if shape is None:
        return None
    if shape and shape[0] < 0 and "batch" in sizes:
        shape = (sizes["batch"], *shape[1:])
    return shape if all(size >= 0 for size in shape) else None


def _known_shape(known: Known, value: str) -> Shape | None:
    tensor = known.tensors.get(value)
    return None if tensor is None else tensor.shape


def _dtype(known: Known, node: TfNode, position: int) -> str:
    if node.op in ("SparseSoftmaxCrossEntropyWithLogits",) or "T" not in node.attributes:
        for key in ("dtype", "T", "DstT", "out_type", "output_type"):
            if (number := (node.attributes.get(key) or {}).get("type")) and key != "T":
                return dtype_of(number)
    if number := (node.attributes.get("out_type") or {}).get("type"):
        return dtype_of(number)
    if position and (number := (node.attributes.get("U") or {}).get("type")):
        return dtype_of(number)
    if number := (node.attributes.get("T") or {}).get("type"):
        return dtype_of(number)
    first = known.tensors.get(node.inputs[0]) if node.inputs else None
    return first.dtype if first else "float32"


def _evaluate(
    known: Known, node: TfNode, shapes: Sequence[Shape | None], values: Sequence[Whole | None]
) -> None:
    if node.op == "Const" and (constant := constant_of(node)) is not None:
        known.constants[f"{node.name}:0"] = constant
    elif node.op in ("Shape", "ShapeN"):
        for position, shape in enumerate(shapes):
            if shape is not None:
                known.constants[f"{node.name}:{position}"] = np.array(shape, dtype=np.int64)
    elif node.op in ("Identity", "Cast") and values and values[0] is not None:
        known.constants[f"{node.name}:0"] = values[0]
    elif node.op == "Pack" and all(value is not None for value in values):
        parts = [value for value in values if value is not None]
        try:
            known.constants[f"{node.name}:0"] = np.stack(parts)
        except ValueError:
            return


# --- rules


def _attribute(node: TfNode, name: str) -> Any:
    found = node.attributes.get(name) or {}
    listed = found.get("list")
    return listed["i"] if listed else found.get("s", b"").decode(errors="replace")


def _layout(node: TfNode, rank: int) -> tuple[list[int], int]:
    """Return the axes over which a window moves, and that of the channels."""
    if _attribute(node, "data_format").startswith("NC"):
        return list(range(2, rank)), 1
    return list(range(1, rank - 1)), rank - 1


def _moved(node: TfNode, x: Shape, kernel: Sequence[int]) -> dict[int, int]:
    axes, _ = _layout(node, len(x))
    strides = _attribute(node, "strides")
    dilations = _attribute(node, "dilations") or [1] * len(x)
    padding, sizes = _attribute(node, "padding"), {}
    explicit = _attribute(node, "explicit_paddings")
    for axis, width in zip(axes, kernel, strict=True):
        if padding == "SAME":
            sizes[axis] = -(-x[axis] // strides[axis])
        else:
            more = sum(explicit[2 * axis : 2 * axis + 2]) if padding == "EXPLICIT" else 0
            extent = (width - 1) * dilations[axis] + 1
            sizes[axis] = (x[axis] + more - extent) // strides[axis] + 1
    return sizes


def _with(x: Shape, sizes: Mapping[int, int]) -> Shape:
    return tuple(sizes.get(axis, size) for axis, size in enumerate(x))


def _conv(node: TfNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    x, weight = shapes[:2]
    _, channel = _layout(node, len(x))
    depthwise = node.op.startswith("Depthwise")
    out = weight[-2] * weight[-1] if depthwise else weight[-1]
    return [_with(x, {**_moved(node, x, weight[:-2]), channel: out})]


def _pool(node: TfNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    x = shapes[0]
    window = _attribute(node, "ksize")
    axes, _ = _layout(node, len(x))
    return [_with(x, _moved(node, x, [window[axis] for axis in axes]))]


def _matmul(node: TfNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    a, b = shapes[:2]
    flags = [
        (node.attributes.get(one) or {}).get("b") or (node.attributes.get(other) or {}).get("b")
        for one, other in (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))
    ]
    rows = a[-1] if flags[0] else a[-2]
    columns = b[-2] if flags[1] else b[-1]
    return [(*np.broadcast_shapes(a[:-2], b[:-2]), rows, columns)]


def _reshape(node: TfNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    asked = [int(size) for size in values[1]]
    rest = math.prod(size for size in asked if size != -1)
    return [tuple(math.prod(shapes[0]) // rest if size == -1 else size for size in asked)]


def _reduce(node: TfNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    x = shapes[0]
    axes = {int(axis) % len(x) for axis in np.atleast_1d(values[1])}
    if (node.attributes.get("keep_dims") or {}).get("b"):
        return [tuple(1 if axis in axes else size for axis, size in enumerate(x))]
    return [tuple(size for axis, size in enumerate(x) if axis not in axes)]


def _concat(node: TfNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    parts, axis = shapes[:-1], int(values[-1]) % len(shapes[0])
    return [_with(parts[0], {axis: sum(part[axis] for part in parts)})]


def _gather(node: TfNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    axis = int(values[2]) % len(shapes[0]) if len(values) > 2 else 0
    return [(*shapes[0][:axis], *shapes[1], *shapes[0][axis + 1 :])]


def _given_by(position: int) -> Callable[..., list[Any]]:
    return lambda node, shapes, values: [tuple(values[position])]


_SCALAR = {"unknown_rank": False, "dim": []}  # a constant without a shape

_RULES: Mapping[str, Callable[..., list[Any]]] = {
    **dict.fromkeys(
        (
            *("Relu", "Relu6", "Sigmoid", "Tanh", "Elu", "Softplus", "Exp", "Log", "Sqrt", "Rsqrt"),
            *("Neg", "Square", "Softmax", "LogSoftmax", "BiasAdd", "Identity", "StopGradient"),
            *("PreventGradient", "Cast", "ReluGrad", "Relu6Grad", "TanhGrad", "SigmoidGrad"),
            *("SqrtGrad", "RsqrtGrad", "SoftplusGrad", "EluGrad", "MaxPoolGrad", "Erf"),
            *("ReadVariableOp", "ZerosLike", "OnesLike", "Abs", "Floor", "LRN", "Erfc"),
            *("Reciprocal", "LeakyRelu"),
        ),
        lambda node, shapes, values: [shapes[0]],
    ),
    **dict.fromkeys(
        (
            *("Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "Maximum", "Minimum", "Pow"),
            *("SquaredDifference", "FloorDiv", "AddN", "Greater", "GreaterEqual", "Less", "Equal"),
            *("Select", "SelectV2", "BiasAddV1", "FloorMod", "LogicalAnd"),
        ),
        lambda node, shapes, values: [np.broadcast_shapes(*shapes)],
    ),
    **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative"), _conv),
    **dict.fromkeys(("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"), _pool),
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matmul),
    **dict.fromkeys(("Mean", "Sum", "Max", "Min", "Prod", "All", "Any"), _reduce),
    **dict.fromkeys(("Placeholder", "VarHandleOp", "Variable", "VariableV2", "_Arg"),
                    lambda node, s, v: [shape_proto(node.attributes["shape"]["shape"])]),
    **dict.fromkeys(("Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput", "Fill",
                     "AvgPoolGrad", "Conv3DBackpropInput"), _given_by(0)),
    **dict.fromkeys(("Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter",
                     "Conv3DBackpropFilter", "BroadcastTo"), _given_by(1)),
    **dict.fromkeys(("Gather", "GatherV", "ResourceGather"), _gather),
    "IdentityN": lambda node, shapes, values: list(shapes),
    **dict.fromkeys(("Shape", "ShapeN"), lambda node, shapes, values: [
        (len(shape),) for shape in shapes
    ]),
    "BiasAddGrad": lambda node, shapes, values: [
        (shapes[0][_layout(node, len(shapes[0]))[1]],)
    ],
    "Concat": lambda node, shapes, values: (
        _concat(node, shapes, values) if node.op == "ConcatV2" else [None]
    ),
    "Const": lambda node, s, v: [shape_proto(node.attributes["value"]["tensor"]["tensor_shape"] or
                                             _SCALAR)],
    "ExpandDims": lambda node, shapes, values: [
        np.expand_dims(like(shapes[0]), int(values[1])).shape
    ],
    "FusedBatchNorm": lambda node, shapes, values: [shapes[0], *[shapes[1]] * 4],
    "FusedBatchNormGrad": lambda node, shapes, values: [shapes[1], shapes[2], shapes[2]],
    "Reshape": _reshape,
    "Squeeze": lambda node, shapes, values: [
        np.squeeze(like(shapes[0]), tuple(_attribute(node, "squeeze_dims") or ()) or None).shape
    ],
    "SoftmaxCrossEntropyWithLogits": lambda node, shapes, values: [shapes[0][:1], shapes[0]],
    "SparseSoftmaxCrossEntropyWithLogits": lambda node, shapes, values: [shapes[1], shapes[0]],
    "Tile": lambda node, shapes, values: [
        tuple(size * int(times) for size, times in zip(shapes[0], values[1], strict=True))
    ],
    "Transpose": lambda node, shapes, values: [tuple(shapes[0][int(i)] for i in values[1])],
}  # fmt: skip
