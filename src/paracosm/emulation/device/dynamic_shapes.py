"""Ops whose shape depends on values: by the values where they are known, else by a rule.

`nonzero`, indexing with a mask, `unique` and the like ask for numbers that nobody computes here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor
from torch.utils._python_dispatch import _disable_current_modes

from paracosm.emulation.device.assumptions import DIFFERENT
from paracosm.emulation.device.recording import STREAM
from paracosm.emulation.device.state import Device
from paracosm.emulation.device.values import MOST_CHOSEN

_aten: Any = torch.ops.aten


def worked_out(device: Device, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what an op on the device returns, as fake tensors.

    Raises:
        NotImplementedError: its shape depends on values, and there is no rule for it.
    """
    rule = _RULES.get(str(func.overloadpacket))
    if rule is not None:
        result = rule(device, args, kwargs)
        if result is not None:
            device.writer.add(STREAM, device.streams.current, phase=device.phase)
            return result
    try:
        with device.fake:
            return func(*args, **kwargs)
    except DynamicOutputShapeException:
        raise device.values.refused(
            f"{func}, whose result has a size that depends on values"
        ) from None


def _made(device: Device, shape: list[int], like: Tensor, dtype: torch.dtype | None = None) -> Any:
    with device.fake:
        return torch.empty(shape, dtype=dtype or like.dtype, device=like.device)


def _count(device: Device, mask: Tensor) -> tuple[int, Tensor | None]:
    """Return how many elements of a mask are true, with its value if that is small enough."""
    count, value = device.values.mask(mask)
    device.values.depend_on(mask)
    return count, value


def _nonzero(device: Device, args: Any, kwargs: Mapping[str, Any]) -> Any:
    tensor = args[0]
    count, value = _count(device, tensor)
    result = _made(device, [count, tensor.dim()], tensor, torch.int64)
    if value is not None and value.numel() <= MOST_CHOSEN:
        with _disable_current_modes():
            places = value.nonzero()
        device.values.keep(result, places, device.values.origin(tensor))
    return result


def _masked_select(device: Device, args: Any, kwargs: Mapping[str, Any]) -> Any:
    tensor, mask = args[:2]
    broadcast: Any = torch.broadcast_shapes
    shape = broadcast(tensor.shape, mask.shape)
    count, _ = _count(device, mask)
    times = math.prod(shape) // max(mask.numel(), 1)  # that the mask is repeated
    return _made(device, [count * times], tensor)


def _index(device: Device, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Replace masks among the indices by the positions that they select."""
    tensor, indices = args[:2]
    masks = (torch.bool, torch.uint8)
    if not any(index is not None and index.dtype in masks for index in indices):
        return None
    positions: list[Any] = []
    for index in indices:
        if index is None or index.dtype not in masks:
            positions.append(index)
            continue
        if not isinstance(index, FakeTensor):
            with device.fake:
                positions += [
                    torch.empty(int(index.sum()), dtype=torch.int64, device=tensor.device)
                    for _ in range(index.dim())
                ]
            continue
        chosen = _nonzero(device, (index,), {})
        with device.fake:
            positions += [chosen[:, place] for place in range(index.dim())]
    with device.fake:
        return _aten.index.Tensor(tensor, positions)


def _repeat_interleave(device: Device, args: Any, kwargs: Mapping[str, Any]) -> Any:
    repeats = args[0]
    if not isinstance(repeats, Tensor) or (len(args) > 1 and isinstance(args[1], Tensor)):
        return None
    value = device.values.known(repeats)
    if value is None or kwargs.get("output_size") is not None:
        return None
    device.values.depend_on(repeats)
    return _made(device, [int(value.sum())], repeats, torch.int64)


def _bincount(device: Device, args: Any, kwargs: Mapping[str, Any]) -> Any:
    tensor = args[0]
    value = device.values.known(tensor)
    if value is None:
        return None
    weights = kwargs.get("weights", args[1] if len(args) > 1 else None)
    least = kwargs.get("minlength", args[2] if len(args) > 2 else 0)
    device.values.depend_on(tensor)
    highest = int(value.max()) + 1 if value.numel() else 0
    dtype = torch.int64 if weights is None else torch.float64
    return _made(device, [max(highest, int(least))], tensor, dtype)


def _unique(device: Device, args: Any, kwargs: Mapping[str, Any]) -> Any:
    tensor = args[0]
    value = device.values.known(tensor)
    if value is None:
        device.values.assume(DIFFERENT)
        count = tensor.numel()
    else:
        device.values.depend_on(tensor)
        count = len(torch.unique(value))
    return (
        _made(device, [count], tensor),
        _made(device, list(tensor.shape), tensor, torch.int64),
        _made(device, [count], tensor, torch.int64),
    )


def _unique_consecutive(device: Device, args: Any, kwargs: Mapping[str, Any]) -> Any:
    tensor = args[0]
    dim = kwargs.get("dim", args[3] if len(args) > 3 else None)
    value = device.values.known(tensor)
    if value is None or dim is not None:
        return None
    device.values.depend_on(tensor)
    count = len(torch.unique_consecutive(value))
    return (
        _made(device, [count], tensor),
        _made(device, list(tensor.shape), tensor, torch.int64),
        _made(device, [count], tensor, torch.int64),
    )


_RULES: Mapping[str, Callable[[Device, Any, Mapping[str, Any]], Any]] = {
    "aten.nonzero": _nonzero,
    "aten.masked_select": _masked_select,
    "aten.index": _index,
    "aten.repeat_interleave": _repeat_interleave,
    "aten._unique2": _unique,
    "aten.unique_consecutive": _unique_consecutive,
    "aten.bincount": _bincount,
}
