"""Ops whose shape depends on values: by the values where they are known, else by a rule.

`nonzero`, indexing with a mask, `unique` and the like ask for numbers that nobody computes here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import DynamicOutputShapeException, FakeTensor

from paracosm.emulation.device.recording import STREAM
from paracosm.emulation.rank.call_site import call_site

if TYPE_CHECKING:
    from paracosm.emulation.device.tracer import Tracer

_aten: Any = torch.ops.aten


def worked_out(tracer: Tracer, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Return what an op on the device returns, as fake tensors.

    Raises:
        NotImplementedError: its shape depends on values, and there is no rule for it.
    """
    rule = _RULES.get(str(func.overloadpacket))
    if rule is not None:
        result = rule(tracer, args, kwargs)
        if result is not None:
            return result
    try:
        with tracer.fake:
            return func(*args, **kwargs)
    except DynamicOutputShapeException:
        raise tracer.values.refused(
            f"{func}, whose result has a size that depends on values"
        ) from None


def _assumed(tracer: Tracer, text: str) -> None:
    tracer.writer.assume(text, call_site())
    tracer.writer.add(STREAM, tracer.streams.current, phase=tracer.phase)


def _made(tracer: Tracer, shape: list[int], like: Tensor, dtype: torch.dtype | None = None) -> Any:
    with tracer.fake:
        return torch.empty(shape, dtype=dtype or like.dtype, device=like.device)


def _nonzero(tracer: Tracer, args: Any, kwargs: Mapping[str, Any]) -> Any:
    tensor = args[0]
    value = tracer.values.known(tensor)
    if value is None:
        _assumed(tracer, "all elements of a mask are true")
        count = tensor.numel()
    else:
        count = int(torch.count_nonzero(value))
    result = _made(tracer, [count, tensor.dim()], tensor, torch.int64)
    if value is not None:
        tracer.values.keep(result, value.nonzero())
    return result


def _masked_select(tracer: Tracer, args: Any, kwargs: Mapping[str, Any]) -> Any:
    tensor, mask = args[:2]
    broadcast: Any = torch.broadcast_shapes
    shape = broadcast(tensor.shape, mask.shape)
    value = tracer.values.known(mask)
    if value is None:
        _assumed(tracer, "all elements of a mask are true")
        count = math.prod(shape)
    else:
        count = int(torch.count_nonzero(value.expand(shape)))
    return _made(tracer, [count], tensor)


def _index(tracer: Tracer, args: Any, kwargs: Mapping[str, Any]) -> Any:
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
            with tracer.fake:
                positions += [
                    torch.empty(int(index.sum()), dtype=torch.int64, device=tensor.device)
                    for _ in range(index.dim())
                ]
            continue
        chosen = _nonzero(tracer, (index,), {})
        with tracer.fake:
            positions += [chosen[:, place] for place in range(index.dim())]
    with tracer.fake:
        return _aten.index.Tensor(tensor, positions)


def _repeat_interleave(tracer: Tracer, args: Any, kwargs: Mapping[str, Any]) -> Any:
    repeats = args[0]
    if not isinstance(repeats, Tensor) or (len(args) > 1 and isinstance(args[1], Tensor)):
        return None
    size = kwargs.get("output_size")
    if size is None:
        value = tracer.values.known(repeats)
        if value is None:
            return None
        size = int(value.sum())
    return _made(tracer, [int(size)], repeats, torch.int64)


def _unique(tracer: Tracer, args: Any, kwargs: Mapping[str, Any]) -> Any:
    tensor = args[0]
    value = tracer.values.known(tensor)
    if value is None:
        _assumed(tracer, "all values of unique are different")
        count = tensor.numel()
    else:
        count = len(torch.unique(value))
    return (
        _made(tracer, [count], tensor),
        _made(tracer, list(tensor.shape), tensor, torch.int64),
        _made(tracer, [count], tensor, torch.int64),
    )


_RULES: Mapping[str, Callable[[Tracer, Any, Mapping[str, Any]], Any]] = {
    "aten.nonzero": _nonzero,
    "aten.masked_select": _masked_select,
    "aten.index": _index,
    "aten.repeat_interleave": _repeat_interleave,
    "aten._unique2": _unique,
}
