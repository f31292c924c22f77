"""The outputs of collectives, as if every rank held what this rank holds.

All functions write in place and leave autograd's version counters alone, as a backend that writes
into memory does. Sums are in the arithmetic of the tensors' type: integers wrap.
"""

from __future__ import annotations

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
        if data.untyped_storage().data_ptr() == target.untyped_storage().data_ptr():
            data = data.clone()  # FSDP2 gathers in place: the source is a part of the output
        target.view(ranks, data.numel()).copy_(data.reshape(1, -1))
    else:
        copy(output, source)


def all_to_all(outputs: Sequence[Tensor], inputs: Sequence[Tensor]) -> None:
    """Receive from each rank what this rank sends to it, cut or repeated to the output's length.

    If every rank held the same, rank r would get chunk r from everybody. Sending each chunk back
    gives that for equal chunks, and otherwise keeps every element once.
    """
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
    ranks: int,
) -> None:
    """Do as `all_to_all` with chunks of rows of two tensors; without splits, equal chunks."""
    if list(output_splits) == list(input_splits) and output.numel() == source.numel():
        copy(output, source)
        return
    all_to_all(
        torch.split(output.data, list(output_splits) or output.shape[0] // ranks),
        torch.split(source.data, list(input_splits) or source.shape[0] // ranks),
    )


def part(tensor: Tensor, index: int, length: int) -> Tensor:
    return tensor.data.reshape(-1)[index * length : (index + 1) * length]


class Sent:
    """The tensors sent last, by shape and type: what this rank gets when it receives.

    A pipeline sends activations up and gradients down: a peer's tensor is like one sent to another
    peer. Floating-point tensors with no such precedent are small noise.
    """

    def __init__(self, seed: int) -> None:
        self._last: dict[Any, dict[int, Tensor]] = {}
        self._generator = torch.Generator().manual_seed(seed)

    def keep(self, tensor: Tensor, peer: int) -> None:
        of_peers = self._last.setdefault(_key(tensor), {})
        of_peers.pop(peer, None)  # the last one is last
        of_peers[peer] = tensor.data.clone()

    def has(self, tensor: Tensor) -> bool:
        return _key(tensor) in self._last

    def receive(self, tensor: Tensor, peer: int) -> None:
        """Fill a tensor as if a peer (-1: any) had sent it."""
        of_peers = self._last.get(_key(tensor), {})
        others = [kept for other, kept in list(of_peers.items()) if other != peer]
        if others:
            tensor.data.copy_(others[-1])
        elif tensor.is_floating_point() or tensor.is_complex():
            noise = torch.randn(tensor.shape, generator=self._generator) * _NOISE
            tensor.data.copy_(noise)
        elif peer in of_peers:
            tensor.data.copy_(of_peers[peer])
        else:
            tensor.data.zero_()


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
