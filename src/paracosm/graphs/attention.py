"""Floating-point operations of fused attention, as all graphs, timings and importers count them.

Forward two products of queries x keys x width (the scores, and their sum of the values), backward
five: the scores are computed again (Dao et al., "FlashAttention", 2022, section 3.1 and appendix
B). Where `is_causal` is set, a kernel leaves out the scores that nobody sees: half of the products
count (Dao et al. and Megatron report their rates so). A mask that is given as a tensor is only
added to the scores, and all of them count.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paracosm.errors import InputError
from paracosm.graphs.graph import Op, TensorArgument, decode_arguments


def attention_flops(
    query: Sequence[int], keys: int, value_width: int, *, causal: bool, backward: bool
) -> int:
    """Return the operations of attention.

    Args:
        query: its shape, of which the last is the width of a head, and all others are queries.
        keys: that each query is multiplied with.
        value_width: of the values of a head.
        causal: whether a query sees only the keys before it.
        backward: whether it computes the gradients.
    """
    width = query[-1]
    columns = 3 * width + 2 * value_width if backward else width + value_width
    flops = 2 * math.prod(query[:-1]) * keys * columns
    return flops // 2 if causal else flops


@dataclass(frozen=True)
class _Call:
    """Where the arguments of an op are: queries, then keys and values; `is_causal`."""

    query: int
    causal: int
    keys: int = -2  # the dimension of the keys' number in their shape
    # the bounds of sequences that are packed one after the other, n + 1 numbers; 0 for none
    bounds: int = 0

    @property
    def backward(self) -> bool:
        return self.query == 1


_SDPA = "_scaled_dot_product_"
CALLS: Mapping[str, _Call] = {
    "scaled_dot_product_attention": _Call(0, 5),
    f"{_SDPA}attention_math": _Call(0, 5),
    f"{_SDPA}attention_math_for_mps": _Call(0, 5),
    f"{_SDPA}flash_attention": _Call(0, 4),
    f"{_SDPA}flash_attention.quantized": _Call(0, 7),
    f"{_SDPA}flash_attention_backward": _Call(1, 11),
    f"{_SDPA}flash_attention_for_cpu": _Call(0, 4),
    f"{_SDPA}flash_attention_for_cpu_backward": _Call(1, 7),
    f"{_SDPA}efficient_attention": _Call(0, 6),
    f"{_SDPA}efficient_attention_backward": _Call(1, 11),
    f"{_SDPA}cudnn_attention": _Call(0, 6),
    f"{_SDPA}cudnn_attention_backward": _Call(1, 14),
    f"{_SDPA}fused_attention_overrideable": _Call(0, 5),
    f"{_SDPA}fused_attention_overrideable_backward": _Call(1, 13),
    "_flash_attention_forward": _Call(0, 8, keys=-3, bounds=4),
    "_flash_attention_backward": _Call(1, 11, keys=-3, bounds=7),
    # Instead of `is_causal` the number of a mask: 0 for none, 1 and 2 for causal ones.
    "_efficient_attention_forward": _Call(0, 9, keys=-3, bounds=5),
    "_efficient_attention_backward": _Call(1, 14, keys=-3, bounds=7),
}
"""PyTorch's ops, by their names in ATen (native_functions.yaml); of an overload first."""


def call_flops(
    name: str,
    shapes: Sequence[Sequence[int] | None],
    values: Sequence[Any],
    named: Mapping[str, Any] | None = None,
) -> int | None:
    """Return the operations of a call; None where it is no fused attention, or lacks its shapes.

    Sequences that are packed one after the other are taken to be equally long.

    Args:
        name: of the op, "_scaled_dot_product_flash_attention" with or without namespace, overload.
        shapes: of the arguments that are tensors, None for others.
        values: of the arguments that are none.
        named: arguments by name.
    """
    call = _call_of(name)
    if call is None:
        return None
    operands = [*shapes, None, None, None, None][call.query : call.query + 3]
    query, key, value = (list(shape or ()) for shape in operands)
    if min(len(query), len(value)) < 2 or len(key) < -call.keys:
        return None
    bounds = shapes[call.bounds] if 0 < call.bounds < len(shapes) else None
    packed = max(bounds[0] - 1, 1) if bounds else 1
    return attention_flops(
        query,
        key[call.keys] // packed,
        value[-1],
        causal=_is_causal(call, values, named or {}),
        backward=call.backward,
    )


def _call_of(name: str) -> _Call | None:
    plain = name.rpartition("::")[2].removeprefix("aten.")
    return CALLS.get(plain) or CALLS.get(plain.partition(".")[0])


def _is_causal(call: _Call, values: Sequence[Any], named: Mapping[str, Any]) -> bool:
    said = values[call.causal] if len(values) > call.causal else named.get("is_causal", False)
    return said.strip().lower() in ("true", "1", "2") if isinstance(said, str) else bool(said)


def counted_in_half(op: Op) -> Op:
    """Return an op as this version counts it: earlier ones counted causal attention in full."""
    call = _call_of(op.name)
    if call is None or not op.flops:
        return op
    try:
        args, named = decode_arguments(op.arguments)
    except InputError:
        return op
    shapes = [each.shape if isinstance(each, TensorArgument) else None for each in args]
    flops = call_flops(op.name, shapes, args, named)
    return replace(op, flops=flops) if flops is not None and op.flops == 2 * flops else op
