"""How much an op computes and moves, from its arguments alone.

Floating-point operations: matrix products, convolutions and attention by PyTorch's own formulas
(torch.utils.flop_counter; a multiply-add is two, causal attention counts in full). Ops that only
move or fill memory, random numbers and views count none. Every other op counts one for each element
of the largest tensor that it is given or returns: exact for element-wise ops, a lower bound for
norms, softmax and the like, which go over their input more than once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils.flop_counter import flop_registry

from paracosm.graphs.capture.effects import ALLOCATE, COLLECTIVES, Effects

__all__ = ["flops_of", "traffic_of"]


def flops_of(
    func: torch._ops.OpOverload,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    outputs: Any,
    effects: Effects,
) -> int:
    """Return the floating-point operations of a call."""
    packet = func.overloadpacket
    name = str(packet)
    if name in _FORMULAS:
        return int(_FORMULAS[name](*args))
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **kwargs, out_val=outputs))
    if name in _MOVES or name in ALLOCATE or func.namespace not in ("aten", "prims"):
        return 0
    if name.startswith("aten._foreach_"):
        return sum(tensor.numel() for tensor in effects.mutated or effects.outputs)
    return max((tensor.numel() for tensor in effects.inputs + effects.outputs), default=0)


def traffic_of(func: torch._ops.OpOverload, effects: Effects) -> tuple[int, int]:
    """Return the bytes that a call reads and writes.

    Each tensor among the arguments counts once, the elements of an expanded one once each.
    What is only overwritten is not read; a gather reads as much as it returns, and its indices.
    """
    packet = str(func.overloadpacket)
    written = _bytes(effects.mutated + effects.fresh)
    inputs = effects.inputs
    if packet in _OVERWRITES or func.namespace in COLLECTIVES or torch.Tag.out in func.tags:
        changed = {id(tensor) for tensor in effects.mutated}
        inputs = [tensor for tensor in inputs if id(tensor) not in changed]
    if packet in _GATHERS:
        return _bytes(inputs[1:]) + min(_bytes(inputs[:1]), _bytes(effects.fresh)), written
    return _bytes(inputs), written


def _bytes(tensors: Sequence[Tensor]) -> int:
    return sum(_elements(tensor) * tensor.element_size() for tensor in tensors)


def _elements(tensor: Tensor) -> int:
    """Return how many different elements of its storage a tensor shows."""
    if tensor.is_contiguous():
        return tensor.numel()
    extent = 1
    for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
        extent *= size if stride else min(size, 1)
    return extent


def _attention(query: Tensor, key: Tensor, value: Tensor, *_: Any) -> int:
    """Scores and their product with the values."""
    width, out = query.shape[-1], value.shape[-1]
    return 2 * query.shape[:-1].numel() * key.shape[-2] * (width + out)


def _attention_backward(_grad: Tensor, query: Tensor, key: Tensor, value: Tensor, *_: Any) -> int:
    """Scores once more, and the gradients of queries, keys, values and of the scores themselves."""
    width, out = query.shape[-1], value.shape[-1]
    return 2 * query.shape[:-1].numel() * key.shape[-2] * (3 * width + 2 * out)


def _recurrence(x: Tensor, of_inputs: Tensor, of_states: Tensor, *_: Any) -> int:
    """Each step of each sequence multiplies its input and its state with a matrix."""
    return 2 * x.shape[:2].numel() * (of_inputs.numel() + of_states.numel())


# Products that PyTorch's registry leaves out.
_FORMULAS: Mapping[str, Callable[..., Any]] = {
    "aten._scaled_dot_product_flash_attention_for_cpu": _attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward": _attention_backward,
    "aten.mkldnn_rnn_layer": _recurrence,
    "aten.mkldnn_rnn_layer_backward": lambda *args: 2 * _recurrence(*args),
    "aten.mv": lambda matrix, *_: 2 * matrix.numel(),
    "aten.addmv": lambda _bias, matrix, *_: 2 * matrix.numel(),
    "aten.dot": lambda vector, *_: 2 * vector.numel(),
}
_GATHERS = frozenset(
    f"aten.{name}" for name in ("embedding", "index", "index_select", "gather", "take")
)
_OVERWRITES = frozenset(
    f"aten.{name}"
    for name in (
        *("copy_", "fill_", "zero_", "_foreach_copy_", "_foreach_zero_"),
        *("uniform_", "normal_", "bernoulli_", "random_", "exponential_"),
    )
)
_MOVES = (
    frozenset(
        f"aten.{name}"
        for name in (
            *("clone", "_to_copy", "cat", "stack", "slice_backward", "select_backward"),
            *("full", "full_like", "new_full", "zeros", "zeros_like", "new_zeros", "ones"),
            *("ones_like", "new_ones", "scalar_tensor", "arange", "rand", "randn", "randint"),
            *("rand_like", "randn_like", "bernoulli", "_local_scalar_dense", "constant_pad_nd"),
            *("index_put", "index_put_", "repeat", "roll", "flip", "split_with_sizes_copy"),
            *("masked_fill", "masked_fill_", "tril", "triu", "native_dropout", "repeat_interleave"),
            *("scatter", "scatter_", "as_strided_copy", "_unsafe_index", "_foreach_clone"),
        )
    )
    | _GATHERS
    | _OVERWRITES
)
