"""Scaled dot-product attention, as the CPU fuses it."""

from __future__ import annotations

from typing import Any

from paracosm.graphs.op import TensorArgument
from paracosm.profiling.designs.families.typical import batch, tokens
from paracosm.profiling.designs.family import Argument, Call, Family, tensor

__all__ = ["ATTENTION"]

_OP = "aten._scaled_dot_product_flash_attention_for_cpu"
_ARGUMENTS = (
    batch(base=8),
    Argument("heads", (1, 4, 6, 8, 12, 12, 16, 32), 8),
    tokens(),
    Argument("head", (32, 64, 64, 64, 80, 128, 128), 64, low=8),
    Argument("causal", (1, 2, 2), 2),
)
"""`head`: features of one head. `causal` 2: a token sees those before it only."""


def _split(batch: int, heads: int, tokens: int, head: int, parts: int) -> TensorArgument:
    """Return one of `parts` that a projection [batch, tokens, parts x heads x head] is cut into."""
    row = parts * heads * head
    shape, stride = (batch, heads, tokens, head), (tokens * row, head, row, 1)
    return tensor(*shape, stride=None if _contiguous(shape, stride) else stride)


def _contiguous(shape: tuple[int, ...], stride: tuple[int, ...]) -> bool:
    expected = 1
    for size, step in zip(reversed(shape), reversed(stride), strict=True):
        if size != 1 and step != expected:
            return False
        expected *= size
    return True


def _attention(batch: int, heads: int, tokens: int, head: int, causal: int) -> Call:
    part = _split(batch, heads, tokens, head, parts=3)
    # No dropout and no mask are defaults, which a call does not say.
    return [part, part, part, *([0.0, True] if causal == 2 else [])], {}


def _backward(batch: int, heads: int, tokens: int, head: int, causal: int) -> Call:
    part = _split(batch, heads, tokens, head, parts=3)
    out = _split(batch, heads, tokens, head, parts=1)
    sums: Any = (batch, heads, tokens), (tokens * heads, 1, heads)
    logsumexp = tensor(*sums[0], stride=None if _contiguous(*sums) else sums[1])
    return [out, part, part, part, out, logsumexp, 0.0, causal == 2], {"attn_mask": None}


ATTENTION = (
    Family(f"{_OP}.default", _ARGUMENTS, _attention),
    Family(f"{_OP}_backward.default", _ARGUMENTS, _backward),
)
