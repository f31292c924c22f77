"""The backward pass of an ONNX model, and the optimizer's step.

ONNX has forward passes only. For every op on the way from a parameter to an output, a rule defines
which of its inputs and outputs the gradient needs (they are kept until then), and how much it
computes. Products have one node for each gradient, as kernel libraries do:

    Y = X W        dX = dY W^T        dW = X^T dY        db = column sums of dY

Gradients of one value are added. The gradient of a parameter outlives the pass.
"""

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from paracosm.errors import InputError
from paracosm.graphs.flops import UPDATE_FLOPS
from paracosm.graphs.graph import TensorArgument
from paracosm.graphs.importers.calls import Call, bytes_of, elements_of

PRODUCTS = frozenset(("Conv", "ConvTranspose", "Gemm", "MatMul"))

Tensors = dict[str, TensorArgument]


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
        if op in PRODUCTS:
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
        attributes_set = attributes or {}
        self.calls.append(
            Call(
                op,
                name,
                inputs,
                outputs,
                attributes_set,
                flops,
                phase="backward",
                resource=resource,
            )
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
