"""What Chakra says of a node's tensors: shapes and types, as lists within lists."""

from __future__ import annotations

import math
import re
from typing import Any

from paracosm.graphs.chakra.trace import Tensors
from paracosm.graphs.op import TensorArgument, encode_arguments

__all__ = ["arguments_of", "bytes_of"]

_DTYPES = {
    "float": ("float32", 4),
    "double": ("float64", 8),
    "c10::Half": ("float16", 2),
    "c10::BFloat16": ("bfloat16", 2),
    "long int": ("int64", 8),
    "long": ("int64", 8),
    "int": ("int32", 4),
    "short": ("int16", 2),
    "signed char": ("int8", 1),
    "unsigned char": ("uint8", 1),
    "bool": ("bool", 1),
}
"""PyTorch's names of C++ types: ours, and bytes."""

_TENSOR = re.compile(r"Tensor\((.+)\)")


def arguments_of(tensors: Tensors) -> str:
    """Return the arguments, as far as the trace has them; "" where it has none.

    They are all positional, and what is no tensor is as the trace writes it.
    """
    try:
        values = tensors.values or [None] * len(tensors.types)
        parts = zip(tensors.types, tensors.shapes, values, strict=True)
        arguments = [_argument(*part) for part in parts]
    except (TypeError, ValueError):
        return ""
    return encode_arguments(arguments, {}) if arguments else ""


def bytes_of(tensors: Tensors) -> int:
    """Return the bytes of all tensors; 0 where the trace has none."""
    try:
        parts = zip(tensors.types, tensors.shapes, strict=True)
        return sum(_bytes(_argument(kind, shape, None)) for kind, shape in parts)
    except (TypeError, ValueError):
        return 0


def _argument(kind: str, shape: Any, value: Any) -> Any:
    if found := _TENSOR.fullmatch(kind):
        dtype = _DTYPES.get(found[1], (found[1], 0))[0]
        return TensorArgument(tuple(int(size) for size in shape), dtype)
    if kind.startswith("GenericList[") and "Tensor(" in kind:
        inner = _split(kind.removeprefix("GenericList[").removesuffix("]"))
        if len(inner) == 1:  # one type stands for all
            inner *= len(shape)
        return [_argument(*part, None) for part in zip(inner, shape, strict=True)]
    return None if kind == "Device" or value == "<None>" else value


def _split(kinds: str) -> list[str]:
    """Return the types between commas that stand in no brackets."""
    parts, depth = [""], 0
    for letter in kinds:
        depth += (letter in "[(") - (letter in "])")
        if letter == "," and not depth:
            parts.append("")
        else:
            parts[-1] += letter
    return parts


def _bytes(argument: Any) -> int:
    if isinstance(argument, TensorArgument):
        sizes = dict(_DTYPES.values())
        return math.prod(argument.shape) * sizes.get(argument.dtype, 0)
    return sum(map(_bytes, argument)) if isinstance(argument, list) else 0
