"""Announce to the emulator what this process communicates, before gloo begins.

Every collective passes through PyTorch's dispatcher, also those that DistributedDataParallel calls
from C++. A kernel for the dispatch key that comes first, BackendSelect, writes the announcement and
passes the call on.
"""

from __future__ import annotations

import ctypes
import json
import weakref
from collections.abc import Callable, Iterable, Sequence
from functools import cache
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d as c10d

from paracosm.emulation.wire.announcements import (
    SMALL_PART,
    AnnouncementWriter,
    Message,
    Vector,
)
from paracosm.emulation.wire.schedules import children_in_broadcast, parent_in_broadcast
from paracosm.emulation.wire.store import members_key

_library: Any = torch.library.Library("c10d", "IMPL")  # type: ignore[no-untyped-call]  # kernels live as long as it does


def announce(writer: AnnouncementWriter, real: Sequence[int]) -> None:
    """Make this process announce what it is about to do that concerns emulated ranks.

    That is: reductions, messages between two ranks, broadcasts from an emulated rank, and what is
    gathered here. `real` are all real ranks.
    """
    announcing = _Announcing(writer, real)
    for name, reduction in _REDUCTIONS.items():
        kind = "reduce" if name == "reduce_" else "all_reduce"
        before(name, announcing.reduction(*reduction, kind))
    announcing.watch_calls()
    before("broadcast_", announcing.broadcast)
    before("gather_", announcing.gather)
    before("send", announcing.send)
    before("recv_", announcing.receive)
    before("recv_any_source_", announcing.receive_from_any)
    before("monitored_barrier_", announcing.monitored_barrier)


def tell_members() -> None:
    """Publish the members of each group in the job's store, before gloo connects them."""
    make: Callable[..., Any] = c10d._new_process_group_helper

    def made(
        size: int,
        rank: int,
        members: list[int],
        backend: Any,
        store: Any,
        name: str,
        *more: Any,
        **options: Any,
    ) -> Any:
        if not members or dist.get_rank() in members:
            store.set(members_key(name), json.dumps(members or list(range(size))))
        return make(size, rank, members, backend, store, name, *more, **options)

    setattr(c10d, "_new_process_group_helper", made)  # noqa: B010  # its names for arguments differ


def before(name: str, call: Callable[[Sequence[Any]], Any]) -> None:
    """Make each call of a c10d operator call `call` with its arguments first.

    Unless that returns None, its result replaces the operator's.
    """
    op = getattr(torch.ops.c10d, name).default
    after = torch._C._dispatch_keyset_full_after(torch._C.DispatchKey.BackendSelect)

    def kernel(keyset: Any, *arguments: Any) -> Any:
        instead = call(arguments)
        return op.redispatch(keyset & after, *arguments) if instead is None else instead

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


_GATHERS: dict[str, Callable[[Any], Any]] = {
    "allgather": lambda given: given[1][0] if isinstance(given[1], list) else given[1],
    "_allgather_base": lambda given: given[1],
    "all_gather_single": lambda given: given[1],
}
"""Methods of a group -> a rank's own part among their arguments; some releases lack one."""


class _Announcing:
    def __init__(self, writer: AnnouncementWriter, real: Sequence[int]) -> None:
        self._writer = writer
        self._real = frozenset(real)
        # By group: messages of pairs. They count in its sequence number, and have no tag of gloo's.
        self._messages: weakref.WeakKeyDictionary[dist.ProcessGroup, int]
        self._messages = weakref.WeakKeyDictionary()

    def watch_calls(self) -> None:
        """Announce what Python itself asks a group for, without the dispatcher.

        A kernel in Python takes as long as a small collective. It is left out of these calls, which
        are of one tensor: gloo makes no others for them, whose kernels would be left out as well.
        """
        call: Callable[..., Any] = dist.ProcessGroup.allreduce
        left_out = torch._C.DispatchKeySet(torch._C.DispatchKey.BackendSelect)

        def allreduce(group: Any, *arguments: Any, **named: Any) -> Any:
            match arguments:
                case ([torch.Tensor() as tensor], dist.AllreduceOptions() as options) if (
                    not named and tensor.layout is torch.strided and tensor.is_cpu
                ):
                    reduce_op: Any = options.reduceOp
                    operator = int(reduce_op.op)
                    vector = Vector(
                        tensor.nbytes, tensor.element_size(), neutral(operator, tensor.dtype)
                    )
                    self._writer.vector(group.group_name, group.rank(), self._tag(group), vector)
                    with torch._C._ExcludeDispatchKeyGuard(left_out):
                        return call(group, *arguments)
            return call(group, *arguments, **named)

        setattr(dist.ProcessGroup, "allreduce", allreduce)  # noqa: B010  # not a method to mypy
        for name, part in _GATHERS.items():
            if hasattr(dist.ProcessGroup, name):
                setattr(dist.ProcessGroup, name, self._gathering(name, part))

    def _gathering(self, name: str, part: Callable[[Any], Any]) -> Callable[..., Any]:
        call: Callable[..., Any] = getattr(dist.ProcessGroup, name)

        def gather(group: Any, *arguments: Any, **named: Any) -> Any:
            tensor = part(arguments) if len(arguments) > 1 else None
            if (
                isinstance(tensor, torch.Tensor)
                and tensor.nbytes
                and tensor.is_cpu
                and tensor.is_contiguous()
            ):
                size = tensor.nbytes
                data = ctypes.string_at(tensor.data_ptr(), size) if size <= SMALL_PART else b""
                self._writer.part(group.group_name, group.rank(), self._tag(group), size, data)
            return call(group, *arguments, **named)

        return gather

    def reduction(self, place: int, vectors: Vectors, kind: str) -> Callable[[Sequence[Any]], None]:
        def announce(arguments: Sequence[Any]) -> None:
            group: Any = dist.ProcessGroup.unbox(arguments[place])
            operator = arguments[place + 1].op()
            tag = self._tag(group)
            for number, (size, like) in enumerate(vectors(arguments)):
                vector = Vector(size, like.element_size(), neutral(operator, like.dtype))
                self._writer.vector(group.group_name, group.rank(), tag + number, vector, kind)

        return announce

    def broadcast(self, arguments: Sequence[Any]) -> None:
        """Announce the root to emulated neighbours, and what emulated members give or pass on.

        That is the data of a real root; of an emulated one, what the first real member has.
        """
        tensors, boxed, root, *_ = arguments
        group: Any = dist.ProcessGroup.unbox(boxed)
        rank, size = group.rank(), group.size()
        members = dist.get_process_group_ranks(group)
        real = [member for member, rank in enumerate(members) if rank in self._real]
        parents = {member: parent_in_broadcast(size, root, member) for member in real}
        if any(parent not in (None, *real) for parent in parents.values()) and rank == (
            root if root in real else real[0]
        ):
            self._copy(group, tensors[0])
        neighbours = {parents[rank], *children_in_broadcast(size, root, rank)} - {None}
        if not neighbours.issubset(real):
            self._writer.root(group.group_name, rank, self._tag(group), root)

    def gather(self, arguments: Sequence[Any]) -> None:
        _, tensors, boxed, root, *_ = arguments
        group: Any = dist.ProcessGroup.unbox(boxed)
        if root == group.rank():
            self._copy(group, tensors[0])

    def send(self, arguments: Sequence[Any]) -> None:
        tensors, boxed, target, tag = arguments
        group: Any = dist.ProcessGroup.unbox(boxed)
        self._message(group, (group.rank(), target), tag, tensors[0].dtype, b"")

    def receive(self, arguments: Sequence[Any]) -> None:
        tensors, boxed, source, tag = arguments
        group: Any = dist.ProcessGroup.unbox(boxed)
        dtype = tensors[0].dtype
        self._message(group, (source, group.rank()), tag, dtype, noise(dtype))

    def receive_from_any(self, arguments: Sequence[Any]) -> Any:
        """Receive from the preceding rank if all others are emulated, as in backend mode."""
        tensors, boxed, tag = arguments
        group: Any = dist.ProcessGroup.unbox(boxed)
        if self._real.intersection(dist.get_process_group_ranks(group)) == {dist.get_rank()}:
            before = (group.rank() - 1) % group.size()
            return torch.ops.c10d.recv_.default(tensors, boxed, before, tag)
        self._messages[group] = self._messages.get(group, 0) + 1
        return None

    def monitored_barrier(self, arguments: Sequence[Any]) -> None:
        """Announce that rank 0 hears from all others under one tag, and answers under the next.

        The content is never read (ProcessGroupGloo::monitoredBarrier, ProcessGroupGloo.cpp).
        """
        group: Any = dist.ProcessGroup.unbox(arguments[1])
        rank, tag = group.rank(), self._tag(group)
        others = (0,) if rank else range(1, group.size())
        for other in others:
            said = Message("torch.int32", bytes(4))
            self._writer.message(group.group_name, (other, rank), tag + bool(rank), said)
        self._messages[group] = self._messages.get(group, 0) + 2 * len(others) - 2

    def _tag(self, group: Any) -> int:
        return int(group._get_sequence_number_for_group()) - self._messages.get(group, 0)

    def _copy(self, group: Any, tensor: torch.Tensor) -> None:
        data = tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy().data
        self._writer.copy(group.group_name, group.rank(), self._tag(group), data)

    def _message(
        self, group: Any, ends: tuple[int, int], tag: int, dtype: torch.dtype, likely: bytes
    ) -> None:
        self._messages[group] = self._messages.get(group, 0) + 1
        self._writer.message(group.group_name, ends, tag, Message(str(dtype), likely))


@cache
def noise(dtype: torch.dtype) -> bytes:
    """Return the bytes of some small floating-point numbers; empty for integer types."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return b""
    generator = torch.Generator().manual_seed(0)
    numbers = torch.randn(64, generator=generator).mul(1e-3).to(dtype)
    return bytes(numbers.view(torch.uint8).numpy().tobytes())


@cache
def neutral(operator: int, dtype: torch.dtype) -> bytes:
    """Return the bytes of a reduction's neutral element."""
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
