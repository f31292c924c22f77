"""Shapes of the values that an ONNX file leaves open, op by op in the order in which they run.

The few whole numbers that determine shapes (Shape, Gather, Concat, ...) are computed on the way. An
op without a rule here leaves its outputs without shapes.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.graphs.graph import TensorArgument
from paracosm.graphs.importers import shape_rules as rules
from paracosm.graphs.importers.onnx.model import DTYPES, LARGEST_VALUE, Model, OnnxNode
from paracosm.graphs.importers.shape_rules import FAULTS, Shape, like, shape_of

Values = npt.NDArray[Any]


def infer_shapes(model: Model) -> None:
    """Add the shapes and types that follow from those that `model` has."""
    for node in model.nodes:
        shapes = [getattr(model.tensors.get(value), "shape", None) for value in node.inputs]
        values = [model.constants.get(value) for value in node.inputs]
        _evaluate(model, node, shapes, values)
        inferred = rules.shapes_by(_RULES.get(node.op), node, shapes, values)
        for position, value in enumerate(node.outputs):
            dtype = model.dtypes.setdefault(value, _dtype(model, node, position))
            shape = inferred[position] if position < len(inferred) else None
            sound = None if shape is None else shape_of([int(size) for size in shape])
            if value not in model.tensors and sound is not None:
                model.tensors[value] = TensorArgument(sound, dtype)


def _dtype(model: Model, node: OnnxNode, position: int) -> str:
    if node.op in ("Shape", "NonZero", "Size", "ArgMax", "ArgMin"):
        return "int64"
    if node.op in (*_COMPARE, "Not", "IsNaN") or (node.op == "Dropout" and position == 1):
        return "bool"
    if node.op in ("Constant", "ConstantOfShape") and node.outputs[0] in model.constants:
        return str(model.constants[node.outputs[0]].dtype)
    if node.op == "Cast":
        return DTYPES.get(node.attributes.get("to", 0), "unknown")
    if position == 1 and node.op in ("MaxPool", "TopK"):
        return "int64"
    index = 1 if node.op == "Where" else 0
    return (
        model.dtypes.get(node.inputs[index], "unknown") if len(node.inputs) > index else "float32"
    )


# --- whole numbers that shapes are made of


def _evaluate(
    model: Model, node: OnnxNode, shapes: Sequence[Shape | None], values: Sequence[Values | None]
) -> None:
    compute = _COMPUTED.get(node.op)
    if not node.outputs or compute is None or node.outputs[0] in model.constants:
        if node.op == "Constant" and node.outputs and node.outputs[0] in model.constants:
            value = model.constants[node.outputs[0]]
            model.tensors[node.outputs[0]] = TensorArgument(value.shape, str(value.dtype))
        return
    try:
        result = compute(node, shapes, values)
    except FAULTS:
        return
    if result is not None and result.size <= LARGEST_VALUE and result.dtype.kind in "iub":
        model.constants[node.outputs[0]] = result
        model.tensors[node.outputs[0]] = TensorArgument(result.shape, str(result.dtype))


def _whole(value: Values | None) -> Values:
    if value is None or value.dtype.kind not in "iub":
        raise ValueError("not a known whole number")
    return value.astype(np.int64)


def _value_of_shape(node: OnnxNode, shapes: Sequence[Any], values: Sequence[Any]) -> Values:
    start, end = node.attributes.get("start", 0), node.attributes.get("end")
    return np.array(shapes[0][start:end], dtype=np.int64)


def _slice_value(node: OnnxNode, shapes: Sequence[Any], values: Sequence[Any]) -> Values:
    data = _whole(values[0])
    return data[_slices(node, data.shape, values)]


def _binary(operation: Callable[[Values, Values], Values]) -> Callable[..., Values]:
    return lambda node, shapes, values: operation(_whole(values[0]), _whole(values[1]))


_COMPUTED: Mapping[str, Callable[..., Values | None]] = {
    "Shape": _value_of_shape,
    "Size": lambda node, shapes, values: np.array(math.prod(shapes[0])),
    "Gather": lambda node, shapes, values: np.take(
        _whole(values[0]), _whole(values[1]), axis=node.attributes.get("axis", 0)
    ),
    "Concat": lambda node, shapes, values: np.concatenate(
        [np.atleast_1d(_whole(value)) for value in values], axis=node.attributes.get("axis", 0)
    ),
    "Unsqueeze": lambda node, shapes, values: np.expand_dims(
        _whole(values[0]), tuple(_axes(node, values))
    ),
    "Squeeze": lambda node, shapes, values: np.squeeze(
        _whole(values[0]), tuple(_axes(node, values)) or None
    ),
    "Slice": _slice_value,
    "Cast": lambda node, shapes, values: _whole(values[0]),
    "Identity": lambda node, shapes, values: _whole(values[0]),
    "Add": _binary(np.add),
    "Sub": _binary(np.subtract),
    "Mul": _binary(np.multiply),
    "Div": _binary(np.floor_divide),
    "Reshape": lambda node, shapes, values: _whole(values[0]).reshape(_whole(values[1])),
}


# --- shapes, in the order of ONNX's list of ops


def _axes(node: OnnxNode, values: Sequence[Any], position: int = 1) -> list[int]:
    if "axes" in node.attributes:
        return list(node.attributes["axes"])
    if len(values) <= position or not node.inputs[position]:
        return []
    return [int(axis) for axis in np.atleast_1d(_whole(values[position]))]


def _window(node: OnnxNode, sizes: Sequence[int], kernel: Sequence[int]) -> list[int]:
    n = len(sizes)
    strides = node.attributes.get("strides") or [1] * n
    dilations = node.attributes.get("dilations") or [1] * n
    pads = node.attributes.get("pads") or [0] * 2 * n
    auto = node.attributes.get("auto_pad", "NOTSET")
    if auto.startswith("SAME"):
        return [-(-size // stride) for size, stride in zip(sizes, strides, strict=True)]
    if auto == "VALID":
        pads = [0] * 2 * n
    result = []
    for i, size in enumerate(sizes):
        room = size + pads[i] + pads[i + n] - dilations[i] * (kernel[i] - 1) - 1
        steps = -(-room // strides[i]) if node.attributes.get("ceil_mode") else room // strides[i]
        # The last window must begin within the input or the padding before it.
        if node.attributes.get("ceil_mode") and steps * strides[i] >= size + pads[i]:
            steps -= 1
        result.append(steps + 1)
    return result


def _conv_transpose(node: OnnxNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    x, weight = shapes[:2]
    n, a = len(x) - 2, node.attributes
    strides, pads = a.get("strides") or [1] * n, a.get("pads") or [0] * 2 * n
    dilations, more = a.get("dilations") or [1] * n, a.get("output_padding") or [0] * n
    sizes = a.get("output_shape") or [
        strides[i] * (x[i + 2] - 1) + more[i] + dilations[i] * (weight[i + 2] - 1) + 1
        - pads[i] - pads[i + n]
        for i in range(n)
    ]  # fmt: skip
    return [(x[0], weight[1] * a.get("group", 1), *sizes)]


def _pool(node: OnnxNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    x = shapes[0]
    shape = (*x[:2], *_window(node, x[2:], node.attributes["kernel_shape"]))
    return [shape] * len(node.outputs)


def _gemm(node: OnnxNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    flags = (node.attributes.get(key) for key in ("transA", "transB"))
    return [rules.product(*(rules.turned(x, flag) for x, flag in zip(shapes, flags, strict=False)))]


def _reshape(node: OnnxNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    asked = _whole(values[1]).tolist() if len(values) > 1 else node.attributes["shape"]
    if not node.attributes.get("allowzero"):
        asked = [shapes[0][i] if n == 0 else n for i, n in enumerate(asked)]
    return [rules.reshaped(shapes[0], asked)]


def _split(node: OnnxNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    x, count = shapes[0], len(node.outputs)
    axis = node.attributes.get("axis", 0) % len(x)
    parts = node.attributes.get("split")
    if parts is None and len(values) > 1 and node.inputs[1]:
        parts = [int(n) for n in _whole(values[1])]
    if parts is None:
        each = -(-x[axis] // count)
        parts = [each] * (count - 1) + [x[axis] - each * (count - 1)]
    return [rules.resized(x, {axis: n}) for n in parts]


def _slices(node: OnnxNode, shape: Shape, values: Sequence[Any]) -> tuple[slice, ...]:
    if "starts" in node.attributes:
        starts, ends = node.attributes["starts"], node.attributes["ends"]
        axes = node.attributes.get("axes") or range(len(starts))
        steps = [1] * len(starts)
    else:
        starts, ends = (_whole(value).tolist() for value in values[1:3])
        axes = _axes(node, values, 3) or range(len(starts))
        has_steps = len(values) > 4 and node.inputs[4]
        steps = _whole(values[4]).tolist() if has_steps else [1] * len(starts)
    cuts = [slice(None)] * len(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        # An end before the first element is written as a large negative number.
        stop = None if step < 0 and end < -shape[axis] else end
        cuts[axis] = slice(start, stop, step)
    return tuple(cuts)


def _reduce(node: OnnxNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    x = shapes[0]
    axes = _axes(node, values)
    if not axes and node.attributes.get("noop_with_empty_axes"):
        return [x]
    return [rules.reduced(x, axes or range(len(x)), node.attributes.get("keepdims", 1))]


def _pad(node: OnnxNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    n = len(shapes[0])
    pads = node.attributes.get("pads")
    pads = list(pads) if pads is not None else _whole(values[1]).tolist()
    axes = _axes(node, values, 3) or range(n)
    sizes = list(shapes[0])
    for position, axis in enumerate(axes):
        sizes[axis] += pads[position] + pads[position + len(pads) // 2]
    return [tuple(sizes)]


def _resize(node: OnnxNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    if len(values) > 3 and values[3] is not None:
        return [tuple(_whole(values[3]).tolist())]
    scales = values[1 if node.op == "Upsample" else 2]
    return [tuple(int(n * scale) for n, scale in zip(shapes[0], scales, strict=True))]


def _layer_norm(node: OnnxNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    axis = node.attributes.get("axis", -1) % len(shapes[0])
    means = (*shapes[0][:axis], *[1] * (len(shapes[0]) - axis))
    return [shapes[0], means, means]


def _flatten(node: OnnxNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    axis = node.attributes.get("axis", 1)
    return [(math.prod(shapes[0][:axis]), math.prod(shapes[0][axis:]))]


_COMPARE = ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "And", "Or", "Xor")
_LIKE_FIRST = (
    *("Relu", "LeakyRelu", "Elu", "Selu", "Celu", "ThresholdedRelu", "Sigmoid", "HardSigmoid"),
    *("HardSwish", "Swish", "Mish", "Softplus", "Softsign", "Tanh", "Gelu", "FastGelu", "Erf"),
    *("Softmax", "LogSoftmax", "Exp", "Log", "Sqrt", "Reciprocal", "Neg", "Abs", "Sign"),
    *("Floor", "Ceil", "Round", "Sin", "Cos", "Cast", "CastLike", "Identity", "Dropout", "Not"),
    *("Clip", "LRN", "CumSum", "Trilu", "IsNaN", "ScatterND", "ScatterElements", "Hardmax"),
    *("InstanceNormalization", "GroupNormalization", "RMSNormalization", "LpNormalization"),
    *("MeanVarianceNormalization", "QuickGelu", "BiasGelu"),
)
_BROADCAST = (
    *("Add", "Sub", "Mul", "Div", "Pow", "Mod", "Min", "Max", "Sum", "Where", "Mean", "PRelu"),
    *_COMPARE,
)
_REDUCED = ("Sum", "Mean", "Max", "Min", "Prod", "L1", "L2", "SumSquare", "LogSumExp")

_RULES: Mapping[str, Callable[..., Any]] = {
    **dict.fromkeys(_LIKE_FIRST, lambda n, x, v: [x[0]] * len(n.outputs)),
    **dict.fromkeys(_BROADCAST, lambda n, x, v: [np.broadcast_shapes(*x)]),
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    **dict.fromkeys(
        ("GlobalAveragePool", "GlobalMaxPool"),
        lambda n, x, v: [(*x[0][:2], *[1] * (len(x[0]) - 2))],
    ),
    **dict.fromkeys(
        ("ArgMax", "ArgMin"),
        lambda n, x, v: rules.reduced(
            x[0], [n.attributes.get("axis", 0)], n.attributes.get("keepdims", 1)
        ),
    ),
    **dict.fromkeys(("Resize", "Upsample"), _resize),
    **dict.fromkeys((f"Reduce{kind}" for kind in _REDUCED), _reduce),
    # The outputs behind the first are like the scale.
    "BatchNormalization": lambda n, x, v: [x[0], *[x[1]] * (len(n.outputs) - 1)],
    "Concat": lambda n, x, v: rules.concatenated(x, n.attributes["axis"]),
    "ConstantOfShape": lambda n, x, v: [tuple(_whole(v[0]).tolist())],
    "Conv": lambda n, x, v: [(x[0][0], x[1][0], *_window(n, x[0][2:], x[1][2:]))],
    "ConvTranspose": _conv_transpose,
    "Expand": lambda n, x, v: np.broadcast_shapes(x[0], tuple(_whole(v[1]).tolist())),
    "Flatten": _flatten,
    "Gather": lambda n, x, v: rules.gathered(x[0], x[1], n.attributes.get("axis", 0)),
    "GatherElements": lambda n, x, v: [x[1]],
    "Gemm": _gemm,
    "LayerNormalization": _layer_norm,
    "MatMul": lambda n, x, v: rules.product(*x[:2]),
    "Pad": _pad,
    "Reshape": _reshape,
    "Slice": lambda n, x, v: [like(x[0])[_slices(n, x[0], v)].shape],
    "Split": _split,
    "Squeeze": lambda n, x, v: rules.squeezed(x[0], _axes(n, v)),
    "Tile": lambda n, x, v: rules.tiled(x[0], _whole(v[1]).tolist()),
    "Transpose": lambda n, x, v: np.transpose(like(x[0]), n.attributes.get("perm") or None).shape,
    "Unsqueeze": lambda n, x, v: np.expand_dims(like(x[0]), tuple(_axes(n, v))).shape,
}
