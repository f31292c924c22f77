"""Quantities derived from the arguments of an op, which its time follows more closely than sizes.

Generic: work, bytes, and of every tensor its elements, its outer and inner dimensions and how well
the innermost one divides into vector registers. For convolutions there is a table entry, because
what matters of their tensors are channels, kernel and pixels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from paracosm.graphs.op import Op, TensorArgument

__all__ = ["quantities"]

_LARGEST_VECTOR = 64  # elements; a size that it divides is as aligned as can be


def quantities(op: Op, args: Sequence[Any]) -> dict[str, float]:
    """Return the derived quantities of `op`, whose positional arguments are `args`, by name.

    Those that span orders of magnitude are logarithms.
    """
    bytes_moved = op.bytes_read + op.bytes_written
    found = {
        "flops": math.log1p(op.flops),
        "read": math.log1p(op.bytes_read),
        "written": math.log1p(op.bytes_written),
        "intensity": math.log1p(op.flops) - math.log1p(bytes_moved) if op.flops else 0.0,
    }
    special = _SPECIAL.get(_base(op.name))
    more = special(args) if special is not None else None
    if more is None:
        more = {}
        for position, value in enumerate(args):
            if isinstance(value, TensorArgument):
                more |= _of_shape(str(position), value.shape)
            elif isinstance(value, list):
                more |= _of_list(str(position), value)
    return found | more


def _base(name: str) -> str:
    """Return "convolution" of "aten.convolution.default"."""
    parts = name.split(".")
    return parts[1] if len(parts) > 1 else name


def _of_shape(path: str, shape: tuple[int, ...]) -> dict[str, float]:
    if not shape:
        return {}
    return {
        f"{path}.elements": math.log1p(math.prod(shape)),
        f"{path}.first": math.log1p(shape[0]),
        f"{path}.second": math.log1p(shape[min(1, len(shape) - 1)]),
        f"{path}.last": math.log1p(shape[-1]),
        f"{path}.aligned": _alignment(shape[-1]),
    }


def _of_list(path: str, values: Sequence[Any]) -> dict[str, float]:
    tensors = [each for each in values if isinstance(each, TensorArgument)]
    if not tensors:
        return {}
    elements = [math.prod(tensor.shape) for tensor in tensors]
    return {
        f"{path}.count": math.log1p(len(tensors)),
        f"{path}.elements": math.log1p(sum(elements)),
        f"{path}.largest": math.log1p(max(elements)),
    }


def _alignment(size: int) -> float:
    """Return log2 of the largest power of two up to 64 that divides `size`."""
    return math.log2(math.gcd(size, _LARGEST_VECTOR)) if size else 0.0


def _convolution(args: Sequence[Any]) -> dict[str, float] | None:
    """Of (input, weight, bias, stride, ..., groups)."""
    if len(args) <= 8:
        return None
    return _of_convolution(args[0], args[1], args[3], args[8])


def _convolution_backward(args: Sequence[Any]) -> dict[str, float] | None:
    """Of (grad_output, input, weight, bias_sizes, stride, ..., groups, output_mask)."""
    if len(args) <= 10 or not isinstance(args[10], list):
        return None
    found = _of_convolution(args[1], args[2], args[4], args[9])
    if found is not None:  # which gradients: of the input, the weight, the bias
        found |= {f"wanted.{i}": float(bool(wanted)) for i, wanted in enumerate(args[10])}
    return found


def _of_convolution(image: Any, weight: Any, stride: Any, groups: Any) -> dict[str, float] | None:
    """Return None for arguments that are not a convolution's: the generic quantities serve them."""
    if not (isinstance(image, TensorArgument) and isinstance(weight, TensorArgument)):
        return None
    if not (isinstance(stride, list) and isinstance(groups, int) and len(image.shape) >= 3):
        return None
    kernel = math.prod(weight.shape[2:])
    return {
        "batch": math.log1p(image.shape[0]),
        "channels in": math.log1p(image.shape[1]),
        "channels in a group": math.log1p(weight.shape[1]),
        "channels out": math.log1p(weight.shape[0]),
        "pixels": math.log1p(math.prod(image.shape[2:])),
        "kernel": math.log1p(kernel),
        "pointwise": float(kernel == 1),
        "stride": math.log1p(math.prod(stride)),
        "groups": math.log1p(groups),
        "grouped": float(groups > 1),
        "channels in aligned": _alignment(image.shape[1]),
        "channels out aligned": _alignment(weight.shape[0]),
    }


_SPECIAL: Mapping[str, Callable[[Sequence[Any]], dict[str, float] | None]] = {
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}
