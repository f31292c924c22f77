"""Announce the reductions of this process to the emulator, before gloo begins them.

Every collective passes PyTorch's dispatcher, also those that DistributedDataParallel asks for from
C++. A kernel for the key that all of them meet first, BackendSelect, writes the announcement and
hands the call on.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from paracosm.emulation.wire.announcements import AnnouncementWriter, Vector

_library: Any = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]  # kernels live as long as it does


def announce_reductions(path: Path) -> None:
    """Have every reduction of this process write a line to `path` before it begins."""
    announcing = _Announcing(AnnouncementWriter(path))
    for name, reduction in _REDUCTIONS.items():
        before(name, announcing.reduction(*reduction))
    for name in ("send", "recv_", "recv_any_source_"):
        before(name, announcing.message)


def before(name: str, call: Callable[[Sequence[Any]], None]) -> None:
    """Have `call` get the arguments of each call of an operator of c10d before it begins."""
    op = getattr(torch.ops.c10d, name).default
    after = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)

    def kernel(keyset: Any, *arguments: Any) -> Any:
        call(arguments)
        return op.redispatch(keyset & after, *arguments)

    _library.impl(name, kernel, "BackendSelect", with_keyset=True)


Vectors = Callable[[Sequence[Any]], Iterable[tuple[int, torch.Tensor]]]
"""Arguments -> bytes of the vector of each of gloo's reductions, and a tensor of its type."""


def _together(tensors: Sequence[torch.Tensor]) -> Iterable[tuple[int, torch.Tensor]]:
    return [(sum(tensor.nbytes for tensor in tensors), tensors[0])]


def _each(tensors: Sequence[torch.Tensor]) -> Iterable[tuple[int, torch.Tensor]]:
    return [(tensor.nbytes, tensor) for tensor in tensors]


# The group is argument 1 or 2, and the operator follows it. A reduce-scatter is an all-reduce of
# each of its inputs.
_REDUCTIONS: dict[str, tuple[int, Vectors]] = {
    "allreduce_": (1, lambda given: _each(given[0][:1])),
    "allreduce_coalesced_": (1, lambda given: _together(given[0])),
    "reduce_": (1, lambda given: _each(given[0][:1])),
    "reduce_scatter_": (2, lambda given: _each(given[1][0])),
    "_reduce_scatter_base_": (2, lambda given: _each([given[1]])),
    "reduce_scatter_tensor_coalesced_": (2, lambda given: _each(given[1])),
}


class _Announcing:
    def __init__(self, writer: AnnouncementWriter) -> None:
        self._writer = writer
        # By group: messages of pairs. They count in its sequence number, and have no tag of gloo's.
        self._messages: weakref.WeakKeyDictionary[dist.ProcessGroup, int]
        self._messages = weakref.WeakKeyDictionary()

    def message(self, arguments: Sequence[Any]) -> None:
        group = dist.ProcessGroup.unbox(arguments[1])
        self._messages[group] = self._messages.get(group, 0) + 1

    def reduction(self, place: int, vectors: Vectors) -> Callable[[Sequence[Any]], None]:
        def announce(arguments: Sequence[Any]) -> None:
            group: Any = dist.ProcessGroup.unbox(arguments[place])
            operator = arguments[place + 1].op()
            tag = group._get_sequence_number_for_group() - self._messages.get(group, 0)
            for number, (size, like) in enumerate(vectors(arguments)):
                vector = Vector(size, like.element_size(), neutral(operator, like.dtype))
                self._writer.write(group.group_name, group.rank(), tag + number, vector)

        return announce


@cache
def neutral(operator: int, dtype: torch.dtype) -> bytes:
    """Return the bytes of the element that leaves others as they are under a reduction."""
    kinds: Any = dist.ReduceOp.RedOpType
    value: float = 0
    if operator == int(kinds.PRODUCT):
        value = 1
    elif operator in (int(kinds.MIN), int(kinds.MAX), int(kinds.BAND)):
        is_least = operator == int(kinds.MAX)
        if dtype.is_floating_point:
            value = -torch.inf if is_least else torch.inf
        elif dtype is torch.bool:
            value = 0 if is_least else 1
        elif operator == int(kinds.BAND):
            value = torch.iinfo(dtype).max if not dtype.is_signed else -1
        else:
            value = torch.iinfo(dtype).min if is_least else torch.iinfo(dtype).max
    element = torch.full((1,), value, dtype=dtype)
    return bytes(element.view(torch.uint8).numpy().tobytes())
