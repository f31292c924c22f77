"""Shapes of the values of a TensorFlow graph: as the file has them, else by a rule of the op."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.graphs.graph import TensorArgument
from paracosm.graphs.importers import shape_rules as rules
from paracosm.graphs.importers.shape_rules import Shape, like, shape_of
from paracosm.graphs.importers.tensorflow.nodes import TfNode, constant_of, dtype_of, shape_proto

Whole = npt.NDArray[np.int64]


@dataclass
class Known:
    """What is known of the values of a graph.

    `constants` are whole numbers that shapes are made of, `free` placeholders with unknown sizes;
    `first_open` says whether the graph leaves the first size of a value open.

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
        rule = _RULES.get(node.op.rstrip("V23456789"), _RULES.get(node.op))
        inferred = rules.shapes_by(rule, node, shapes, values)
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


def _flag(node: TfNode, name: str) -> Any:
    return (node.attributes.get(name) or {}).get("b")


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


def _conv(node: TfNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    x, weight = shapes[:2]
    _, channel = _layout(node, len(x))
    depthwise = node.op.startswith("Depthwise")
    out = weight[-2] * weight[-1] if depthwise else weight[-1]
    return [rules.resized(x, {**_moved(node, x, weight[:-2]), channel: out})]


def _pool(node: TfNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    x = shapes[0]
    window = _attribute(node, "ksize")
    axes, _ = _layout(node, len(x))
    return [rules.resized(x, _moved(node, x, [window[axis] for axis in axes]))]


def _matmul(node: TfNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    flags = (
        _flag(node, one) or _flag(node, other)
        for one, other in (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))
    )
    return [rules.product(*(rules.turned(x, flag) for x, flag in zip(shapes, flags, strict=False)))]


def _given_by(position: int) -> Callable[..., list[Any]]:
    return lambda node, shapes, values: [tuple(values[position])]


_SCALAR = {"unknown_rank": False, "dim": []}  # a constant without a shape

_RULES: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(
        (
            *("Relu", "Relu6", "Sigmoid", "Tanh", "Elu", "Softplus", "Exp", "Log", "Sqrt", "Rsqrt"),
            *("Neg", "Square", "Softmax", "LogSoftmax", "BiasAdd", "Identity", "StopGradient"),
            *("PreventGradient", "Cast", "ReluGrad", "Relu6Grad", "TanhGrad", "SigmoidGrad"),
            *("SqrtGrad", "RsqrtGrad", "SoftplusGrad", "EluGrad", "MaxPoolGrad", "Erf"),
            *("ReadVariableOp", "ZerosLike", "OnesLike", "Abs", "Floor", "LRN", "Erfc"),
            *("Reciprocal", "LeakyRelu"),
        ),
        lambda n, x, v: [x[0]],
    ),
    **dict.fromkeys(
        (
            *("Add", "AddV2", "Sub", "Mul", "RealDiv", "Div", "Maximum", "Minimum", "Pow"),
            *("SquaredDifference", "FloorDiv", "AddN", "Greater", "GreaterEqual", "Less", "Equal"),
            *("Select", "SelectV2", "BiasAddV1", "FloorMod", "LogicalAnd"),
        ),
        lambda n, x, v: np.broadcast_shapes(*x),
    ),
    **dict.fromkeys(("Conv2D", "Conv3D", "DepthwiseConv2dNative"), _conv),
    **dict.fromkeys(("MaxPool", "AvgPool", "MaxPool3D", "AvgPool3D"), _pool),
    **dict.fromkeys(("MatMul", "BatchMatMul", "BatchMatMulV2", "BatchMatMulV3"), _matmul),
    **dict.fromkeys(
        ("Mean", "Sum", "Max", "Min", "Prod", "All", "Any"),
        lambda n, x, v: rules.reduced(x[0], np.atleast_1d(v[1]).tolist(), _flag(n, "keep_dims")),
    ),
    **dict.fromkeys(("Placeholder", "VarHandleOp", "Variable", "VariableV2", "_Arg"),
                    lambda n, x, v: [shape_proto(n.attributes["shape"]["shape"])]),
    **dict.fromkeys(("Conv2DBackpropInput", "DepthwiseConv2dNativeBackpropInput", "Fill",
                     "AvgPoolGrad", "Conv3DBackpropInput"), _given_by(0)),
    **dict.fromkeys(("Conv2DBackpropFilter", "DepthwiseConv2dNativeBackpropFilter",
                     "Conv3DBackpropFilter", "BroadcastTo"), _given_by(1)),
    **dict.fromkeys(
        ("Gather", "GatherV", "ResourceGather"),
        lambda n, x, v: rules.gathered(x[0], x[1], int(v[2]) if len(v) > 2 else 0),
    ),
    "IdentityN": lambda n, x, v: list(x),
    **dict.fromkeys(("Shape", "ShapeN"), lambda n, x, v: [
        (len(shape),) for shape in x
    ]),
    "BiasAddGrad": lambda n, x, v: [
        (x[0][_layout(n, len(x[0]))[1]],)
    ],
    "Concat": lambda n, x, v: (
        [rules.concatenated(x[:-1], int(v[-1])) if n.op == "ConcatV2" else None]
    ),
    "Const": lambda n, x, v: [shape_proto(n.attributes["value"]["tensor"]["tensor_shape"] or
                                             _SCALAR)],
    "ExpandDims": lambda n, x, v: np.expand_dims(like(x[0]), int(v[1])).shape,
    "FusedBatchNorm": lambda n, x, v: [x[0], *[x[1]] * 4],
    "FusedBatchNormGrad": lambda n, x, v: [x[1], x[2], x[2]],
    "Reshape": lambda n, x, v: rules.reshaped(x[0], v[1].tolist()),
    "Squeeze": lambda n, x, v: rules.squeezed(x[0], _attribute(n, "squeeze_dims") or ()),
    "SoftmaxCrossEntropyWithLogits": lambda n, x, v: [x[0][:1], x[0]],
    "SparseSoftmaxCrossEntropyWithLogits": lambda n, x, v: [x[1], x[0]],
    "Tile": lambda n, x, v: rules.tiled(x[0], v[1]),
    "Transpose": lambda n, x, v: [tuple(x[0][int(i)] for i in v[1])],
}  # fmt: skip
