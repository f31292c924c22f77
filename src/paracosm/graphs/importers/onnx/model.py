"""An ONNX model as plain data: its nodes, and the shapes and types of its values."""

import ast
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError, require
from paracosm.graphs.graph import TensorArgument
from paracosm.graphs.importers.calls import check_sizes
from paracosm.graphs.importers.shape_rules import FAULTS, like, shape_of
from paracosm.graphs.protobuf import parse_message

Values = npt.NDArray[Any]

LARGEST_VALUE = 4096
"""Elements of a constant whose values are kept: shapes, axes and the like."""


@dataclass(frozen=True, slots=True)
class OnnxNode:
    """A node: its op, its module, and its attributes as plain data."""

    op: str
    module: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    attributes: Mapping[str, Any]


@dataclass(frozen=True)
class Model:
    """A model: values by name, and the nodes in the order of the file.

    `tensors` are those whose shape is known, from the file or inferred; `constants` the values of
    few whole numbers, of which shapes are made; `unknown_sizes` the names of sizes that the file
    leaves open.
    """

    nodes: tuple[OnnxNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, TensorArgument]
    tensors: dict[str, TensorArgument]
    constants: Mapping[str, Values]
    unknown_sizes: frozenset[str]
    producer: str
    opset: int


def read_model(data: bytes, where: str, sizes: Mapping[str, int]) -> Model:
    """Return the model of an ONNX file.

    `sizes` gives those that the file has by name; "batch" stands for an unnamed first one.
    """
    onnx = require("onnx", "onnx", "reading ONNX models")
    model = parse_message(onnx.ModelProto, data, where)
    if not model.HasField("graph"):
        raise InputError(f"{where}: no ONNX model: it lacks ModelProto.graph")
    graph = model.graph
    if not graph.node:
        raise InputError(f"{where}: an ONNX model without nodes: GraphProto.node is empty")
    _drop_large_values(graph)
    if not _is_text(graph):
        raise InputError(f"{where}: cut off or damaged: a name is not text")
    declared = (*graph.input, *graph.value_info, *graph.output)
    check_sizes(sizes, {name: None for info in declared for name in _open_sizes(info)}, where)
    unknown_sizes = {name for info in declared for name in _fill_sizes(info, sizes)}
    weights = _weights(graph)
    tensors = _known_tensors(declared) | weights
    nodes = tuple(map(_node, graph.node))
    versions = {opset.domain: opset.version for opset in model.opset_import}
    inferred, constants = _infer_shapes(model, where)
    return Model(
        nodes=nodes,
        inputs=tuple(info.name for info in graph.input if info.name not in weights),
        outputs=tuple(info.name for info in graph.output),
        weights=weights,
        tensors=inferred | tensors,
        constants=constants,
        unknown_sizes=frozenset(unknown_sizes),
        producer=f"{model.producer_name} {model.producer_version}".strip(),
        opset=versions.get("", versions.get("ai.onnx", 0)),
    )


# --- what the file says


def _weights(graph: Any) -> dict[str, TensorArgument]:
    weights = {}
    for weight in graph.initializer:
        if (shape := shape_of(weight.dims)) is not None:
            weights[weight.name] = TensorArgument(shape, dtype_name(weight.data_type))
    for weight in graph.sparse_initializer:
        if (shape := shape_of(weight.dims)) is not None:
            weights[weight.values.name] = TensorArgument(shape, dtype_name(weight.values.data_type))
    return weights


def _drop_large_values(graph: Any) -> None:
    """Forget the values of weights, which determine no shapes."""
    constants = (a.t for node in graph.node if node.op_type == "Constant" for a in node.attribute)
    for tensor in (*graph.initializer, *constants):
        shape = shape_of(tensor.dims)
        if shape is None or math.prod(shape) > LARGEST_VALUE:
            for field in ("raw_data", "float_data", "int32_data", "int64_data", "double_data"):
                tensor.ClearField(field)


def _is_text(message: Any) -> bool:
    """Whether all texts in a message are: of damaged ones protobuf returns the bytes."""
    for field, value in message.ListFields():
        values = (
            [value] if isinstance(value, str | bytes) or hasattr(value, "ListFields") else value
        )
        if field.type == field.TYPE_STRING and any(isinstance(text, bytes) for text in values):
            return False
        if field.type == field.TYPE_MESSAGE and not all(map(_is_text, values)):
            return False
    return True


def _dimensions(info: Any) -> Any:
    return info.type.tensor_type.shape.dim


def _open_sizes(info: Any) -> Iterator[str]:
    for position, dimension in enumerate(_dimensions(info)):
        if dimension.dim_param:
            yield dimension.dim_param
        if position == 0 and (dimension.dim_param or not dimension.dim_value):
            yield "batch"


def _fill_sizes(info: Any, sizes: Mapping[str, int]) -> Iterator[str]:
    """Set the sizes that a declaration leaves open, and yield the names of those not given."""
    for position, dimension in enumerate(_dimensions(info)):
        name, size = dimension.dim_param, dimension.dim_value
        if not name and size > 0:
            continue
        given = sizes.get(name) if name else None
        if given is None and position == 0 and size <= 0:
            given = sizes.get("batch")
        if given is not None:
            dimension.dim_value = given
            continue
        if not name:  # An unknown size may be written as 0.
            dimension.Clear()
        yield name or ("batch" if position == 0 else f"size {position}")


def _known_tensors(infos: Iterable[Any]) -> dict[str, TensorArgument]:
    tensors = {}
    for info in infos:
        if not info.type.tensor_type.HasField("shape"):
            continue
        sizes = [d.dim_value if d.HasField("dim_value") else -1 for d in _dimensions(info)]
        if (shape := shape_of(sizes)) is not None:
            dtype = dtype_name(info.type.tensor_type.elem_type)
            tensors[info.name] = TensorArgument(shape, dtype)
    return tensors


def dtype_name(number: int) -> str:
    """Return the name of a type by ONNX's number for it."""
    from onnx.helper import tensor_dtype_to_np_dtype

    try:
        name = tensor_dtype_to_np_dtype(number).name
    except KeyError:
        return "unknown"
    return "string" if name == "object" else name


def _node(node: Any) -> OnnxNode:
    return OnnxNode(
        op=node.op_type,
        module=_module_path(node),
        inputs=tuple(node.input),
        outputs=tuple(node.output),
        attributes={attribute.name: _plain(attribute) for attribute in node.attribute},
    )


def _plain(attribute: Any) -> Any:
    """Return the value of an attribute as plain data; None of a tensor or a graph."""
    match attribute.type:
        case attribute.FLOAT:
            return attribute.f
        case attribute.INT:
            return attribute.i
        case attribute.STRING:
            return attribute.s.decode(errors="replace")
        case attribute.FLOATS:
            return list(attribute.floats)
        case attribute.INTS:
            return list(attribute.ints)
        case attribute.STRINGS:
            return [text.decode(errors="replace") for text in attribute.strings]
    return None


def _module_path(node: Any) -> str:
    """Return a node's module path, "layer1.0.conv1", from its metadata or its name."""
    for entry in node.metadata_props:
        if entry.key == "pkg.torch.onnx.name_scopes":
            try:
                scopes = ast.literal_eval(entry.value)
                return str(scopes[-2]) if len(scopes) > 1 else ""
            except (ValueError, SyntaxError, MemoryError, RecursionError, LookupError, TypeError):
                break
    name: str = node.name
    if not name.startswith("/"):
        return name
    parts: list[str] = []
    for part in name.strip("/").split("/")[:-1]:
        if parts and part.startswith(f"{parts[-1]}."):
            parts[-1] = part
        else:
            parts.append(part)
    return ".".join(re.sub(r"_\d+$", "", part) for part in parts)


# --- what follows from it

_LIKE_FIRST_INPUT = frozenset(
    (
        *("GroupNormalization", "MeanVarianceNormalization", "Trilu"),
        *("FastGelu", "QuickGelu", "BiasGelu"),  # of ONNX Runtime
    )
)
"""Ops whose outputs are like their first inputs, which onnx does not infer."""

_OF_WHOLE_NUMBERS = frozenset(
    (
        *("Gather", "Concat", "Unsqueeze", "Squeeze", "Slice", "Cast", "Identity"),
        *("Add", "Sub", "Mul", "Div", "Reshape"),
    )
)
"""Ops by which models compute shapes from the sizes of others."""


def _infer_shapes(model: Any, where: str) -> tuple[dict[str, TensorArgument], dict[str, Values]]:
    """Return the tensors whose shapes follow, and the whole numbers of which shapes are made.

    onnx's inference follows most of these numbers itself. Where shapes remain unknown, those that
    it found allow others to be computed; they become constants of the model, and it infers again.
    """
    from onnx.defs import onnx_opset_version
    from onnx.shape_inference import InferenceError, infer_shapes

    domains = ("", "ai.onnx")  # names of onnx's own ops
    imported = {"" if opset.domain in domains else opset.domain for opset in model.opset_import}
    needed = {"" if node.domain in domains else node.domain for node in model.graph.node}
    for domain in needed - imported:
        model.opset_import.add(domain=domain, version=1 if domain else onnx_opset_version())
    for node in model.graph.node:
        if node.op_type in _LIKE_FIRST_INPUT:
            node.op_type, node.domain = "Identity", ""
            del node.input[1:]
    constants = _constants(model)
    while True:
        try:
            graph = infer_shapes(model, data_prop=True).graph
        except (InferenceError, ValueError) as error:
            declared = (*model.graph.value_info, *model.graph.output)
            if any(info.HasField("type") for info in declared):  # It may contradict what follows.
                for info in declared:
                    info.ClearField("type")
                continue
            reason = str(error).strip().partition("\n")[0]
            raise InputError(f"{where}: its shapes cannot be inferred: {reason}") from None
        tensors = _known_tensors((*graph.input, *graph.value_info, *graph.output))
        computed = _compute_sizes(model, tensors, constants)
        constants |= computed
        values = {value for node in graph.node for value in node.output if value}
        if not computed or values <= tensors.keys():
            return tensors, constants


def _constants(model: Any) -> dict[str, Values]:
    """Return the constants of few whole numbers."""
    from onnx.numpy_helper import to_array

    constants: dict[str, Values] = {}
    for tensor in model.graph.initializer:
        if tensor.data_location != tensor.EXTERNAL and _is_short(shape_of(tensor.dims)):
            with suppress(*FAULTS):
                constants[tensor.name] = to_array(tensor)
    for node in model.graph.node:
        if node.op_type == "Constant" and node.output:
            constants |= _evaluate(node, {}, model)
    return {name: value for name, value in constants.items() if value.dtype.kind in "iub"}


def _is_short(shape: Sequence[int] | None) -> bool:
    return shape is not None and math.prod(shape) <= LARGEST_VALUE


def _compute_sizes(
    model: Any, tensors: Mapping[str, TensorArgument], known: Mapping[str, Values]
) -> dict[str, Values]:
    """Return what follows from sizes and constants, and make it constant in the model."""
    from onnx.helper import make_node
    from onnx.numpy_helper import from_array

    constants = dict(known)
    for node in model.graph.node:
        if len(node.output) != 1 or node.output[0] in constants:
            continue
        inputs = {name: constants[name] for name in node.input if name in constants}
        if node.op_type in ("Shape", "Size") and node.input and node.input[0] in tensors:
            inputs[node.input[0]] = like(tensors[node.input[0]].shape)
        elif node.op_type not in _OF_WHOLE_NUMBERS:
            continue
        are_whole = all(value.dtype.kind in "iub" for value in inputs.values())
        if are_whole and len(inputs) == len(set(node.input) - {""}):
            computed = _evaluate(node, inputs, model)
            constants |= computed
            for name, value in computed.items():
                node.CopyFrom(make_node("Constant", (), (name,), value=from_array(value)))
    return {name: value for name, value in constants.items() if name not in known}


def _evaluate(node: Any, inputs: Mapping[str, Values], model: Any) -> dict[str, Values]:
    """Return what a node puts out, if it is few numbers; nothing if its inputs do not fit."""
    from onnx.reference import ReferenceEvaluator

    opsets = {opset.domain: opset.version for opset in model.opset_import}
    try:
        values: Any = ReferenceEvaluator(node, opsets=opsets).run(None, dict(inputs))
    except Exception:  # onnx's ops raise what they like on damaged files
        return {}
    named = zip(map(str, node.output), values, strict=False)
    return {name: value for name, value in named if _is_short(np.shape(value))}
