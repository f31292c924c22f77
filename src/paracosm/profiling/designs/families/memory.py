"""What only moves data: copies, and tensors put together."""

from __future__ import annotations

from paracosm.profiling.designs.families.typical import activation, activations
from paracosm.profiling.designs.family import Argument, Call, Family, tensor

__all__ = ["MEMORY"]


def _copy(**point: int) -> Call:
    whole = tensor(*activation(**point))
    return [whole, whole], {}


def _clone(**point: int) -> Call:
    return [tensor(*activation(**point))], {}


def _cat(parts: int, **point: int) -> Call:
    return [[tensor(*activation(**point))] * parts, 1], {}


MEMORY = (
    Family("aten.copy_.default", activations(), _copy),
    Family("aten.clone.default", activations(), _clone),
    Family("aten.cat.default", (*activations(), Argument("parts", (2, 2, 3, 4), 2, high=8)), _cat),
)
