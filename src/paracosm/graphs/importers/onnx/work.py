"""How much an ONNX op computes, from the shapes of what goes in and comes out.

Products by their formula (a multiply-add is two; a bias counts nothing, as in PyTorch's counter);
views, constants and ops that only move data count none; any other op one for each element of its
largest tensor: exact for element-wise ops, a lower bound for softmax, norms and the like.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from paracosm.graphs.importers.onnx.model import OnnxNode
from paracosm.graphs.importers.tensors import elements_of
from paracosm.graphs.op import TensorArgument

__all__ = ["CONSTANTS", "OPAQUE", "VIEWS", "flops_of"]

VIEWS = frozenset(
    ("Reshape", "Flatten", "Squeeze", "Unsqueeze", "Identity", "Shape", "Size", "SequenceAt")
)
"""Ops that show what is there in another form, or look at its shape alone."""

CONSTANTS = frozenset(("Constant",))

OPAQUE = frozenset(("If", "Loop", "Scan", "SequenceMap"))
"""Ops that hold graphs of their own, which are not looked into."""

_MOVES = frozenset(
    (
        *(
            "Transpose",
            "Concat",
            "Split",
            "Slice",
            "Gather",
            "GatherElements",
            "GatherND",
            "Expand",
        ),
        *("Tile", "Pad", "Cast", "CastLike", "ConstantOfShape", "ScatterND", "ScatterElements"),
        *("Range", "OneHot", "EyeLike", "RandomNormal", "RandomUniform", "DepthToSpace", "Trilu"),
        *("SpaceToDepth", "NonZero", "Where", "Compress", "ReverseSequence"),
    )
)


def flops_of(node: OnnxNode, tensors: Mapping[str, TensorArgument]) -> int:
    """Return the floating-point operations of a node; 0 where its shapes are not known."""
    inputs = [tensors.get(value) for value in node.inputs]
    outputs = [tensors.get(value) for value in node.outputs]
    if node.op in VIEWS or node.op in _MOVES or node.op in OPAQUE:
        return 0
    if node.op in ("Conv", "ConvTranspose", "Gemm", "MatMul"):
        return _product(node, inputs, outputs)
    return max((elements_of(tensor) for tensor in (*inputs, *outputs)), default=0)


def _product(
    node: OnnxNode,
    inputs: Sequence[TensorArgument | None],
    outputs: Sequence[TensorArgument | None],
) -> int:
    if len(inputs) < 2 or inputs[0] is None or inputs[1] is None or not outputs:
        return 0
    x, weight = inputs[0].shape, inputs[1].shape
    if node.op == "Conv":
        return 2 * elements_of(outputs[0]) * math.prod(weight[1:])
    if node.op == "ConvTranspose":
        return 2 * math.prod(x) * math.prod(weight[1:])
    if not x or not weight:
        return 0
    return 2 * elements_of(outputs[0]) * x[0 if node.attributes.get("transA") else -1]
