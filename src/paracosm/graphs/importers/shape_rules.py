"""Shapes of what ops return, of which TensorFlow's files say nothing.

The rules raise one of `FAULTS` if a shape that they need is unknown (None), or does not fit.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Shape = tuple[int, ...]

FAULTS = (ArithmeticError, LookupError, TypeError, ValueError, AttributeError)

_MOST_AXES = 32  # of NumPy's arrays; 64 from 2.0 on
_LARGEST = 1 << 50
"""Elements; a tensor of more is a damaged shape."""


def shapes_by(
    rule: Callable[..., Any] | None,
    node: Any,
    shapes: Sequence[Shape | None],
    values: Sequence[Any],
) -> list[Any]:
    """Return the shapes of a node's outputs by its rule, which returns one or a list of them."""
    try:
        results = rule(node, shapes, values) if rule is not None else []
    except FAULTS:
        return []
    return [results] if isinstance(results, tuple) else list(results)


def shape_of(sizes: Sequence[Any]) -> Shape | None:
    """Return a shape; None if a size is unknown (negative, not a number) or absurdly large."""
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            return None
    is_large = len(sizes) > _MOST_AXES or math.prod(filter(None, sizes)) > _LARGEST
    return None if is_large else tuple(sizes)


def like(shape: Sequence[int]) -> npt.NDArray[np.int8]:
    """Return an array of a shape that takes no memory: NumPy's views then compute shapes."""
    return np.broadcast_to(np.int8(0), tuple(shape))


def resized(x: Shape, sizes: Mapping[int, int]) -> Shape:
    """Return a shape with other sizes along some axes."""
    return tuple(sizes.get(axis, size) for axis, size in enumerate(x))


def reduced(x: Shape, axes: Sequence[int], keep: object) -> Shape:
    """Return the shape without these axes; or with size 1 there, to `keep` them."""
    gone = {int(axis) % len(x) for axis in axes}
    return tuple(1 if i in gone else n for i, n in enumerate(x) if keep or i not in gone)


def reshaped(x: Shape, sizes: Sequence[int]) -> Shape:
    """Return a shape in which -1 stands for what is left over of the elements of `x`."""
    rest = math.prod(n for n in sizes if n != -1)
    return tuple(math.prod(x) // rest if n == -1 else int(n) for n in sizes)


def concatenated(shapes: Sequence[Shape], axis: int) -> Shape:
    axis %= len(shapes[0])
    return resized(shapes[0], {axis: sum(shape[axis] for shape in shapes)})


def gathered(x: Shape, indices: Shape, axis: int) -> Shape:
    axis %= len(x)
    return (*x[:axis], *indices, *x[axis + 1 :])


def tiled(x: Shape, times: Sequence[int]) -> Shape:
    return tuple(size * int(many) for size, many in zip(x, times, strict=True))


def squeezed(x: Shape, axes: Sequence[int]) -> Shape:
    return np.squeeze(like(x), tuple(axes) or None).shape


def turned(x: Shape, transpose: object) -> Shape:
    return (*x[:-2], x[-1], x[-2]) if transpose else x


def product(a: Shape, b: Shape) -> Shape:
    """Return the shape of a matrix product, of stacks of matrices or of vectors."""
    left, right = (a if len(a) > 1 else (1, *a)), (b if len(b) > 1 else (*b, 1))
    if left[-1] != right[-2]:
        raise ValueError("sizes do not fit")
    rows = (left[-2],) if len(a) > 1 else ()
    columns = (right[-1],) if len(b) > 1 else ()
    return (*np.broadcast_shapes(left[:-2], right[:-2]), *rows, *columns)
