"""How much an op of a trace computes, from the shapes that the trace has."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from paracosm.graphs.importers.pytorch.trace import ObservedCall

__all__ = ["flops_of"]

_FAULTS = (LookupError, TypeError, ValueError, ArithmeticError)

_MOVES = frozenset(
    (
        *("copy_", "clone", "_to_copy", "cat", "stack", "fill_", "zero_", "full", "full_like"),
        *("zeros", "zeros_like", "ones", "ones_like", "empty", "empty_like", "empty_strided"),
        *("new_empty", "new_empty_strided", "new_zeros", "arange", "rand", "randn", "uniform_"),
        *("normal_", "bernoulli_", "random_", "embedding", "index", "index_select", "gather"),
        *("scatter", "scatter_", "set_", "resize_", "detach_", "record_stream"),
        *("_local_scalar_dense", "constant_pad_nd", "slice_backward", "select_backward"),
        *("index_put_", "repeat", "roll", "flip", "split_with_sizes_copy", "masked_fill_"),
        *("_foreach_copy_", "_foreach_zero_"),
    )
)


def flops_of(call: ObservedCall) -> int:
    """Return the floating-point operations of a call; 0 where the trace lacks its shapes.

    Products by PyTorch's own formulas (a multiply-add is two), moves none, any other op one for
    each element of its largest tensor.
    """
    name = call.name.rpartition("::")[2]
    if name in _MOVES:
        return 0
    try:
        if (formula := _FORMULAS.get(name)) is not None:
            return int(formula(call.inputs.shapes, call.outputs.shapes, call.inputs.values))
        if "convolution" in name:
            return _convolution(name, call)
    except _FAULTS:
        return 0
    return max(map(_largest, (call.inputs, call.outputs)))


def _largest(tensors: Any) -> int:
    sizes = [0]
    for kind, shape in zip(tensors.types, tensors.shapes, strict=False):
        if isinstance(kind, str) and "Tensor(" in kind:
            sizes += _elements(shape)
    return max(sizes)


def _elements(shape: Any) -> list[int]:
    """Return the elements of a shape, or of each in a list of shapes."""
    if not isinstance(shape, list):
        return []
    if all(type(size) is int for size in shape):
        return [math.prod(shape) if 0 <= math.prod(shape) < 2**50 else 0]
    return [count for each in shape for count in _elements(each)]


def _matrices(a: list[int], b: list[int]) -> int:
    return int(2 * math.prod(a) * b[-1])


def _convolution(name: str, call: ObservedCall) -> int:
    """Two for each element of what is put out and of the kernel that makes it.

    Gradients: as much again for each that is asked for (the output mask of
    convolution_backward; two of cudnn's and mkldnn's own).
    """
    shapes = call.inputs.shapes
    if name.endswith("_backward"):
        mask = call.inputs.values[-1] if call.inputs.values else None
        asked = sum(map(bool, mask[:2])) if isinstance(mask, list) and len(mask) > 1 else 2
        return int(asked * 2 * math.prod(shapes[0]) * math.prod(shapes[2][1:]))
    return int(2 * math.prod(call.outputs.shapes[0]) * math.prod(shapes[1][1:]))


def _attention(inputs: Any, outputs: Any, values: Any) -> int:
    """Scores and their product with the values."""
    query, key, value = inputs[:3]
    return int(2 * math.prod(query[:-1]) * key[-2] * (query[-1] + value[-1]))


def _attention_backward(inputs: Any, outputs: Any, values: Any) -> int:
    """Scores once more, and the gradients of queries, keys, values and of the scores themselves."""
    query, key, value = inputs[1:4]
    return int(2 * math.prod(query[:-1]) * key[-2] * (3 * query[-1] + 2 * value[-1]))


_FORMULAS: Mapping[str, Callable[[Any, Any, Any], int]] = {
    **dict.fromkeys(("mm", "bmm"), lambda i, o, v: _matrices(i[0], i[1])),
    **dict.fromkeys(("addmm", "baddbmm", "addmm_", "baddbmm_", "_addmm_activation"),
                    lambda i, o, v: _matrices(i[1], i[2])),
    **dict.fromkeys(("mv", "dot", "vdot"), lambda i, o, v: 2 * math.prod(i[0])),
    "addmv": lambda i, o, v: 2 * math.prod(i[1]),
    **{
        f"_scaled_dot_product_{kind}attention{of}": formula
        for kind in ("", "flash_", "efficient_", "cudnn_", "fused_")
        for of, formula in (("", _attention), ("_backward", _attention_backward))
    },
    "_scaled_dot_product_flash_attention_for_cpu": _attention,
    "_scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
}  # fmt: skip
