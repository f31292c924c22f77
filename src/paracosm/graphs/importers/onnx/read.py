"""ONNX files as graphs: the forward pass, and optionally the backward pass that would train it.

ONNX has forward passes only. For every op on the way from a parameter to an output, a rule defines
which of its inputs and outputs the gradient needs (they are kept until then), and how much it
computes. Products have one node for each gradient, as kernel libraries do:

    Y = X W        dX = dY W^T        dW = X^T dY        db = column sums of dY

Gradients of one value are added. The gradient of a parameter outlives the pass.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from paracosm.errors import InputError, unknown
from paracosm.files import read_bytes
from paracosm.graphs.flops import (
    UPDATE_FLOPS,
    convolution_flops,
    elementwise_flops,
    product_flops,
)
from paracosm.graphs.graph import Graph, TensorArgument
from paracosm.graphs.importers.calls import Call, bytes_of, elements_of, graph_of_calls, shapes_of
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
    found: dict[str, Any] = {
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
        found["optimizer"] = optimizer
    first = model.tensors.get(model.inputs[0]) if model.inputs else None
    if first is not None and first.shape:
        found["examples"] = first.shape[0]
    return found


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
    if node.op not in _PRODUCTS:
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


Tensors = dict[str, TensorArgument]


@dataclass(frozen=True, slots=True)
class Rule:
    """How the gradient of an op is computed.

    It reads "x" for the inputs, "y" for the first output, both, or nothing; passes are
    floating-point operations for each element of the largest tensor, slots the inputs that can have
    a gradient (None: all).
    """

    reads: str = ""
    passes: int = 1
    slots: tuple[int, ...] | None = (0,)


_PRODUCTS = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))
_SUMS = frozenset(("Add", "Sub", "Sum"))
_VIEWS = frozenset(("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity"))

_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("Relu", "Sigmoid", "Tanh", "Exp", "Sqrt", "Reciprocal"), Rule("y", 2)),
    **dict.fromkeys(("LeakyRelu", "Elu", "Abs", "Log", "Sin", "Cos", "Clip"), Rule("x", 2)),
    **dict.fromkeys(("Gelu", "Erf", "HardSwish", "HardSigmoid", "Softplus", "Swish"), Rule("x", 4)),
    **dict.fromkeys(("Softmax", "LogSoftmax"), Rule("y", 4)),
    **dict.fromkeys(("Mul", "Div", "Pow", "PRelu"), Rule("x", 2, None)),
    **dict.fromkeys(("Min", "Max"), Rule("x", 1, None)),
    "Where": Rule("x", 1, (1, 2)),
    "BatchNormalization": Rule("x", 8, (0, 1, 2)),
    **dict.fromkeys(("LayerNormalization", "GroupNormalization"), Rule("x", 8, (0, 1, 2))),
    "InstanceNormalization": Rule("x", 8, (0, 1, 2)),
    "RMSNormalization": Rule("x", 6, (0, 1)),
    "MaxPool": Rule("xy", 1),
    **dict.fromkeys(("AveragePool", "GlobalAveragePool", "ReduceMean", "ReduceSum"), Rule("", 1)),
    **dict.fromkeys(("ReduceMax", "ReduceMin", "GlobalMaxPool"), Rule("xy", 1)),
    "Dropout": Rule("mask", 1),
    "Neg": Rule("", 1),
    **dict.fromkeys(("Transpose", "Cast", "Slice", "Expand", "Tile", "Pad"), Rule("", 0)),
    **dict.fromkeys(("Split", "Trilu"), Rule("", 0)),
    "Concat": Rule("", 0, None),
    **dict.fromkeys(("Gather", "GatherElements"), Rule("indices", 0)),
    **dict.fromkeys(("Resize", "Upsample"), Rule("", 1)),
}
"""Rules by op. Passes count the arithmetic of the textbook formula: a product and a comparison or
product for activations; four for softmax (dX = (dY - sum(dY Y)) Y) and for Gelu's two terms; eight
for norms (Ioffe and Szegedy 2015, section 3: sums of dY and dY X, then the gradient itself)."""

_STOPS = frozenset(
    (
        *("Shape", "Size", "NonZero", "ArgMax", "ArgMin", "Equal", "Greater", "Less", "Not", "And"),
        *("Or", "GreaterOrEqual", "LessOrEqual", "Constant", "ConstantOfShape", "Floor", "Ceil"),
        *("Round", "Sign", "OneHot", "Range", "IsNaN", "Xor", "EyeLike"),
    )
)
"""Ops that no gradient passes."""

OPTIMIZERS = {"sgd": 0, "adam": 2}
"""How many numbers they keep for each element of a parameter."""


def training_calls(
    calls: Sequence[Call],
    tensors: Tensors,
    parameters: Collection[str],
    outputs: Sequence[str],
    optimizer: str,
    where: str,
) -> tuple[list[Call], list[str]]:
    """Return calls of backward pass and optimizer, and the gradients that outlive the step."""
    pass_ = _Backward(tensors, set(parameters), where)
    pass_.mark(calls)
    wanted = [value for value in outputs if value in pass_.needed]
    if not wanted:
        raise InputError(
            f"{where}: nothing to train: no output depends on a parameter by ops with gradients"
        )
    pass_.begin(wanted)
    for call in reversed(calls):
        pass_.step(call)
    gradients = {value: pass_.sum_of(value) for value in parameters if value in pass_.parts}
    missing = [value for value in gradients if value not in tensors]
    if missing:
        raise InputError(f"{where}: the shape of the parameter {missing[0]} is not known")
    updates = [
        _update(value, gradient, tensors[value], optimizer) for value, gradient in gradients.items()
    ]
    return [*pass_.calls, *updates], list(gradients.values())


class _Backward:
    """The backward pass under construction: values that need gradients, and their parts."""

    def __init__(self, tensors: Tensors, parameters: set[str], where: str) -> None:
        self.tensors, self.where = tensors, where
        self.needed = set(parameters)
        self.parts: dict[str, list[str]] = {}
        self.calls: list[Call] = []
        self._module: dict[str, str] = {}

    def mark(self, calls: Sequence[Call]) -> None:
        for call in calls:
            op = _type(call)
            if op in _STOPS or not any(value in self.needed for value in _slots(call)):
                continue
            for value in call.outputs:
                tensor = self.tensors.get(value)
                if value and (tensor is None or tensor.dtype.startswith(("float", "bfloat"))):
                    self.needed.add(value)

    def begin(self, outputs: Sequence[str]) -> None:
        """Write the gradient of the loss by the outputs."""
        for value in outputs:
            gradient = self.new(value)
            flops = elements_of(self.tensors.get(value))
            self.add("loss.backward", (value,), (gradient,), "", flops)
            self.parts[value] = [gradient]

    def step(self, call: Call) -> None:
        """Write the gradients of a call's inputs, if any of its outputs has one."""
        coming = [self.sum_of(value) for value in call.outputs if value in self.parts]
        wanted = [value for value in _slots(call) if value in self.needed]
        if not coming or not wanted:
            return
        op = _type(call)
        if op in _PRODUCTS:
            self.product(call, coming[0])
        elif op in _SUMS:
            self.summed(call, coming[0])
        elif op in _VIEWS:
            self.emit(call, (coming[0],), wanted[:1], 0, "host")
        elif (rule := _RULES.get(op)) is not None:
            largest = max(elements_of(self.tensors.get(v)) for v in (*call.inputs, *call.outputs))
            reads = (*coming, *_read(call, rule))
            self.emit(call, reads, wanted, rule.passes * largest, "compute")
        else:
            raise InputError(
                f"{self.where}: no rule for the gradient of {op} "
                f"({call.name or call.outputs[0]}): only the forward pass can be imported"
            )

    def product(self, call: Call, coming: str) -> None:
        for slot, value in enumerate(call.inputs[:3]):
            if value not in self.needed:
                continue
            if slot == 2:
                self.emit(call, (coming,), [value], elements_of(self.tensors.get(coming)), "bias")
            else:
                self.emit(call, (coming, call.inputs[1 - slot]), [value], call.flops,
                          ("input", "weight")[slot])  # fmt: skip

    def summed(self, call: Call, coming: str) -> None:
        """Pass the gradient of a sum on, reduced to the shape of broadcast inputs."""
        shape = self.tensors.get(call.outputs[0])
        for slot, value in enumerate(call.inputs):
            if value not in self.needed:
                continue
            same = shape is not None and self.tensors.get(value) == shape
            if same and not (slot and _type(call) == "Sub"):
                self.parts.setdefault(value, []).append(coming)
            else:
                self.emit(call, (coming,), [value], elements_of(shape), "compute")

    def emit(
        self, call: Call, reads: Sequence[str], wanted: Sequence[str], flops: int, kind: str
    ) -> None:
        made = []
        for value in dict.fromkeys(wanted):
            self._module[value] = call.name
            made.append(self.new(value))
            self.parts.setdefault(value, []).append(made[-1])
        suffix = f"_{kind}" if kind in ("input", "weight", "bias") else ""
        resource = "host" if kind == "host" else "compute"
        self.add(f"{call.op}.backward{suffix}", tuple(reads), tuple(made), call.name, flops,
                 resource, call.attributes)  # fmt: skip

    def sum_of(self, value: str) -> str:
        """Return the gradient of a value, as a written sum if there are several parts."""
        parts = self.parts[value]
        while len(parts) > 1:
            one, other, *rest = parts
            total = self.new(value)
            flops = elements_of(self.tensors.get(value))
            self.add("onnx.Add", (one, other), (total,), self._module.get(value, ""), flops)
            parts = [total, *rest]
        self.parts[value] = parts
        return parts[0]

    def new(self, value: str) -> str:
        name = f"gradient {len(self.calls)} of {value}"
        if value in self.tensors:
            self.tensors[name] = self.tensors[value]
        return name

    def add(
        self,
        op: str,
        inputs: tuple[str, ...],
        outputs: tuple[str, ...],
        name: str,
        flops: int,
        resource: str = "compute",
        attributes: Mapping[str, object] | None = None,
    ) -> None:
        given = attributes or {}
        self.calls.append(
            Call(op, name, inputs, outputs, given, flops, phase="backward", resource=resource)
        )


def _type(call: Call) -> str:
    return call.op.removeprefix("onnx.")


def _slots(call: Call) -> list[str]:
    op = _type(call)
    rule = _RULES.get(op)
    if op in _VIEWS:
        return list(call.inputs[:1])
    if rule is None or rule.slots is None:
        return list(call.inputs)
    return [call.inputs[slot] for slot in rule.slots if slot < len(call.inputs)]


def _read(call: Call, rule: Rule) -> tuple[str, ...]:
    if rule.reads == "mask":
        return tuple(value for value in call.outputs[1:2] if value)
    if rule.reads == "indices":
        return call.inputs[1:2]
    inputs = tuple(value for value in call.inputs if value) if "x" in rule.reads else ()
    return inputs + (call.outputs[:1] if "y" in rule.reads else ())


def _update(value: str, gradient: str, tensor: TensorArgument, optimizer: str) -> Call:
    states = OPTIMIZERS[optimizer]
    size = bytes_of(tensor)
    return Call(
        op=f"optimizer.{optimizer}",
        name=value.rpartition(".")[0],
        inputs=(value, gradient),
        flops=UPDATE_FLOPS[optimizer] * math.prod(tensor.shape),
        moved=((2 + states) * size, (1 + states) * size),
        phase="optimizer",
    )
