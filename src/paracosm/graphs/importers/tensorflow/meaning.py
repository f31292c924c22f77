"""What the ops of TensorFlow keep busy, how much they compute, and to which phase they belong."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

from paracosm.graphs.importers.tensors import elements_of
from paracosm.graphs.op import TensorArgument

__all__ = ["flops_of", "is_update", "phase_by_name", "place_of", "puts_out_nothing", "resource_of"]

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

_STEPS = {"ApplyGradientDescent": 2, "ApplyMomentum": 4, "ApplyAdam": 14, "ApplyAdagrad": 6}
"""Floating-point operations of an update, for each element: p - lr g; v = mu v + g before it; Adam
(Kingma and Ba 2015, algorithm 1); the sum of squares, its root and the division before it."""


def resource_of(op: str) -> str:
    """Return what an op keeps busy."""
    if op in HOST:
        return "host"
    if _COMMUNICATION.search(op):
        return "communication"
    return "memory" if _COPIES.search(op) else "compute"


def is_update(op: str) -> bool:
    """Whether an op changes a variable by a gradient."""
    return _UPDATE.search(op) is not None


def puts_out_nothing(op: str) -> bool:
    """Whether an op is there for what it changes alone."""
    return is_update(op) or op.startswith(("Assign", "Save", "Restore", "Summary", "Write"))


def phase_by_name(name: str, op: str) -> str:
    """Return the phase that an op's type or its scopes say."""
    scopes = name.split("/")
    if any(_OTHER.match(scope) for scope in scopes[:1]):
        return "other"
    if is_update(op):
        return "optimizer"
    if any(_BACKWARD.match(scope) for scope in scopes):
        return "backward"
    return "optimizer" if _OPTIMIZER.match(scopes[0]) else "forward"


def place_of(name: str) -> str:
    """Return the place in the model: "block1.conv1" of "gradients/block1/conv1/Conv2D_grad/Mul".

    That is the scopes of the op, without those that say how gradients and updates are made.
    """
    scopes = [scope for scope in name.split("/")[:-1] if not _BACKWARD.match(scope)]
    grads = [i for i, scope in enumerate(scopes) if re.search(r"_grad(_\d+)?$", scope)]
    scopes = scopes[: grads[0]] if grads else scopes
    if scopes and _OPTIMIZER.match(scopes[0]):
        scopes = [scopes[1].removeprefix("update_"), *scopes[2:-1]] if len(scopes) > 1 else []
    return ".".join(scopes)


def flops_of(
    op: str, inputs: Sequence[TensorArgument | None], outputs: Sequence[TensorArgument | None]
) -> int:
    """Return floating-point operations; 0 where the shapes are not known.

    Products by their formula (a multiply-add is two), moves none, any other op one for each
    element of its largest tensor.
    """
    plain = op.removeprefix("_Fused").removeprefix("Resource")
    if op in HOST or plain in _MOVES or _COPIES.search(op):
        return 0
    if plain in _STEPS and inputs:
        return _STEPS[plain] * max(map(elements_of, inputs))
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
        return 2 * batch * rows * columns * inner
    return max(map(elements_of, (*inputs, *outputs)), default=0)


def _convolution(
    op: str, inputs: Sequence[TensorArgument | None], outputs: Sequence[TensorArgument | None]
) -> int:
    """Two for each element of the output and of the kernel that makes it; so for gradients."""
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
    return 2 * elements_of(moved) * math.prod(kernel)
