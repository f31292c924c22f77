"""Pooling, means and sums."""

from __future__ import annotations

from typing import Any

from paracosm.profiling.designs.families.typical import batch, channels, features, size
from paracosm.profiling.designs.family import Argument, Call, Family, tensor

__all__ = ["POOLING"]

_IMAGES = (batch(), channels(), size())
_WINDOWS = (
    *(batch(), channels(), size()),
    Argument("kernel", (2, 2, 2, 3, 3), 2, high=8),
    Argument("stride", (1, 2, 2, 2, 2), 2, high=4),
)
_MEANS = (batch(), channels(base=512), Argument("size", (2, 4, 4, 7, 7, 7, 8, 14), 7))


def _windows(batch: int, channels: int, size: int, kernel: int, stride: int) -> Any:
    """Return input and output shapes and the padding; images smaller than a window are padded."""
    padding = kernel // 2 if kernel % 2 or size < kernel else 0
    after = (size + 2 * padding - kernel) // stride + 1
    x, out = (batch, channels, size, size), (batch, channels, after, after)
    return x, out, [[kernel, kernel], [stride, stride], [padding, padding]]


def _max_pool(**point: int) -> Call:
    x, _, window = _windows(**point)
    if window[-1] == [0, 0]:  # the default, which a call does not say
        window.pop()
    return [tensor(*x), *window], {}


def _max_pool_backward(**point: int) -> Call:
    x, out, window = _windows(**point)
    indices = tensor(*out, dtype="int64")
    return [tensor(*out), tensor(*x), *window, [1, 1], False, indices], {}


def _average_pool(batch: int, channels: int, size: int) -> Call:
    return [tensor(batch, channels, size, size), [7, 7]], {}


def _mean(batch: int, channels: int, size: int) -> Call:
    return [tensor(batch, channels, size, size), [-1, -2], True], {}


def _sum(rows: int, columns: int) -> Call:
    return [tensor(rows, columns), [0], True], {}


POOLING = (
    Family("aten.max_pool2d_with_indices.default", _WINDOWS, _max_pool),
    Family("aten.max_pool2d_with_indices_backward.default", _WINDOWS, _max_pool_backward),
    Family("aten._adaptive_avg_pool2d.default", _IMAGES, _average_pool),
    Family("aten.mean.dim", _MEANS, _mean),
    Family(
        "aten.sum.dim_IntList",
        (
            Argument("rows", (16, 64, 128, 512, 1024, 2048, 4096, 8192), 1024, low=1),
            features("columns", 512),
        ),
        _sum,
    ),
)
