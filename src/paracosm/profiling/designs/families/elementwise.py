"""Ops that look at one element at a time, on activations."""

from __future__ import annotations

from collections.abc import Callable

from paracosm.profiling.designs.families.typical import activation, activations
from paracosm.profiling.designs.family import Call, Family, tensor

__all__ = ["ELEMENTWISE"]


def _of(tensors: int, *rest: float) -> Callable[..., Call]:
    """Return the call with so many tensors of one shape, and `rest` after them."""
    return lambda **point: ([*[tensor(*activation(**point))] * tensors, *rest], {})


ELEMENTWISE = tuple(
    Family(f"aten.{op}", activations(), call)
    for op, call in (
        ("relu.default", _of(1)),
        ("relu_.default", _of(1)),
        ("threshold_backward.default", _of(2, 0)),
        ("gelu.default", _of(1)),
        ("gelu_backward.default", _of(2)),
        ("silu.default", _of(1)),
        ("silu_backward.default", _of(2)),
        ("sigmoid.default", _of(1)),
        ("sigmoid_backward.default", _of(2)),
        ("tanh.default", _of(1)),
        ("tanh_backward.default", _of(2)),
        ("add.Tensor", _of(2)),
        ("mul.Tensor", _of(2)),
        ("div.Tensor", _of(2)),
    )
)
