"""The outputs of collectives, as if every rank held what this rank holds.

All functions write in place and leave autograd's version counters alone, as a backend that writes
into memory does. Sums are in the arithmetic of the tensors' type: integers wrap.
"""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.distributed import ReduceOp

from paracosm.errors import InputError

_KEPT = {ReduceOp.AVG, ReduceOp.MIN, ReduceOp.MAX, ReduceOp.BAND, ReduceOp.BOR}
_NOISE = 1e-3


def reduce(tensor: Tensor, op: Any, ranks: int) -> None:
    """Reduce a tensor with `ranks` - 1 others of the same content.

    SUM multiplies by the number of ranks and PRODUCT raises to its power; AVG, MIN, MAX, BAND and
    BOR leave it; BXOR clears it for an even number; PREMUL_SUM multiplies by its factor first. For
    booleans, SUM is "or" and PRODUCT "and".
    """
    kind = getattr(op, "op", op)
    data = tensor.data
    if kind == ReduceOp.SUM:  # first: the others are rare
        if data.dtype != torch.bool:
            _in_its_arithmetic(data, lambda wide: wide.mul_(_wrapped(ranks, wide.dtype)))
    elif kind in _KEPT:
        return
    elif kind == ReduceOp.BXOR:
        if ranks % 2 == 0:
            data.zero_()
    elif kind == ReduceOp.PREMUL_SUM:
        # PyTorch's public name for the factor, `factor`, is new.
        data.mul_(op.__getstate__()[1]).mul_(ranks)
    elif kind == ReduceOp.PRODUCT:
        if data.dtype != torch.bool:
            _in_its_arithmetic(data, lambda wide: _power(wide, ranks))
    else:
        raise InputError(f"reduce operation {kind}: not supported")


def copy(output: Tensor, source: Tensor) -> None:
    target, data = output.data, source.data
    if target.numel() == data.numel():
        target.copy_(data if target.shape == data.shape else data.reshape(target.shape))
    elif target.numel() and data.numel():
        times = -(-target.numel() // data.numel())
        target.copy_(data.reshape(-1).repeat(times)[: target.numel()].reshape(target.shape))
    else:
        target.zero_()


def copy_to_all(outputs: Sequence[Tensor], source: Tensor) -> None:
    targets, data = [output.data for output in outputs], source.data
    if all(target.shape == data.shape for target in targets) and targets:
        torch._foreach_copy_(targets, [data] * len(targets))  # a thousand copies in one call
    else:
        for target in targets:
            copy(target, data)


def repeat(output: Tensor, source: Tensor, ranks: int) -> None:
    """Fill a tensor with `ranks` copies of another, one after the other, as an all-gather does."""
    target, data = output.data, source.data
    if target.numel() == ranks * data.numel() and target.is_contiguous():
        if data.untyped_storage()._cdata == target.untyped_storage()._cdata:
            data = data.clone()  # FSDP2 gathers in place: the source is a part of the output
        target.view(ranks, data.numel()).copy_(data.reshape(1, -1))
    else:
        copy(output, source)


def all_to_all(outputs: Sequence[Tensor], inputs: Sequence[Tensor], rank: int) -> None:
    """Receive from every rank what this rank sends to itself, since all send the same.

    Where lengths do not fit that, ranks cannot all hold the same: each then sends back what it is
    sent, cut or repeated to the output's length, so that every element is kept once.
    """
    if all(output.numel() == inputs[rank].numel() for output in outputs):
        copy_to_all(outputs, inputs[rank].data.clone())  # an output may share memory with it
        return
    whole: Tensor | None = None
    for output, source in zip(outputs, inputs, strict=True):
        if output.numel() == source.numel() or source.numel():
            copy(output, source)
        else:
            if whole is None:
                whole = torch.cat([chunk.data.reshape(-1) for chunk in inputs])
            copy(output, whole)


def all_to_all_single(
    output: Tensor,
    source: Tensor,
    output_splits: Sequence[int],
    input_splits: Sequence[int],
    rank: int,
    ranks: int,
) -> None:
    """Do as `all_to_all` with chunks of rows of two tensors; without splits, equal chunks."""
    all_to_all(
        torch.split(output.data, list(output_splits) or output.shape[0] // ranks),
        torch.split(source.data, list(input_splits) or source.shape[0] // ranks),
        rank,
    )


def part(tensor: Tensor, index: int, length: int) -> Tensor:
    return tensor.data.reshape(-1)[index * length : (index + 1) * length]


class Sent:
    """What this rank sent, by shape and type: it gets the same when it receives.

    Where every rank sends to the one that is n places behind it, this rank receives from the one n
    places before it what it sends itself. A pipeline sends activations up and gradients down: a
    peer's tensor is like the last one sent to another peer. Floating-point tensors without such a
    precedent are small noise.
    """

    def __init__(self, seed: int) -> None:
        self._by_peer: dict[Any, dict[int, _Series]] = {}
        self._receiving: Counter[Any] = Counter()
        self._scattered: dict[Any, Tensor] = {}
        self._generator = torch.Generator().manual_seed(seed)

    def keep(self, tensor: Tensor, peer: int) -> Callable[[], None]:
        """Keep a tensor that is sent to a peer; return what to call when that was waited for."""
        of_peers = self._by_peer.setdefault(_key(tensor), {})
        series = of_peers.pop(peer, None) or _Series()
        of_peers[peer] = series  # the last one is last
        return series.append(tensor.data.clone())

    def has(self, tensor: Tensor) -> bool:
        return bool(self._by_peer.get(_key(tensor)))

    def keep_scattered(self, tensor: Tensor) -> None:
        self._scattered[_key(tensor)] = tensor.data.clone()

    def scattered(self, tensor: Tensor) -> Tensor | None:
        """Return what this rank last scattered to itself of the shape and type of a tensor."""
        return self._scattered.get(_key(tensor))

    def receive(self, tensor: Tensor, peer: int, mirror: int) -> Callable[[], None]:
        """Begin to receive from a peer; return what fills the tensor, when that is waited for.

        By then what the peer's message is like may have been sent as well. `mirror` is the rank as
        many places behind this one as the peer is before it.
        """
        key = _key(tensor)
        of_peers = self._by_peer.setdefault(key, {})
        # The first receipt under way answers the first message that is or will be under way.
        begun = {
            who: self._receiving[key, peer] + (of_peers[who].waited if who in of_peers else 0)
            for who in (peer, mirror)
        }
        self._receiving[key, peer] += 1

        def fill() -> None:
            self._receiving[key, peer] -= 1
            to_peer, to_mirror = of_peers.get(peer), of_peers.get(mirror)
            others = [series for other, series in list(of_peers.items()) if other != peer]
            if to_mirror is not None and mirror != peer:
                source = to_mirror.number(begun[mirror])
            elif to_peer is not None and to_peer.count > begun[peer] and not _is_stage():
                source = to_peer.number(begun[peer])  # both send before they wait: an exchange
            elif others:
                source = others[-1].last
            elif tensor.is_floating_point() or tensor.is_complex():
                source = torch.randn(tensor.shape, generator=self._generator) * _NOISE
            else:
                source = torch.zeros(()) if to_peer is None else to_peer.last
            tensor.data.copy_(source)

        return fill


_SENT = 4  # tensors sent to a peer that are kept: those of an exchange, as keys and values


class _Series:
    """The tensors of a shape and type that were sent to a peer."""

    def __init__(self) -> None:
        self.count = 0
        self.waited = 0  # for how many of them
        self._kept: deque[Tensor] = deque(maxlen=_SENT)

    def append(self, tensor: Tensor) -> Callable[[], None]:
        self._kept.append(tensor)
        self.count += 1

        def waited() -> None:
            self.waited += 1

        return waited

    @property
    def last(self) -> Tensor:
        return self._kept[-1]

    def number(self, number: int) -> Tensor:
        """Return the tensor of a number, from 0; the last one where that is not here."""
        back = self.count - number
        return self._kept[-back if 0 < back <= len(self._kept) else -1]


def _is_stage() -> bool:
    """Whether messages are a pipeline's: its gradients are no echo of its activations."""
    return "torch.distributed.pipelining.stage" in sys.modules


def _key(tensor: Tensor) -> Any:
    return tensor.shape, tensor.dtype, tensor.device


def _in_its_arithmetic(data: Tensor, change: Callable[[Tensor], Any]) -> None:
    if data.dtype.is_floating_point and data.dtype.itemsize == 1:
        wide = data.to(torch.float32)  # there is no arithmetic of 8-bit floating-point numbers
        change(wide)
        data.copy_(wide)
    else:
        change(data)


def _wrapped(number: int, dtype: torch.dtype) -> int:
    if dtype.is_floating_point or dtype.is_complex:
        return number
    bits = 8 * dtype.itemsize
    wrapped = number % (1 << bits)
    return wrapped - (1 << bits) if dtype.is_signed and wrapped >> (bits - 1) else wrapped


def _power(data: Tensor, exponent: int) -> None:
    if data.dtype.is_floating_point:
        data.pow_(exponent)
        return
    square = data.clone()  # by squaring: integers wrap as a product of them does
    data.fill_(1)
    while exponent:
        if exponent & 1:
            data.mul_(square)
        exponent >>= 1
        if exponent:
            square.mul_(square)
