"""Reading an array in a compiled function without counting references to it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from numba import types
from numba.extending import intrinsic

__all__ = ["data_pointer"]


def _data_pointer(context: Any, array: Any) -> Any:
    """Return the address of a C-contiguous array's first element, to be indexed like a flat one.

    For functions that are called in a tight loop and read arrays in several branches: Numba would
    count the references to each array up and down at every call, about 2.5 ns each time. The caller
    keeps the array alive.
    """

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return target.make_array(signature.args[0])(target, builder, arguments[0]).data

    pointer = cast(Callable[..., Any], types.CPointer)
    return pointer(array.dtype)(array), generate


data_pointer = cast(Callable[..., Any], intrinsic(_data_pointer))
