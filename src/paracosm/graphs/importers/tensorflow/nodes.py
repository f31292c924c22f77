"""The nodes of a TensorFlow graph as plain data, with the functions it calls written out."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError, unknown
from paracosm.graphs.importers.shape_rules import shape_of
from paracosm.graphs.importers.wire import Message, decode, schema

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

    """

    name: str
    op: str
    device: str
    inputs: tuple[str, ...]
    control: tuple[str, ...]
    attributes: Mapping[str, Any]


def read_nodes(data: bytes, where: str, saved_model: bool) -> list[TfNode]:
    """Return the nodes of a GraphDef; of a SavedModel, those of its first signature."""
    fetch: list[str] = []
    if saved_model:
        graphs = decode(data, "SavedModel", TENSORFLOW, where)["meta_graphs"]
        if not graphs or graphs[0]["graph_def"] is None:
            raise InputError(f"{where}: no SavedModel: it lacks meta_graphs.graph_def")
        found = graphs[0]["graph_def"]
        fetch = _outputs(graphs[0]["signature_def"])
    else:
        found = decode(data, "GraphDef", TENSORFLOW, where)
    if not found["node"]:
        raise InputError(f"{where}: no TensorFlow graph: GraphDef.node is empty")
    library = {
        function["signature"]["name"]: function
        for function in (found["library"] or {"function": []})["function"]
        if function["signature"] is not None
    }
    nodes: list[TfNode] = []
    _write_out(found["node"], library, "", {}, nodes, where, 0)
    return needed_by(nodes, fetch, where) if fetch else nodes


def needed_by(nodes: Sequence[TfNode], fetch: Sequence[str], where: str) -> list[TfNode]:
    """Return the nodes that must run so that those named in `fetch` do."""
    by_name = {node.name: node for node in nodes}
    reached: set[str] = set()
    open_ = []
    for name in fetch:
        if name not in by_name:
            raise InputError(f"{where}: {unknown('node', name, list(by_name)[:5000])}")
        open_.append(name)
    while open_:
        name = open_.pop()
        if name in reached or name not in by_name:
            continue
        reached.add(name)
        node = by_name[name]
        open_ += [value.rpartition(":")[0] for value in node.inputs]
        open_ += node.control
    return [node for node in nodes if node.name in reached]


def dtype_of(number: int) -> str:
    return DTYPES.get(number % 100 if number > 100 else number, "unknown")


def shape_proto(found: Message | None) -> tuple[int, ...] | None:
    """Return a TensorShapeProto as a shape, with -1 for unknown sizes; None of unknown rank."""
    if found is None or found["unknown_rank"]:
        return None
    sizes = [dim["size"] for dim in found["dim"]]
    if shape_of([max(size, 0) for size in sizes]) is None:
        return None
    return tuple(-1 if size < 0 else size for size in sizes)


def constant_of(node: TfNode) -> npt.NDArray[np.int64] | None:
    """Return the whole numbers of a Const that has few; None of any other."""
    tensor = (node.attributes.get("value") or {}).get("tensor")
    if tensor is None:
        return None
    shape, dtype = shape_proto(tensor["tensor_shape"]), dtype_of(tensor["dtype"])
    shape = () if tensor["tensor_shape"] is None else shape
    if shape is None or dtype not in ("int32", "int64") or math.prod(shape) > 4096:
        return None
    count, raw = math.prod(shape), tensor["tensor_content"]
    kind = np.dtype(dtype).newbyteorder("<")
    if raw and len(raw) == count * kind.itemsize:
        return np.frombuffer(raw, dtype=kind).astype(np.int64).reshape(shape)
    given = tensor["int_val"] or tensor["int64_val"]
    if len(given) == 1:  # one value stands for all
        return np.full(shape, given[0], dtype=np.int64)
    if len(given) == count:
        return np.array(given, dtype=np.int64).reshape(shape)
    return None


def _outputs(signatures: Mapping[str, Message]) -> list[str]:
    """Return the nodes that the first signature puts out, "serving_default" before any other."""
    order = sorted(signatures, key=lambda name: (name != "serving_default", name))
    for name in order:
        if not name.startswith("__") and signatures[name]["outputs"]:
            infos = signatures[name]["outputs"].values()
            return sorted({info["name"].partition(":")[0] for info in infos})
    return []


def _write_out(
    found: Sequence[Message],
    library: Mapping[str, Message],
    scope: str,
    given: Mapping[str, str],
    nodes: list[TfNode],
    where: str,
    depth: int,
) -> dict[str, str]:
    """Enter nodes, and instead of calls the nodes of their functions."""
    if depth > _DEPTH or len(nodes) > _LARGEST:
        raise InputError(f"{where}: functions that call each other without an end")
    ops = {node["name"]: node["op"] for node in found}
    for node in found:
        inputs = tuple(_value(i, ops, scope, given) for i in node["input"] if not i.startswith("^"))
        control = tuple(scope + i[1:] for i in node["input"] if i.startswith("^"))
        called = ((node["attr"].get("f") or {}).get("func") or {}).get("name")
        function = library.get(called or node["op"])
        name = scope + node["name"]
        if function is None or (called and "Call" not in node["op"]):
            nodes.append(TfNode(name, node["op"], node["device"], inputs, control, node["attr"]))
            continue
        arguments = [each["name"] for each in function["signature"]["input_arg"]]
        bound = dict(zip(arguments, inputs, strict=False))
        inner = _write_out(
            function["node_def"], library, f"{name}/", bound, nodes, where, depth + 1
        )
        returned = [
            _value(function["ret"].get(each["name"], each["name"]), inner, f"{name}/", bound)
            for each in function["signature"]["output_arg"]
        ]
        # The call itself stays, on the host: what others name as its outputs is what it returns.
        nodes.append(TfNode(name, "IdentityN", node["device"], tuple(returned), control, {}))
    return ops


def _value(text: str, ops: Mapping[str, str], scope: str, given: Mapping[str, str]) -> str:
    """Return the value "node:position" that an input names: "node", "node:1", "node:y:0"."""
    name, *rest = text.split(":")
    if name in given and name not in ops:
        return given[name]
    if len(rest) == 2:
        op = ops.get(name, "").rstrip("V23456789")
        names = _OUTPUTS.get(op, ())
        first = names.index(rest[0]) if rest[0] in names else 0
        rest = [str(first + int(rest[1])) if rest[1].isdecimal() else "0"]
    return f"{scope}{name}:{rest[0] if rest and rest[0].isdecimal() else 0}"


TENSORFLOW = schema("""
    SavedModel = 1 saved_model_schema_version int, 2 meta_graphs MetaGraphDef*
    MetaGraphDef = 2 graph_def GraphDef, 5 signature_def map:SignatureDef
    SignatureDef = 1 inputs map:TensorInfo, 2 outputs map:TensorInfo
    TensorInfo = 1 name string
    GraphDef = 1 node NodeDef*, 2 library FunctionDefLibrary, 4 versions VersionDef
    VersionDef = 1 producer int
    FunctionDefLibrary = 1 function FunctionDef*
    FunctionDef = 1 signature OpDef, 3 node_def NodeDef*, 4 ret map:string
    OpDef = 1 name string, 2 input_arg ArgDef*, 3 output_arg ArgDef*
    ArgDef = 1 name string, 3 type int
    NodeDef = 1 name string, 2 op string, 3 input string*, 4 device string, 5 attr map:AttrValue
    AttrValue = 1 list ListValue, 2 s bytes, 3 i int, 4 f float, 5 b bool, 6 type int,
        7 shape TensorShapeProto, 8 tensor TensorProto, 10 func NameAttrList
    ListValue = 3 i int*, 6 type int*, 7 shape TensorShapeProto*
    NameAttrList = 1 name string
    TensorShapeProto = 2 dim Dim*, 3 unknown_rank bool
    Dim = 1 size int
    TensorProto = 1 dtype int, 2 tensor_shape TensorShapeProto, 4 tensor_content short,
        7 int_val int*, 10 int64_val int*
    RunMetadata = 1 step_stats StepStats
    PartitionedRun = 3 partition_graphs Partition*
    Partition = 1 node PartitionNode*
    PartitionNode = 1 name string, 2 op string, 3 input string*, 4 device string,
        5 attr map:PartitionAttr
    PartitionAttr = 2 s bytes, 5 b bool
    StepStats = 1 dev_stats DeviceStepStats*
    DeviceStepStats = 1 device string, 2 node_stats NodeExecStats*
    NodeExecStats = 1 node_name string, 2 all_start_micros int, 5 all_end_rel_micros int,
        7 output NodeOutput*, 8 timeline_label string, 13 all_start_nanos int,
        16 all_end_rel_nanos int
    NodeOutput = 1 slot int, 3 tensor_description TensorDescription
    TensorDescription = 1 dtype int, 2 shape TensorShapeProto,
        4 allocation_description AllocationDescription
    AllocationDescription = 1 requested_bytes int
""")
"""Of tensorflow/core/framework. A `PartitionedRun` is a RunMetadata again: its graphs without its
times."""

DTYPES = {
    1: "float32", 2: "float64", 3: "int32", 4: "uint8", 5: "int16", 6: "int8", 7: "string",
    8: "complex64", 9: "int64", 10: "bool", 14: "bfloat16", 17: "uint16", 18: "complex128",
    19: "float16", 20: "resource", 21: "variant", 22: "uint32", 23: "uint64",
}  # fmt: skip
"""Names of types by their number; a reference to a variable has 100 more."""
