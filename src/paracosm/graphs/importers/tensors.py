"""Tensors by the names of the values that hold them: shapes, types, bytes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence
from typing import Any

from paracosm.errors import InputError, unknown
from paracosm.graphs.op import TensorArgument

__all__ = ["BYTES", "bytes_of", "check_sizes", "elements_of", "shape_of"]

BYTES = {
    **dict.fromkeys(("float64", "int64", "uint64", "complex64"), 8),
    **dict.fromkeys(("float32", "int32", "uint32"), 4),
    **dict.fromkeys(("float16", "bfloat16", "int16", "uint16"), 2),
    **dict.fromkeys(("bool", "int8", "uint8", "float8_e4m3fn", "float8_e5m2"), 1),
    "complex128": 16,
}
"""Bytes of an element, by the name of its type."""

_LARGEST = 1 << 50
"""Elements; a tensor of more is a damaged shape."""


def shape_of(sizes: Sequence[Any]) -> tuple[int, ...] | None:
    """Return a shape; None where a size is unknown (negative, no number) or out of all reason."""
    shape = []
    for size in sizes:
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            return None
        shape.append(size)
    return tuple(shape) if math.prod(shape) <= _LARGEST else None


def check_sizes(sizes: Iterable[str], known: Collection[str], where: str) -> None:
    """Check that sizes that are given by name are among those that a model leaves open.

    Raises:
        InputError: one is not.
    """
    for name in sizes:
        if not known:
            raise InputError(f"{where}: --size {name} has no effect: the model leaves no size open")
        if name not in known:
            raise InputError(f"{where}: --size: {unknown('size', name, known)}")


def elements_of(tensor: TensorArgument | None) -> int:
    """Return how many elements a tensor has; 0 where it is not known."""
    return 0 if tensor is None else math.prod(tensor.shape)


def bytes_of(tensor: TensorArgument | None) -> int:
    """Return the bytes of a tensor; 0 where it, or the size of its type, is not known."""
    return 0 if tensor is None else math.prod(tensor.shape) * BYTES.get(tensor.dtype, 0)
