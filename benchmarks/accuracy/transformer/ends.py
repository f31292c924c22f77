"""What comes before the first layer of a transformer and after the last one, and the optimizer."""

from __future__ import annotations

from collections.abc import Iterator

from paracosm.graphs.graph import Op
from transformer.architecture import Transformer
from transformer.layer import Step
from transformer.ops import HALF, all_reduce, product, streaming

__all__ = ["adam", "embedding_backward", "embedding_forward", "head_backward", "head_forward"]


def embedding_forward(model: Transformer, micro_batch: int, tensor: int) -> Iterator[Step]:
    """Yield the look-up of tokens, of which each rank holds a share, and of positions."""
    stream = HALF * micro_batch * model.sequence * model.width
    yield Step("embedding", streaming("aten.embedding.default", stream, stream))
    if tensor > 1:
        yield Step("embedding", all_reduce(stream))
    yield Step("embedding", streaming("aten.add.Tensor", 2 * stream, stream))
    yield Step(
        "embedding",
        streaming("aten.native_dropout.default", stream, stream + stream // HALF),
        ((stream // HALF, "embedding"), (stream, "")),
    )


def embedding_backward(model: Transformer, micro_batch: int, tensor: int) -> Iterator[Step]:
    """Yield the gradient of the embedding, whose weights are the head's as well."""
    stream = HALF * micro_batch * model.sequence * model.width
    dropout = "aten.native_dropout_backward.default"
    yield Step("embedding", streaming(dropout, stream + stream // HALF, stream))
    rows = model.padded_vocabulary(tensor) // tensor + model.sequence
    yield Step(
        "embedding",
        streaming("aten.embedding_dense_backward.default", stream, stream),
        gradient=HALF * rows * model.width,
    )


def head_forward(model: Transformer, micro_batch: int, tensor: int) -> Iterator[Step]:
    """Yield the last norm, the logits, and the cross entropy of logits that are split by tokens.

    The loss is computed in single precision, in eager steps (Megatron-LM,
    `vocab_parallel_cross_entropy`): cast, maximum, difference, exponential, sum, division.
    """
    tokens, share = micro_batch * model.sequence, model.padded_vocabulary(tensor) // tensor
    stream, logits = HALF * tokens * model.width, tokens * share
    yield Step(
        "norm", streaming("aten.native_layer_norm.default", stream, stream), ((stream, "head"),)
    )
    yield Step("head", product(tokens, share, model.width))
    loss = streaming("megatron.vocab_parallel_cross_entropy", 22 * logits, 16 * logits)
    yield Step("loss", loss, ((4 * logits, "loss"),))


def head_backward(model: Transformer, micro_batch: int, tensor: int) -> Iterator[Step]:
    """Yield the gradients of the logits, the head's weights, and the last norm."""
    tokens, share = micro_batch * model.sequence, model.padded_vocabulary(tensor) // tensor
    stream, logits = HALF * tokens * model.width, tokens * share
    weights = HALF * share * model.width
    yield Step(
        "loss", streaming("megatron.vocab_parallel_cross_entropy_backward", 8 * logits, 6 * logits)
    )
    yield Step("head", product(tokens, model.width, share))
    yield Step("head", product(share, model.width, tokens))
    yield Step("head", streaming("aten.add_.Tensor", 2 * weights, weights))
    if tensor > 1:
        yield Step("head", all_reduce(stream))
    yield Step(
        "norm",
        streaming("aten.native_layer_norm_backward.default", 2 * stream, stream),
        gradient=2 * HALF * model.width,
    )


def adam(parameters: int) -> Op:
    """Return the update of mixed-precision training: 62 bytes a parameter.

    Gradients to single precision (2 read, 4 written), their check for overflow and division by the
    loss scale (4, 4), their norm (4), clipping (4, 4), Adam with fused kernels on weights, two
    moments and gradients (16, 12), weights back to half precision (4, 2), gradients to zero (2).
    """
    return streaming("megatron.adam", 34 * parameters, 28 * parameters)
