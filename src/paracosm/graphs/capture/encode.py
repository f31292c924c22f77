"""Arguments of a dispatched op as a graph keeps them: tensors without their values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from paracosm.errors import InputError
from paracosm.graphs.op import TensorArgument, encode_arguments

__all__ = ["encode_call", "require_strided"]


def encode_call(
    func: torch._ops.OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], device: str
) -> str:
    """Return the text of the arguments of one call.

    The name of a process group is null, as the group itself is: how many there were before it in
    this process is no part of the op.
    """
    declared = func._schema.arguments
    positional = [
        None if place.name == "group_name" else _plain(value, device)
        for place, value in zip(declared, args, strict=False)
    ]
    named = {
        name: None if name == "group_name" else _plain(value, device)
        for name, value in kwargs.items()
    }
    return encode_arguments(positional, named)


def require_strided(tensor: torch.Tensor) -> None:
    """Refuse a tensor whose memory is not one storage.

    Raises:
        InputError: naming its layout.
    """
    if tensor.layout is not torch.strided:
        raise InputError(f"the model makes {_name(tensor.layout)} tensors: capture knows strided")


def _plain(value: Any, device: str) -> Any:
    match value:
        case torch.Tensor():
            return _tensor(value, device)
        case None | bool() | int() | float() | str():
            return value
        case list() | tuple():
            return [_plain(each, device) for each in value]
        case torch.dtype():
            return {"dtype": _name(value)}
        case torch.layout():
            return {"layout": _name(value)}
        case torch.memory_format():
            return {"memory_format": _name(value)}
    return None  # a device, a generator, a process group


def _tensor(tensor: torch.Tensor, device: str) -> TensorArgument:
    require_strided(tensor)
    where = tensor.device.type
    return TensorArgument(
        shape=tuple(tensor.shape),
        dtype=_name(tensor.dtype),
        stride=None if tensor.is_contiguous() else tensor.stride(),
        on=None if where == device else where,
    )


def _name(value: Any) -> str:
    return str(value).removeprefix("torch.")
