"""TensorFlow graphs (GraphDef, SavedModel) as graphs."""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from paracosm.errors import InputError
from paracosm.files import read_bytes
from paracosm.graphs.check import in_issue_order, node_label
from paracosm.graphs.flops import (
    UPDATE_FLOPS,
    convolution_flops,
    elementwise_flops,
    product_flops,
)
from paracosm.graphs.graph import Graph, TensorArgument
from paracosm.graphs.importers.calls import (
    Call,
    bytes_of,
    check_sizes,
    elements_of,
    graph_of_calls,
    shapes_of,
)
from paracosm.graphs.importers.tensorflow.nodes import (
    Known,
    TfNode,
    infer_shapes,
    needed_by,
    read_nodes,
)

_VARIABLES = frozenset(("Variable", "VariableV2", "VarHandleOp"))


def read_graph_def(
    path: Path,
    *,
    sizes: Mapping[str, int] | None = None,
    fetch: Sequence[str] = (),
    saved_model: bool = False,
) -> Graph:
    """Read a GraphDef or a SavedModel (saved_model.pb) in protobuf's binary form.

    Shapes are those of `_output_shapes`, else inferred. Functions are written out where they are
    called. The body of a while loop counts once.

    Args:
        path: the file, gzipped or not.
        sizes: {"batch": 8} where placeholders leave the first size open.
        fetch: names of nodes; only what they need is read. All nodes where it is empty.
        saved_model: whether it is a SavedModel; of that, the first signature is read.
    """
    where = str(path)
    nodes = read_nodes(read_bytes(path), where, saved_model)
    if fetch:
        nodes = needed_by(nodes, fetch, where)
    nodes, loops = _in_order(nodes, where)
    known = infer_shapes(nodes, sizes or {})
    check_sizes(sizes or (), ("batch",) if known.first_open else (), where)
    variables = _variables(nodes, known)
    phases = _phases(nodes)
    position = {node.name: row for row, node in enumerate(nodes)}
    calls = [_call(node, known, variables, phases[node.name], position) for node in nodes]
    gradients = _gradients(nodes)
    provenance = _provenance(path, nodes, calls, known)
    return graph_of_calls(
        calls,
        known.tensors,
        where=where,
        resident=_resident(nodes, known, variables),
        provenance=provenance | {"loops_counted_once": loops, "saved_model": saved_model},
        kept=gradients,
    )


def _in_order(nodes: Sequence[TfNode], where: str) -> tuple[list[TfNode], int]:
    row = {}
    for number, node in enumerate(nodes):
        if node.name in row:
            raise InputError(f"{where}: two nodes have the name {node.name}")
        row[node.name] = number
    waits: list[list[int]] = []
    kept: list[TfNode] = []
    loops = 0
    for number, node in enumerate(nodes):
        names = [value.rpartition(":")[0] for value in node.inputs] + [*node.control]
        for name in names:
            if name not in row:
                raise InputError(
                    f"{where}: {node_label(number, node.op, node.name)} waits for {name}, which "
                    "does not exist: the file is cut off, or a part of a graph"
                )
        if node.op in ("Merge", "RefMerge"):
            closing = {name for name in names if nodes[row[name]].op.endswith("NextIteration")}
            loops += bool(closing)
            inputs = [v for v in node.inputs if v.rpartition(":")[0] not in closing]
            node = replace(node, inputs=tuple(inputs))
            names = [name for name in names if name not in closing]
        kept.append(node)
        waits.append(sorted({row[name] for name in names}))
    order = in_issue_order(
        waits, range(len(kept)), lambda i: node_label(i, kept[i].op, kept[i].name), where
    )
    return [kept[number] for number in order], loops


def _variables(nodes: Sequence[TfNode], known: Known) -> dict[str, TensorArgument]:
    """Return the variables' tensors by every value that stands for one: handles and reads."""
    variables: dict[str, TensorArgument] = {}
    for node in nodes:
        value = f"{node.name}:0"
        if node.op in _VARIABLES and value in known.tensors:
            variables[value] = known.tensors[value]
        elif node.op in ("Identity", "ReadVariableOp", "Enter") and node.inputs:
            if node.inputs[0] in variables:
                variables[value] = variables[node.inputs[0]]
                known.tensors.setdefault(value, variables[value])
            elif node.inputs[0] in known.tensors:
                known.tensors.setdefault(value, known.tensors[node.inputs[0]])
    return variables


def _call(
    node: TfNode,
    known: Known,
    variables: Mapping[str, TensorArgument],
    phase: str,
    position: Mapping[str, int],
) -> Call:
    resource = resource_of(node.op)
    outputs: list[str] = []
    while (value := f"{node.name}:{len(outputs)}") in known.tensors:
        outputs.append(value)
    inputs = [known.tensors.get(value) for value in node.inputs]
    waits = {position[name] for name in node.control}
    # Outputs of unknown shapes are waited for by the name of the node.
    waits |= {position[value.rpartition(":")[0]] for value in node.inputs}
    written = sum(bytes_of(variables.get(value)) for value in node.inputs)
    return Call(
        op=f"tensorflow.{node.op}",
        name=module_path(node.name),
        inputs=node.inputs,
        outputs=tuple(outputs),
        attributes=_plain(node),
        flops=flops_of(node.op, inputs, [known.tensors[value] for value in outputs]),
        moved=(sum(map(bytes_of, inputs)), written) if is_update(node.op) else None,
        phase=phase,
        resource=resource,
        waits=tuple(sorted(waits)),
    )


def _plain(node: TfNode) -> dict[str, Any]:
    """Return the texts, flags and lists of numbers among a node's attributes."""
    return {
        name: value
        for name, value in sorted(node.attributes.items())
        if not name.startswith("_")
        and name not in ("shared_name", "container")
        and value
        and (isinstance(value, str | bool) or (isinstance(value, list) and type(value[0]) is int))
    }


def _phases(nodes: Sequence[TfNode]) -> dict[str, str]:
    phases = {node.name: phase_by_name(node.name, node.op) for node in nodes}
    needed = {name for name, phase in phases.items() if phase == "backward"}
    for node in reversed(nodes):
        if node.name in needed:
            needed |= {value.rpartition(":")[0] for value in node.inputs}
    for node in nodes:
        if node.name in needed and phases[node.name] == "optimizer" and not is_update(node.op):
            phases[node.name] = "forward"
    return phases


def _gradients(nodes: Sequence[TfNode]) -> set[str]:
    backward = {node.name for node in nodes if phase_by_name(node.name, node.op) == "backward"}
    inputs = (value for node in nodes if is_update(node.op) for value in node.inputs)
    return {value for value in inputs if value.rpartition(":")[0] in backward}


def _resident(
    nodes: Sequence[TfNode], known: Known, variables: Mapping[str, TensorArgument]
) -> dict[str, int]:
    """Return what is held: variables (those of optimizers separately), inputs."""
    held = {"parameters": 0, "optimizer": 0, "inputs": 0}
    names = {node.name for node in nodes if node.op in _VARIABLES}
    for node in nodes:
        size = bytes_of(known.tensors.get(f"{node.name}:0"))
        if node.op in _VARIABLES:
            is_slot = node.name.rpartition("/")[0] in names or node.name.startswith("beta")
            held["optimizer" if is_slot else "parameters"] += size
        elif node.op == "Placeholder":
            held["inputs"] += size
    return held


def _provenance(
    path: Path, nodes: Sequence[TfNode], calls: Sequence[Call], known: Known
) -> dict[str, Any]:
    open_ = [
        call
        for call in calls
        if call.resource == "compute"
        and not call.outputs
        and not puts_out_nothing(call.op.removeprefix("tensorflow."))
    ]
    provenance: dict[str, Any] = {
        "importer": "tensorflow-graph",
        "source": "TensorFlow graph",
        "file": path.name,
        "without_shape": len(open_),
        "unknown_sizes": ["batch"] if known.free else [],
        "placeholders_without_shape": known.free[:20],
    }
    for node in nodes:
        tensor = known.tensors.get(f"{node.name}:0")
        if node.op == "Placeholder" and tensor is not None and tensor.shape:
            provenance["examples"] = tensor.shape[0]
            break
    return provenance


HOST = frozenset(
    (
        *("Const", "HostConst", "Identity", "IdentityN", "NoOp", "Placeholder", "ControlTrigger"),
        *("PlaceholderWithDefault", "Variable", "VariableV2", "VarHandleOp", "ReadVariableOp"),
        *("Shape", "ShapeN", "Rank", "Size", "Reshape", "ExpandDims", "Squeeze", "StopGradient"),
        *("PreventGradient", "_Arg", "_Retval", "_Feed", "_Fetch", "Switch", "Merge", "Enter"),
        *("Exit", "NextIteration", "LoopCond", "RefIdentity", "RefSwitch", "RefMerge", "Assert"),
        *("BroadcastGradientArgs", "VarIsInitializedOp", "RefEnter", "RefExit", "_DeviceArg"),
    )
)
"""Ops that name what is there, show it in another form, or only put others in order."""

_MOVES = frozenset(
    (
        *("Transpose", "Concat", "ConcatV2", "Split", "SplitV", "Slice", "StridedSlice", "Pack"),
        *("Unpack", "Tile", "Fill", "Gather", "GatherV2", "ResourceGather", "Pad", "PadV2", "Cast"),
        *("ZerosLike", "OnesLike", "Assign", "AssignVariableOp", "RandomUniform", "BroadcastTo"),
        *("RandomStandardNormal", "TruncatedNormal", "MirrorPad", "StridedSliceGrad", "Range"),
        *("ConcatOffset", "DynamicStitch", "InvertPermutation", "OneHot", "Select", "SelectV2"),
    )
)
_COMMUNICATION = re.compile(r"Collective|Nccl|Horovod|CrossReplica|XlaAllReduce")
_COPIES = re.compile(r"_(Host)?(Send|Recv)$|^MEMCPY|^Memcpy|^_Copy")
_UPDATE = re.compile(r"^(Resource)?(Sparse)?Apply[A-Z]|^Assign(Add|Sub)|^(Resource)?Scatter")
_BACKWARD = re.compile(r"^(gradients|gradient_tape)(_\d+)?$")
_OPTIMIZER = re.compile(
    r"^(train|apply_gradients|update|sgd|adam|adamw|adagrad|adadelta|rmsprop|momentum|ftrl|lamb|lars|"
    r"gradientdescent)(_\d+)?$",
    re.IGNORECASE,
)
_OTHER = re.compile(r"^(save|init|report_uninitialized_variables)(_\d+)?$")

_UPDATES = {
    "ApplyGradientDescent": "sgd",
    "ApplyMomentum": "momentum",
    "ApplyAdam": "adam",
    "ApplyAdagrad": "adagrad",
}


def resource_of(op: str) -> str:
    if op in HOST:
        return "host"
    if _COMMUNICATION.search(op):
        return "communication"
    return "memory" if _COPIES.search(op) else "compute"


def is_update(op: str) -> bool:
    return _UPDATE.search(op) is not None


def puts_out_nothing(op: str) -> bool:
    """Whether an op exists only for its side effect."""
    return is_update(op) or op.startswith(("Assign", "Save", "Restore", "Summary", "Write"))


def phase_by_name(name: str, op: str) -> str:
    """Return the phase that an op's type or its scopes indicate."""
    scopes = name.split("/")
    if any(_OTHER.match(scope) for scope in scopes[:1]):
        return "other"
    if is_update(op):
        return "optimizer"
    if any(_BACKWARD.match(scope) for scope in scopes):
        return "backward"
    return "optimizer" if _OPTIMIZER.match(scopes[0]) else "forward"


def module_path(name: str) -> str:
    """Return the module path, "block1.conv1" of "gradients/block1/conv1/Conv2D_grad/Mul"."""
    scopes = [scope for scope in name.split("/")[:-1] if not _BACKWARD.match(scope)]
    grads = [i for i, scope in enumerate(scopes) if re.search(r"_grad(_\d+)?$", scope)]
    scopes = scopes[: grads[0]] if grads else scopes
    if scopes and _OPTIMIZER.match(scopes[0]):
        scopes = [scopes[1].removeprefix("update_"), *scopes[2:-1]] if len(scopes) > 1 else []
    return ".".join(scopes)


def flops_of(
    op: str, inputs: Sequence[TensorArgument | None], outputs: Sequence[TensorArgument | None]
) -> int:
    """Return floating-point operations; 0 if the shapes are unknown."""
    plain = op.removeprefix("_Fused").removeprefix("Resource")
    if op in HOST or plain in _MOVES or _COPIES.search(op):
        return 0
    if plain in _UPDATES and inputs:
        return UPDATE_FLOPS[_UPDATES[plain]] * max(map(elements_of, inputs))
    if "Conv" in plain and len(inputs) > 1:
        return _convolution(plain, inputs, outputs)
    if plain.startswith(("MatMul", "BatchMatMul")) and len(inputs) > 1 and outputs:
        a, b, out = inputs[0], inputs[1], outputs[0]
        if a is None or b is None or out is None or len(out.shape) < 2 or not elements_of(out):
            return 0
        # Rows x inner of a, inner x columns of b, rows x columns: inner follows from their sizes.
        rows, columns = out.shape[-2:]
        batch = max(math.prod(out.shape[:-2]), 1)
        inner = elements_of(a) * batch // max(math.prod(a.shape[:-2]), 1) // (batch * rows)
        return product_flops((batch, rows, columns), inner)
    return elementwise_flops(shapes_of((*inputs, *outputs)))


def _convolution(
    op: str, inputs: Sequence[TensorArgument | None], outputs: Sequence[TensorArgument | None]
) -> int:
    out = outputs[0] if outputs else None
    if op.endswith("BackpropInput"):
        weight, moved = inputs[1], inputs[2] if len(inputs) > 2 else None
    elif op.endswith("BackpropFilter"):
        weight, moved = out, inputs[2] if len(inputs) > 2 else None
    else:
        weight, moved = inputs[1], out
    if weight is None or moved is None:
        return 0
    kernel = weight.shape[:-2] if op.startswith("Depthwise") else weight.shape[:-1]
    return convolution_flops(moved.shape, kernel)
