"""One distinct operation: its name, its arguments without their values, and the work it does.

Arguments are JSON with the positional ones first, then the named ones, keys sorted and no blanks,
so that equal calls have equal texts:

    {"args":[{"tensor":[64,3,32,32],"dtype":"float32"},{"tensor":[64,3,7,7],"dtype":"float32"},...]}

A tensor that is not contiguous says its "stride"; one that lives elsewhere than the graph's device
says "on". A list is a list, None is null, a dtype {"dtype":"int64"}, a memory format
{"memory_format":"channels_last"}, a layout {"layout":"strided"}, an infinite or undefined number
{"float":"-inf"}. Devices and generators are null: which device it is, the environment says.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paracosm.errors import InputError

__all__ = ["Op", "TensorArgument", "decode_arguments", "encode_arguments", "shapes_of"]


@dataclass(frozen=True, slots=True)
class TensorArgument:
    """A tensor among the arguments of an op: everything but its values.

    Attributes:
        shape: sizes.
        dtype: the name without its package, "float32".
        stride: in elements; None where it is contiguous.
        on: the type of its device, where it is not the graph's ("cpu", beside a GPU).
    """

    shape: tuple[int, ...]
    dtype: str
    stride: tuple[int, ...] | None = None
    on: str | None = None


@dataclass(frozen=True, slots=True)
class Op:
    """One distinct op of a graph; many nodes may be occurrences of it.

    Two ops are the same if name and arguments are: what they cost follows from them.

    Attributes:
        name: the op as its framework names it, "aten.convolution.default".
        arguments: as the module's text describes; "" where nobody recorded them.
        flops: floating-point operations (a multiply-add is two); 0 where none are counted.
        bytes_read, bytes_written: of the tensors that go in and come out; a view moves none.
    """

    name: str
    arguments: str = ""
    flops: int = 0
    bytes_read: int = 0
    bytes_written: int = 0


def encode_arguments(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the text of arguments in which `TensorArgument` stands for every tensor.

    Numbers are rounded to six digits, so that errors in the last ones make no other op.
    """
    content: dict[str, Any] = {"args": [_encode(value) for value in args]}
    if kwargs:
        content["kwargs"] = {name: _encode(value) for name, value in kwargs.items()}
    return json.dumps(content, sort_keys=True, separators=(",", ":"))


def decode_arguments(text: str) -> tuple[list[Any], dict[str, Any]]:
    """Return what `encode_arguments` was given; dtypes and the like stay mappings of one name.

    Raises:
        InputError: the text is not of that form.
    """
    try:
        content = json.loads(text)
        args = [_decode(value) for value in content["args"]]
        kwargs = {name: _decode(value) for name, value in content.get("kwargs", {}).items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        raise InputError(f"not the arguments of an op: {text[:200]}") from None
    return args, kwargs


def shapes_of(text: str) -> list[str]:
    """Return the shapes of an op's tensors, "64x3x32x32"; none where no arguments are known."""
    try:
        args, kwargs = decode_arguments(text)
    except InputError:
        return []
    return [shape for value in (*args, *kwargs.values()) for shape in _shapes(value)]


def _shapes(value: Any) -> list[str]:
    if isinstance(value, TensorArgument):
        return ["x".join(map(str, value.shape)) or "scalar"]
    return [shape for each in value for shape in _shapes(each)] if isinstance(value, list) else []


def _encode(value: Any) -> Any:
    if isinstance(value, TensorArgument):
        tensor: dict[str, Any] = {"tensor": list(value.shape), "dtype": value.dtype}
        if value.stride is not None:
            tensor["stride"] = list(value.stride)
        if value.on is not None:
            tensor["on"] = value.on
        return tensor
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else {"float": str(value)}
    if isinstance(value, list | tuple):
        return [_encode(each) for each in value]
    return value


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(each) for each in value]
    if not isinstance(value, dict):
        return value
    if "tensor" in value:
        stride = value.get("stride")
        return TensorArgument(
            shape=tuple(value["tensor"]),
            dtype=value["dtype"],
            stride=None if stride is None else tuple(stride),
            on=value.get("on"),
        )
    return float(value["float"]) if "float" in value else value
