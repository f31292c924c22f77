"""Mirrors on the host of what tensors on a device that computes nothing hold.

A mirror belongs to a storage, so that all views of it see what is written to one of them. It has
the elements of the storage, each of which may be known or not; or one number that all of them are.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

_MIRROR = "_paracosm_mirror"  # the attribute of a storage: weak references would forbid swaps


class Mirror:
    """What the host knows of a storage."""

    __slots__ = ("elements", "fill", "is_known", "origin")

    def __init__(self, elements: Tensor | None, fill: Tensor | None, origin: str) -> None:
        self.elements = elements  # one after another; None while all of them are `fill`
        self.fill = fill
        self.is_known: Tensor | None = None  # for each element; None where all are
        self.origin = origin  # the rule by which they were assumed; "" if they were computed


def mirror_of(tensor: Any) -> Mirror | None:
    return getattr(tensor.untyped_storage(), _MIRROR, None)


def value_of(tensor: Any) -> Tensor | None:
    """Return the value of a tensor on the host, or None; writing to it writes to the mirror.

    Where all elements are one number it is that number, expanded, and nobody may write to it.
    """
    mirror = mirror_of(tensor)
    if mirror is None or tensor.is_conj() or tensor.is_neg():
        return None
    if mirror.elements is None:
        fill = mirror.fill
        if fill is None or fill.dtype != tensor.dtype:
            return None
        return fill.expand(tensor.shape)
    elements = mirror.elements
    if len(elements) * elements.dtype.itemsize != tensor.untyped_storage().nbytes():
        return None  # it was resized
    if elements.dtype != tensor.dtype:
        if elements.dtype.itemsize != tensor.dtype.itemsize:
            return None
        elements = elements.view(tensor.dtype)
    known = mirror.is_known
    if known is not None and not bool(_like(known, tensor).all()):
        return None
    return _like(elements, tensor)


def fill_of(tensor: Any) -> Tensor | None:
    """Return the one number that all elements of a tensor are, if its mirror says so."""
    mirror = mirror_of(tensor)
    if mirror is None or mirror.elements is not None or mirror.fill is None:
        return None
    return mirror.fill if mirror.fill.dtype == tensor.dtype else None


def fill(tensor: Any, number: Tensor, origin: str, most: int) -> None:
    """Let all elements of a tensor be one number, of no dimension."""
    if _is_whole(tensor):
        mirror = Mirror(None, number.to(tensor.dtype).reshape(()), origin)
        setattr(tensor.untyped_storage(), _MIRROR, mirror)
    else:
        write(tensor, number.to(tensor.dtype).expand(tensor.shape), origin, most)


def write(tensor: Any, value: Tensor, origin: str, most: int) -> None:
    """Let a tensor have a value; where its storage has more than `most` elements, forget it."""
    target = writable(tensor, most)
    if target is None:
        forget(tensor, most)
        return
    target.copy_(value)
    settle(tensor, origin)


def writable(tensor: Any, most: int) -> Tensor | None:
    """Return what to write a tensor's value to, before `settle`; None where that would be large."""
    size = _elements(tensor)
    if size > most:
        return None
    mirror = mirror_of(tensor)
    if mirror is not None and mirror.elements is None:
        assert mirror.fill is not None
        mirror.elements = mirror.fill.expand(size).clone()
    if mirror is None or mirror.elements is None or mirror.elements.dtype != tensor.dtype:
        mirror = Mirror(torch.zeros(size, dtype=tensor.dtype), None, "")
        mirror.is_known = torch.zeros(size, dtype=torch.bool)
        setattr(tensor.untyped_storage(), _MIRROR, mirror)
    assert mirror.elements is not None
    return _like(mirror.elements, tensor)


def settle(tensor: Any, origin: str) -> None:
    """Take the elements of a tensor as known from now on."""
    mirror = mirror_of(tensor)
    if mirror is None:
        return
    if _is_whole(tensor):
        mirror.is_known, mirror.origin = None, origin
        return
    mirror.origin = mirror.origin or origin
    if mirror.is_known is not None:
        _like(mirror.is_known, tensor).fill_(True)
        if bool(mirror.is_known.all()):
            mirror.is_known = None


def forget(tensor: Any, most: int) -> None:
    """Let nobody know the elements of a tensor any more."""
    mirror = mirror_of(tensor)
    if mirror is None:
        return
    if _is_whole(tensor) or writable(tensor, most) is None or mirror_of(tensor) is not mirror:
        delattr(tensor.untyped_storage(), _MIRROR)
        return
    assert mirror.elements is not None
    if mirror.is_known is None:
        mirror.is_known = torch.ones(len(mirror.elements), dtype=torch.bool)
    _like(mirror.is_known, tensor).fill_(False)


def _elements(tensor: Any) -> int:
    return int(tensor.untyped_storage().nbytes()) // int(tensor.dtype.itemsize)


def _is_whole(tensor: Any) -> bool:
    """Whether a tensor has all elements of its storage; none is in it twice."""
    return tensor.numel() == _elements(tensor) and 0 not in [
        stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1
    ]


def _like(elements: Tensor, tensor: Any) -> Tensor:
    return elements.as_strided(tensor.size(), tensor.stride(), tensor.storage_offset())
