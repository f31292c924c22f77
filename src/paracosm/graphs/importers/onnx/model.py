"""An ONNX model as plain data: its nodes and its values, as far as they are known."""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.graphs.graph import TensorArgument
from paracosm.graphs.importers.calls import check_sizes
from paracosm.graphs.importers.shape_rules import shape_of
from paracosm.graphs.importers.wire import Message, decode, schema

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
    """A model: values by name, and the nodes in the order of the file, which runs.

    `tensors` are those whose shape the file gives, `constants` those that are known and few, `free`
    those with sizes by name or none, with these sizes.
    """

    nodes: tuple[OnnxNode, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    weights: Mapping[str, TensorArgument]
    tensors: dict[str, TensorArgument]
    dtypes: dict[str, str]
    constants: dict[str, Values]
    free: Mapping[str, tuple[str, ...]]
    producer: str
    opset: int


def read_model(data: bytes, where: str, sizes: Mapping[str, int]) -> Model:
    """Return the model of an ONNX file.

    `sizes` gives those that the file has by name; "batch" stands for an unnamed first one.
    """
    found = decode(data, "ModelProto", ONNX, where)
    graph = found["graph"]
    if graph is None:
        raise InputError(f"{where}: no ONNX model: it lacks ModelProto.graph")
    if not graph["node"]:
        raise InputError(f"{where}: an ONNX model without nodes: GraphProto.node is empty")
    tensors: dict[str, TensorArgument] = {}
    dtypes: dict[str, str] = {}
    constants: dict[str, Values] = {}
    free: dict[str, tuple[str, ...]] = {}
    weights = _weights(graph, constants)
    declared = (*graph["input"], *graph["value_info"], *graph["output"])
    check_sizes(sizes, {name: None for info in declared for name in _open_sizes(info)}, where)
    for info in declared:
        _declare(info, sizes, tensors, dtypes, free)
    tensors.update(weights)
    dtypes.update({name: weight.dtype for name, weight in weights.items()})
    nodes = tuple(_node(node, constants) for node in graph["node"])
    versions = {each["domain"]: each["version"] for each in found["opset_import"]}
    return Model(
        nodes=nodes,
        inputs=tuple(i["name"] for i in graph["input"] if i["name"] not in weights),
        outputs=tuple(output["name"] for output in graph["output"]),
        weights=weights,
        tensors=tensors,
        dtypes=dtypes,
        constants=constants,
        free=free,
        producer=f"{found['producer_name']} {found['producer_version']}".strip(),
        opset=versions.get("", versions.get("ai.onnx", 0)),
    )


def _weights(graph: Message, constants: dict[str, Values]) -> dict[str, TensorArgument]:
    weights = {}
    for each in graph["initializer"]:
        if (shape := shape_of(each["dims"])) is not None:
            dtype = DTYPES.get(each["data_type"], "unknown")
            weights[each["name"]] = TensorArgument(shape, dtype)
            if (value := _value(each)) is not None:
                constants[each["name"]] = value
    for each in graph["sparse_initializer"]:
        if each["values"] is not None and (shape := shape_of(each["dims"])) is not None:
            dtype = DTYPES.get(each["values"]["data_type"], "unknown")
            weights[each["values"]["name"]] = TensorArgument(shape, dtype)
    return weights


def _open_sizes(info: Message) -> Iterator[str]:
    shape = ((info["type"] or {}).get("tensor_type") or {}).get("shape") or {"dim": ()}
    for position, dim in enumerate(shape["dim"]):
        if dim["dim_param"]:
            yield dim["dim_param"]
        if position == 0 and (dim["dim_param"] or not dim["dim_value"]):
            yield "batch"


def _declare(
    info: Message,
    sizes: Mapping[str, int],
    tensors: dict[str, TensorArgument],
    dtypes: dict[str, str],
    free: dict[str, tuple[str, ...]],
) -> None:
    kind = (info["type"] or {}).get("tensor_type")
    if kind is None:
        return
    dtypes[info["name"]] = DTYPES.get(kind["elem_type"], "unknown")
    if kind["shape"] is None:
        return
    shape, unknown = [], []
    for position, dim in enumerate(kind["shape"]["dim"]):
        named = dim["dim_param"]
        given = sizes.get(named) if named else None
        if given is None and position == 0 and (named or not dim["dim_value"]):
            given = sizes.get("batch")
        size = given if given is not None else -1 if named else dim["dim_value"]
        # An unknown size may be written as 0.
        if size < 0 or (size == 0 and not named and given is None):
            size = -1
            unknown.append(named or ("batch" if position == 0 else f"size {position}"))
        shape.append(size)
    if unknown:
        free[info["name"]] = tuple(unknown)
    elif (sound := shape_of(shape)) is not None:
        tensors[info["name"]] = TensorArgument(sound, dtypes[info["name"]])


def _node(found: Message, constants: dict[str, Values]) -> OnnxNode:
    node = OnnxNode(
        op=found["op_type"],
        module=_module_path(found),
        inputs=tuple(found["input"]),
        outputs=tuple(found["output"]),
        attributes={each["name"]: _attribute(each) for each in found["attribute"]},
    )
    if node.op == "Constant" and node.outputs and (value := _constant(found)) is not None:
        constants[node.outputs[0]] = value
    return node


_FIELDS = {1: "f", 2: "i", 3: "s", 6: "floats", 7: "ints", 8: "strings"}
"""Field of an attribute's value by its type."""


def _attribute(found: Message) -> Any:
    field = _FIELDS.get(found["type"])
    if field is None:
        # Files of before IR version 2 have no type.
        field = next((each for each in ("ints", "floats", "i", "f", "s") if found[each]), "i")
        if found["t"] is not None or found["g"]:
            return None
    value = found[field]
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    if field == "strings":
        return [each.decode(errors="replace") for each in value]
    return value


def _constant(found: Message) -> Values | None:
    for each in found["attribute"]:
        if each["name"] == "value" and each["t"] is not None:
            return _value(each["t"])
        if each["name"] in ("value_int", "value_float"):
            return np.array(each["i" if each["name"] == "value_int" else "f"])
        if each["name"] in ("value_ints", "value_floats"):
            return np.array(each["ints" if each["name"] == "value_ints" else "floats"])
    return None


_NUMPY = {
    1: "<f4", 2: "u1", 3: "i1", 4: "<u2", 5: "<i2", 6: "<i4", 7: "<i8", 9: "?", 10: "<f2",
    11: "<f8", 12: "<u4", 13: "<u8",
}  # fmt: skip


def _value(found: Message) -> Values | None:
    shape, kind = shape_of(found["dims"]), _NUMPY.get(found["data_type"])
    if shape is None or kind is None or np.prod(shape, dtype=np.int64) > LARGEST_VALUE:
        return None
    count = int(np.prod(shape, dtype=np.int64))
    raw = found["raw_data"]
    if raw and len(raw) == count * np.dtype(kind).itemsize:
        return np.frombuffer(raw, dtype=kind).reshape(shape)
    fields = ("int64_data", "int32_data", "float_data", "double_data")
    typed = next((found[field] for field in fields if found[field]), None)
    if typed is None or len(typed) != count:
        return np.zeros(shape, dtype=kind) if count == 0 else None
    return np.array(typed).reshape(shape)


def _module_path(found: Message) -> str:
    """Return a node's module path, "layer1.0.conv1", from its metadata or its name."""
    for each in found["metadata_props"]:
        if each["key"] == "pkg.torch.onnx.name_scopes":
            try:
                scopes = ast.literal_eval(each["value"])
                return str(scopes[-2]) if len(scopes) > 1 else ""
            except (ValueError, SyntaxError, MemoryError, RecursionError, LookupError, TypeError):
                break
    name: str = found["name"]
    if not name.startswith("/"):
        return name
    parts: list[str] = []
    for part in name.strip("/").split("/")[:-1]:
        if parts and part.startswith(f"{parts[-1]}."):
            parts[-1] = part
        else:
            parts.append(part)
    return ".".join(re.sub(r"_\d+$", "", part) for part in parts)


ONNX = schema(Path(__file__).with_name("messages.txt").read_text("utf-8"))
"""Of onnx.proto, IR versions 3 to 11. Of `raw_data` only what is short is read: the values of a
shape, not the weights."""

DTYPES = {
    1: "float32", 2: "uint8", 3: "int8", 4: "uint16", 5: "int16", 6: "int32", 7: "int64",
    8: "string", 9: "bool", 10: "float16", 11: "float64", 12: "uint32", 13: "uint64",
    14: "complex64", 15: "complex128", 16: "bfloat16", 17: "float8_e4m3fn", 19: "float8_e5m2",
}  # fmt: skip
"""Names of types by their number."""
