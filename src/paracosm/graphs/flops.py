"""Floating-point operations by shape, as all graphs, timings and importers count them.

Products and convolutions count by their formulas, a multiply-add as two; a bias counts nothing, as
in PyTorch's counter. Ops that only move data count none. Any other op counts one per element of its
largest tensor: exact for element-wise ops, a lower bound for softmax, norms and the like.

Fused attention has two products of queries x keys x width forward (the scores, and their sum of the
values), five backward: the scores are computed again (Dao et al., "FlashAttention", 2022, section
3.1 and appendix B). Where `is_causal` is set, a kernel leaves out the scores that nobody sees: half
of the products count (Dao et al. and Megatron report their rates so). A mask that is given as a
tensor is only added to the scores, and all of them count.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from paracosm.errors import InputError
from paracosm.graphs.graph import Op, TensorArgument, decode_arguments

Shape = Sequence[int]

UPDATE_FLOPS = {"sgd": 2, "momentum": 4, "adagrad": 6, "adam": 14}
"""Of an optimizer, for each element of a parameter: p - lr g; v = mu v + g before it; the sum of
squares, its root and the division before it; and Kingma and Ba, Adam (2015), algorithm 1: 3 and 4
for the moments, 2 for the corrections, 5 for the step."""


def product_flops(output: Shape, inner: int) -> int:
    """Return the operations of a matrix product; `inner` elements are summed for each of output."""
    return 2 * math.prod(output) * inner


def convolution_flops(moved: Shape, kernel: Shape) -> int:
    """Return the operations of a convolution, or of one of its gradients.

    Args:
        moved: the output, or the input of a transposed one.
        kernel: of the weight, what each element of `moved` is multiplied with.
    """
    return 2 * math.prod(moved) * math.prod(kernel)


def elementwise_flops(shapes: Iterable[Shape | None]) -> int:
    """Return one for each element of the largest tensor; None stands for an unknown shape."""
    return max((math.prod(shape) for shape in shapes if shape is not None), default=0)


def aten_product_flops(name: str, shapes: Sequence[Any]) -> int | None:
    """Return the operations of one of PyTorch's products by the shapes of its arguments.

    None where it is none; `name` has neither namespace nor overload.
    """
    formula = _ATEN_PRODUCTS.get(name)
    return None if formula is None else formula(shapes)


def _matrices(a: Shape, b: Shape) -> int:
    return product_flops(a, b[-1])


def _grouped(a: Shape, b: Shape) -> int:
    """Of each row of the first with one matrix of the second, or of each column with one."""
    return _matrices(a if len(a) == 2 or len(b) == 3 else a[1:], b)


def _recurrence(x: Shape, of_inputs: Shape, of_states: Shape) -> int:
    """Each step of each sequence multiplies its input and its state with a matrix."""
    return product_flops(x[:2], math.prod(of_inputs) + math.prod(of_states))


_ATEN_PRODUCTS: Mapping[str, Callable[[Sequence[Any]], int]] = {
    **dict.fromkeys(("mm", "bmm", "_scaled_mm"), lambda s: _matrices(s[0], s[1])),
    **dict.fromkeys(
        ("addmm", "baddbmm", "addmm_", "baddbmm_", "_addmm_activation"),
        lambda s: _matrices(s[1], s[2]),
    ),
    **dict.fromkeys(("_grouped_mm", "_scaled_grouped_mm"), lambda s: _grouped(s[0], s[1])),
    **dict.fromkeys(("mv", "dot", "vdot"), lambda s: product_flops(s[0], 1)),
    "addmv": lambda s: product_flops(s[1], 1),
    "mkldnn_rnn_layer": lambda s: _recurrence(*s[:3]),
    "mkldnn_rnn_layer_backward": lambda s: 2 * _recurrence(*s[:3]),
}


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
    shapes = [argument.shape if isinstance(argument, TensorArgument) else None for argument in args]
    flops = call_flops(op.name, shapes, args, named)
    return replace(op, flops=flops) if flops is not None and op.flops == 2 * flops else op
