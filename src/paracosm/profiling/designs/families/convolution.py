"""Two-dimensional convolutions and their backward op."""

from __future__ import annotations

from typing import Any

from paracosm.profiling.designs.families.typical import batch, channels, goes_with, size
from paracosm.profiling.designs.family import Argument, Call, Family, tensor

__all__ = ["CONVOLUTION"]

_ARGUMENTS = (
    batch(base=4),
    channels("inputs", extra=(3, 3)),
    channels("outputs"),
    size(),
    Argument("kernel", (1, 1, 1, 3, 3, 3, 3, 5, 7), 3, high=16),
    Argument("stride", (1, 1, 1, 1, 2), 1, high=4),
    Argument("depthwise", (1, 1, 1, 1, 1, 1, 1, 2), 1),
    Argument("bias", (1, 2), 1),
)
"""`depthwise` 2: as many groups as inputs. `bias` 2: there is one. Padding is half the kernel."""


def _shapes(
    batch: int, inputs: int, outputs: int, size: int, kernel: int, stride: int, depthwise: int
) -> tuple[Any, Any, Any, list[Any]]:
    """Return input, weight and output, and what comes after them in a call."""
    groups = inputs if depthwise == 2 else 1
    made = inputs if depthwise == 2 else outputs
    padding = kernel // 2
    after = (size + 2 * padding - kernel) // stride + 1
    return (
        tensor(batch, inputs, size, size),
        tensor(made, inputs // groups, kernel, kernel),
        tensor(batch, made, after, after),
        [[stride, stride], [padding, padding], [1, 1], False, [0, 0], groups],
    )


def _convolution(bias: int, **point: int) -> Call:
    x, weight, _, rest = _shapes(**point)
    return [x, weight, tensor(weight.shape[0]) if bias == 2 else None, *rest], {}


def _backward(bias: int, **point: int) -> Call:
    x, weight, out, rest = _shapes(**point)
    sizes = [weight.shape[0]] if bias == 2 else [0]
    return [out, x, weight, sizes, *rest, [True, True, bias == 2]], {}


def _plausible(
    inputs: int, outputs: int, size: int, kernel: int, stride: int, depthwise: int, **_: int
) -> bool:
    """Whether models have such a layer: not much wider on one side, large kernels in front."""
    if inputs == 3:
        return goes_with(inputs, size) and outputs <= 128 and depthwise == 1
    after = -(-size // stride)
    widened = max(inputs, outputs) <= 8 * min(inputs, outputs)
    window = kernel <= 3 or size >= 14
    return widened and window and goes_with(inputs, size) and goes_with(outputs, after)


CONVOLUTION = (
    Family("aten.convolution.default", _ARGUMENTS, _convolution, _plausible),
    Family("aten.convolution_backward.default", _ARGUMENTS, _backward, _plausible),
)
