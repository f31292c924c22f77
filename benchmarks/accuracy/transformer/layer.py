"""One layer of a transformer, shared by t ranks as in Megatron-LM, op by op.

Sources: Shoeybi et al., "Megatron-LM", 2019 (how a layer is split: two all-reduces forward, two
backward); Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021
(which kernels are fused: scale, mask and softmax; bias and GeLU; bias, dropout and add);
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022, section 4
(what is kept for the backward pass: s b h (10 + 24 / t + 5 a s / (h t)) bytes).

    forward   norm qkv scores softmax dropout context copy out | add   norm up gelu down | add
    all-reduce of the output of each half at |; backward, of the gradient of each half's input
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from paracosm.graphs.graph import Op
from transformer.architecture import Transformer
from transformer.ops import HALF, all_reduce, product, streaming

__all__ = ["Step", "layer_backward", "layer_forward"]


@dataclass(frozen=True, slots=True)
class Step:
    """An op at its place in the layer.

    Attributes:
        place: "attention.qkv".
        op: what runs there; an all-reduce communicates.
        kept: bytes of each result that the backward pass needs, and the place whose backward pass
            is the last to need it; "" where the next layer's first norm is.
        gradient: bytes of the gradient of weights that it makes.
    """

    place: str
    op: Op
    kept: tuple[tuple[int, str], ...] = ()
    gradient: int = 0


def layer_forward(model: Transformer, micro_batch: int, tensor: int) -> Iterator[Step]:
    """Yield the forward pass of a layer for `micro_batch` examples on one of `tensor` ranks."""
    t, h, s = tensor, model.width, model.sequence
    tokens, heads, part = micro_batch * s, micro_batch * model.heads // t, model.width // t
    stream, share = HALF * tokens * h, HALF * tokens * part
    scores = heads * s * s
    head = h // model.heads
    yield Step("attention.norm", _norm(stream), ((stream, "attention.qkv"),))
    yield Step("attention.qkv", product(tokens, 3 * part, h), ((3 * share, "attention.scores"),))
    yield Step("attention.scores", product(s, s, head, heads))
    yield Step("attention.softmax", _softmax(scores), ((HALF * scores, "attention.softmax"),))
    yield Step(
        "attention.dropout",
        streaming("aten.native_dropout.default", HALF * scores, (HALF + 1) * scores),
        ((scores, "attention.dropout"), (HALF * scores, "attention.context")),
    )
    yield Step("attention.context", product(s, head, s, heads))
    yield Step("attention.copy", _copy(share), ((share, "attention.out"),))
    yield Step("attention.out", product(tokens, h, part))
    if t > 1:
        yield Step("attention.out", all_reduce(stream))
    yield Step(
        "attention.add",
        _bias_dropout_add(stream),
        ((stream // HALF, "attention.add"), (stream, "mlp.norm")),
    )
    yield Step("mlp.norm", _norm(stream), ((stream, "mlp.up"),))
    yield Step("mlp.up", product(tokens, 4 * part, h), ((4 * share, "mlp.gelu"),))
    yield Step(
        "mlp.gelu",
        streaming("aten.gelu.default", 4 * share, 4 * share),
        ((4 * share, "mlp.down"),),
    )
    yield Step("mlp.down", product(tokens, h, 4 * part))
    if t > 1:
        yield Step("mlp.down", all_reduce(stream))
    yield Step("mlp.add", _bias_dropout_add(stream), ((stream // HALF, "mlp.add"), (stream, "")))


def layer_backward(model: Transformer, micro_batch: int, tensor: int) -> Iterator[Step]:
    """Yield the backward pass, each gradient of weights being added to what there is already."""
    t, h, s = tensor, model.width, model.sequence
    tokens, heads, part = micro_batch * s, micro_batch * model.heads // t, model.width // t
    stream, share = HALF * tokens * h, HALF * tokens * part
    scores = heads * s * s
    head = h // model.heads
    dropout = "aten.native_dropout_backward.default"
    yield Step("mlp.add", streaming(dropout, stream + stream // HALF, stream))
    yield from _linear("mlp.down", tokens, h, 4 * part, bias=stream)
    yield Step("mlp.gelu", streaming("aten.gelu_backward.default", 8 * share, 4 * share))
    yield from _linear("mlp.up", tokens, 4 * part, h, bias=4 * share)
    if t > 1:
        yield Step("mlp.up", all_reduce(stream))
    yield from _norm_and_stream("mlp.norm", h, stream)
    yield Step("attention.add", streaming(dropout, stream + stream // HALF, stream))
    yield from _linear("attention.out", tokens, h, part, bias=stream)
    yield Step("attention.copy", _copy(share))
    yield Step("attention.context", product(s, s, head, heads))
    yield Step("attention.context", product(s, head, s, heads))
    yield Step("attention.dropout", streaming(dropout, (HALF + 1) * scores, HALF * scores))
    yield Step(
        "attention.softmax",
        streaming("aten._softmax_backward_data.default", 2 * HALF * scores, HALF * scores),
    )
    yield Step("attention.scores", product(s, head, s, heads))
    yield Step("attention.scores", product(s, head, s, heads))
    yield from _linear("attention.qkv", tokens, 3 * part, h, bias=3 * share)
    if t > 1:
        yield Step("attention.qkv", all_reduce(stream))
    yield from _norm_and_stream("attention.norm", h, stream)


def _linear(place: str, tokens: int, outputs: int, inputs: int, bias: int) -> Iterator[Step]:
    """Yield the gradients of a linear map's input, weights and bias (`bias` bytes are summed)."""
    weights = HALF * outputs * inputs
    yield Step(place, product(tokens, inputs, outputs))
    yield Step(place, product(outputs, inputs, tokens))
    yield Step(place, streaming("aten.sum.dim_IntList", bias, HALF * outputs))
    yield Step(
        place,
        streaming("aten.add_.Tensor", 2 * weights, weights),
        gradient=weights + HALF * outputs,
    )


def _norm_and_stream(place: str, width: int, stream: int) -> Iterator[Step]:
    """Yield the gradient of a layer norm, and its sum with that of the residual stream."""
    yield Step(
        place,
        streaming("aten.native_layer_norm_backward.default", 2 * stream, stream),
        gradient=2 * HALF * width,
    )
    yield Step(place, streaming("aten.add.Tensor", 2 * stream, stream))


def _norm(size: int) -> Op:
    return streaming("aten.native_layer_norm.default", size, size)


def _softmax(scores: int) -> Op:
    return streaming("aten._softmax.default", HALF * scores, HALF * scores)


def _copy(size: int) -> Op:
    return streaming("aten.copy_.default", size, size)


def _bias_dropout_add(stream: int) -> Op:
    """Read the result and the residual stream, write the sum and the mask."""
    return streaming("megatron.bias_dropout_add", 2 * stream, stream + stream // HALF)
