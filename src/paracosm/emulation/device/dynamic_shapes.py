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

from paracosm.emulation.device.recording import STREAM
from paracosm.emulation.device.state import Device
from paracosm.emulation.rank.call_site import call_site

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
            return result
    try:
        with device.fake:
            return func(*args, **kwargs)
    except DynamicOutputShapeException:
        raise device.values.refused(
            f"{func}, whose result has a size that depends on values"
        ) from None


def _assumed(device: Device, text: str) -> None:
    device.writer.assume(text, call_site())
    device.writer.add(STREAM, device.streams.current, phase=device.phase)


def _made(device: Device, shape: list[int], like: Tensor, dtype: torch.dtype | None = None) -> Any:
    with device.fake:
        return torch.empty(shape, dtype=dtype or like.dtype, device=like.device)


def _nonzero(device: Device, args: Any, kwargs: Mapping[str, Any]) -> Any:
    tensor = args[0]
    value = device.values.known(tensor)
    if value is None:
        _assumed(device, "all elements of a mask are true")
        count = tensor.numel()
    else:
        count = int(torch.count_nonzero(value))
    result = _made(device, [count, tensor.dim()], tensor, torch.int64)
    if value is not None:
        device.values.keep(result, value.nonzero())
    return result


def _masked_select(device: Device, args: Any, kwargs: Mapping[str, Any]) -> Any:
    tensor, mask = args[:2]
    broadcast: Any = torch.broadcast_shapes
    shape = broadcast(tensor.shape, mask.shape)
    value = device.values.known(mask)
    if value is None:
        _assumed(device, "all elements of a mask are true")
        count = math.prod(shape)
    else:
        count = int(torch.count_nonzero(value.expand(shape)))
    return _made(device, [count], tensor)


def _index(device: Device, args: Any, kwargs: Mapping[str, Any]) -> Any:
    """Replace masks among the indices by the positions that they select."""
    tensor, indices = args[:2]
    masks = [
        each for each in indices if each is not None and each.dtype in (torch.bool, torch.uint8)
    ]
    if not masks:
        return None
    positions: list[Any] = []
    for index in indices:
        if index is None or index.dtype not in (torch.bool, torch.uint8):
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
    size = kwargs.get("output_size")
    if size is None:
        value = device.values.known(repeats)
        if value is None:
            return None
        size = int(value.sum())
    return _made(device, [int(size)], repeats, torch.int64)


def _unique(device: Device, args: Any, kwargs: Mapping[str, Any]) -> Any:
    tensor = args[0]
    value = device.values.known(tensor)
    if value is None:
        _assumed(device, "all values of unique are different")
        count = tensor.numel()
    else:
        count = len(torch.unique(value))
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
}
