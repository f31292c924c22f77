"""The nodes of a TensorFlow graph as plain data, with its functions expanded."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.arrays import Ints
from paracosm.errors import InputError, unknown
from paracosm.graphs.graph import TensorArgument
from paracosm.graphs.importers import shape_rules as rules
from paracosm.graphs.importers.shape_rules import Shape, like, shape_of
from paracosm.graphs.protobuf import message_classes, parse_message
from paracosm.units import parse_whole

_DEPTH = 50
_LARGEST = 1_000_000
"""Nodes of a graph with its functions written out; more is a function that calls itself."""

_OUTPUTS = {
    "FusedBatchNorm": ("y", "batch_mean", "batch_variance", "reserve_space_1", "reserve_space_2",
                       "reserve_space_3"),
    "FusedBatchNormGrad": ("x_backprop", "scale_backprop", "offset_backprop"),
    "SparseSoftmaxCrossEntropyWithLogits": ("loss", "backprop"),
    "SoftmaxCrossEntropyWithLogits": ("loss", "backprop"),
    "MaxPoolWithArgmax": ("output", "argmax"),
    "TopK": ("values", "indices"),
}  # fmt: skip
"""Names of outputs, by which the nodes of functions name them, of ops that have several."""


@dataclass(frozen=True, slots=True)
class TfNode:
    """A node, as in the file; names in functions follow the name of their call.

    Inputs are values "node:0", "node:1", ...; `control` has names of nodes that must end before.
    Attributes are plain data: texts, flags, numbers of types, shapes, lists of numbers or shapes,
    and of constants their whole numbers, as far as they are few.
    """

    name: str
    op: str
    device: str
    inputs: tuple[str, ...]
    control: tuple[str, ...]
    attributes: Mapping[str, Any]


def messages() -> Mapping[str, Any]:
    """Return the classes of TensorFlow's messages; a `PartitionedRun` is a RunMetadata again, its
    graphs without its times."""
    description = Path(__file__).with_name("messages.txt").read_text("utf-8")
    return message_classes("tensorflow", description, "reading TensorFlow's files")


def read_nodes(data: bytes, where: str, saved_model: bool) -> list[TfNode]:
    """Return the nodes of a GraphDef; of a SavedModel, those of its first signature."""
    fetch: list[str] = []
    if saved_model:
        graphs = parse_message(messages()["SavedModel"], data, where).meta_graphs
        if not graphs or not graphs[0].HasField("graph_def"):
            raise InputError(f"{where}: no SavedModel: it lacks meta_graphs.graph_def")
        graph = graphs[0].graph_def
        fetch = _outputs(graphs[0].signature_def)
    else:
        graph = parse_message(messages()["GraphDef"], data, where)
    if not graph.node:
        raise InputError(f"{where}: no TensorFlow graph: GraphDef.node is empty")
    library = {function.signature.name: function for function in graph.library.function}
    nodes: list[TfNode] = []
    _write_out(graph.node, library, "", {}, nodes, where, 0)
    return needed_by(nodes, fetch, where) if fetch else nodes


def needed_by(nodes: Sequence[TfNode], fetch: Sequence[str], where: str) -> list[TfNode]:
    """Return the nodes that must run so that those named in `fetch` do."""
    by_name = {node.name: node for node in nodes}
    for name in fetch:
        if name not in by_name:
            raise InputError(f"{where}: {unknown('node', name, list(by_name)[:5000])}")
    reached: set[str] = set()
    open_ = [*fetch]
    while open_:
        name = open_.pop()
        if name not in reached and name in by_name:
            reached.add(name)
            open_ += [value.rpartition(":")[0] for value in by_name[name].inputs]
            open_ += by_name[name].control
    return [node for node in nodes if node.name in reached]


def dtype_of(number: int) -> str:
    return DTYPES.get(number % 100 if number > 100 else number, "unknown")


def shape_of_message(message: Any) -> tuple[int, ...] | None:
    """Return a TensorShapeProto as a shape, with -1 for unknown sizes; None of unknown rank."""
    sizes = [dim.size for dim in message.dim]
    if message.unknown_rank or shape_of([max(size, 0) for size in sizes]) is None:
        return None
    return tuple(-1 if size < 0 else size for size in sizes)


@dataclass(frozen=True, slots=True)
class Constant:
    """The shape of a constant, and its whole numbers if it has few."""

    shape: tuple[int, ...] | None
    numbers: Ints | None


def _plain(attribute: Any) -> Any:
    """Return the value of an attribute as plain data; None of one that is not needed."""
    match attribute.WhichOneof("value"):
        case "s":
            return attribute.s.decode(errors="replace")
        case "list":
            return [*attribute.list.i] or [*map(shape_of_message, attribute.list.shape)]
        case "shape":
            return shape_of_message(attribute.shape)
        case "tensor":
            tensor = attribute.tensor
            return Constant(shape_of_message(tensor.tensor_shape), _whole_numbers(tensor))
        case "b" | "type" as kind:
            return getattr(attribute, kind)
    return None


def _whole_numbers(tensor: Any) -> Ints | None:
    """Return the whole numbers of a constant that has few; None for any other."""
    shape, dtype = shape_of_message(tensor.tensor_shape), dtype_of(tensor.dtype)
    if shape is None or dtype not in ("int32", "int64") or math.prod(shape) > 4096:
        return None
    count, raw = math.prod(shape), tensor.tensor_content
    kind = np.dtype(dtype).newbyteorder("<")
    if raw and len(raw) == count * kind.itemsize:
        return np.frombuffer(raw, dtype=kind).astype(np.int64).reshape(shape)
    values = tensor.int_val or tensor.int64_val
    if len(values) == 1:  # one value stands for all
        return np.full(shape, values[0], dtype=np.int64)
    if len(values) == count:
        return np.array(values, dtype=np.int64).reshape(shape)
    return None


def _outputs(signatures: Mapping[str, Any]) -> list[str]:
    order = sorted(signatures, key=lambda name: (name != "serving_default", name))
    for name in order:
        if not name.startswith("__") and signatures[name].outputs:
            infos = signatures[name].outputs.values()
            return sorted({info.name.partition(":")[0] for info in infos})
    return []


def _write_out(
    graph: Sequence[Any],
    library: Mapping[str, Any],
    scope: str,
    bound: Mapping[str, str],
    nodes: list[TfNode],
    where: str,
    depth: int,
) -> dict[str, str]:
    """Add nodes, and instead of calls the nodes of their functions."""
    if depth > _DEPTH or len(nodes) > _LARGEST:
        raise InputError(f"{where}: functions that call each other without an end")
    ops = {node.name: node.op for node in graph}
    for node in graph:
        inputs = tuple(_value(i, ops, scope, bound) for i in node.input if not i.startswith("^"))
        control = tuple(scope + i[1:] for i in node.input if i.startswith("^"))
        attributes = {name: _plain(value) for name, value in node.attr.items()}
        called = node.attr["f"].func.name if "f" in attributes else ""
        function = library.get(called or node.op)
        name = scope + node.name
        if function is None or (called and "Call" not in node.op):
            nodes.append(TfNode(name, node.op, node.device, inputs, control, attributes))
            continue
        arguments = [argument.name for argument in function.signature.input_arg]
        inner_bound = dict(zip(arguments, inputs, strict=False))
        inner = _write_out(
            function.node_def, library, f"{name}/", inner_bound, nodes, where, depth + 1
        )
        returned = [
            _value(dict(function.ret).get(output.name, output.name), inner, f"{name}/", inner_bound)
            for output in function.signature.output_arg
        ]
        # The call itself stays, on the host: what others name as its outputs is what it returns.
        nodes.append(TfNode(name, "IdentityN", node.device, tuple(returned), control, {}))
    return ops


def _value(text: str, ops: Mapping[str, str], scope: str, bound: Mapping[str, str]) -> str:
    """Return the value "node:position" that an input names: "node", "node:1", "node:y:0"."""
    name, *rest = text.split(":")
    if name in bound and name not in ops:
        return bound[name]
    if len(rest) == 2:
        op = ops.get(name, "").rstrip("V23456789")
        names = _OUTPUTS.get(op, ())
        first = names.index(rest[0]) if rest[0] in names else 0
        number = parse_whole(rest[1])
        rest = ["0" if number is None else str(first + number)]
    return f"{scope}{name}:{rest[0] if rest and rest[0].isdecimal() else 0}"


DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string",
    8: "complex64", 9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128",
    19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64",
}  # fmt: skip
"""Names of types by their number; a reference to a variable has 100 more."""


@dataclass
class Known:
    """What is known of the values of a graph.

    `constants` are whole numbers that shapes are made of, `free` placeholders with unknown sizes;
    `first_open` says whether the graph leaves the first size of a value open.
    """

    tensors: dict[str, TensorArgument] = field(default_factory=dict)
    constants: dict[str, Ints] = field(default_factory=dict)
    free: list[str] = field(default_factory=list)
    first_open: bool = False


def infer_shapes(nodes: Sequence[TfNode], sizes: Mapping[str, int]) -> Known:
    """Return what is known of the outputs of nodes, which stand in an order that runs."""
    known = Known()
    for node in nodes:
        shapes = [getattr(known.tensors.get(value), "shape", None) for value in node.inputs]
        values = [known.constants.get(value) for value in node.inputs]
        _evaluate(known, node, shapes, values)
        rule = _RULES.get(node.op.rstrip("V23456789"), _RULES.get(node.op))
        inferred = rules.shapes_by(rule, node, shapes, values)
        # Of a variable's handle the variable is wanted, not the handle.
        listed = [] if node.op == "VarHandleOp" else node.attributes.get("_output_shapes")
        noted = _as_shapes(listed)
        for position in range(max(len(noted), len(inferred))):
            shape = noted[position] if position < len(noted) else None
            known.first_open |= bool(shape and shape[0] < 0)
            shape = _filled(shape, sizes)
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


def _as_shapes(attribute: Any) -> list[Shape | None]:
    """Return a list of shapes; nothing of an attribute of any other type."""
    listed = attribute if isinstance(attribute, list) else []
    return [shape for shape in listed if shape is None or isinstance(shape, tuple)]


def _dtype(known: Known, node: TfNode, position: int) -> str:
    has_type = "T" in node.attributes and node.op != "SparseSoftmaxCrossEntropyWithLogits"
    keys = ["out_type"] if has_type else ["dtype", "DstT", "out_type", "output_type"]
    keys += ["U", "T"] if position else ["T"]
    for key in keys:
        number = node.attributes.get(key)
        if number and type(number) is int:
            return dtype_of(number)
    first = known.tensors.get(node.inputs[0]) if node.inputs else None
    return first.dtype if first else "float32"


def _evaluate(
    known: Known, node: TfNode, shapes: Sequence[Shape | None], values: Sequence[Ints | None]
) -> None:
    constant = node.attributes.get("value")
    if node.op == "Const" and isinstance(constant, Constant) and constant.numbers is not None:
        known.constants[f"{node.name}:0"] = constant.numbers
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


def _layout(node: TfNode, rank: int) -> tuple[list[int], int]:
    if node.attributes.get("data_format", "").startswith("NC"):
        return list(range(2, rank)), 1
    return list(range(1, rank - 1)), rank - 1


def _moved(node: TfNode, x: Shape, kernel: Sequence[int]) -> dict[int, int]:
    axes, _ = _layout(node, len(x))
    strides = node.attributes["strides"]
    dilations = node.attributes.get("dilations") or [1] * len(x)
    padding, sizes = node.attributes.get("padding"), {}
    explicit = node.attributes.get("explicit_paddings") or ()
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
    window = node.attributes["ksize"]
    axes, _ = _layout(node, len(x))
    return [rules.resized(x, _moved(node, x, [window[axis] for axis in axes]))]


def _matmul(node: TfNode, shapes: Sequence[Any], values: Sequence[Any]) -> list[Any]:
    flags = (
        node.attributes.get(one) or node.attributes.get(other)
        for one, other in (("transpose_a", "adj_x"), ("transpose_b", "adj_y"))
    )
    return [rules.product(*(rules.turned(x, flag) for x, flag in zip(shapes, flags, strict=False)))]


def _given_by(position: int) -> Callable[..., list[Any]]:
    return lambda node, shapes, values: [tuple(values[position])]


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
        lambda n, x, v: rules.reduced(
            x[0], np.atleast_1d(v[1]).tolist(), n.attributes.get("keep_dims")
        ),
    ),
    **dict.fromkeys(("Placeholder", "VarHandleOp", "Variable", "VariableV2", "_Arg"),
                    lambda n, x, v: _as_shapes([n.attributes["shape"]])),
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
    "Const": lambda n, x, v: [n.attributes["value"].shape],
    "ExpandDims": lambda n, x, v: np.expand_dims(like(x[0]), int(v[1])).shape,
    "FusedBatchNorm": lambda n, x, v: [x[0], *[x[1]] * 4],
    "FusedBatchNormGrad": lambda n, x, v: [x[1], x[2], x[2]],
    "Reshape": lambda n, x, v: rules.reshaped(x[0], v[1].tolist()),
    "Squeeze": lambda n, x, v: rules.squeezed(x[0], n.attributes.get("squeeze_dims") or ()),
    "SoftmaxCrossEntropyWithLogits": lambda n, x, v: [x[0][:1], x[0]],
    "SparseSoftmaxCrossEntropyWithLogits": lambda n, x, v: [x[1], x[0]],
    "Tile": lambda n, x, v: rules.tiled(x[0], v[1]),
    "Transpose": lambda n, x, v: [tuple(x[0][int(i)] for i in v[1])],
}  # fmt: skip
