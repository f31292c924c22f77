"""Adapters of low rank at attention's projections, where those alone are trained.

A map by W of frozen weights gets A and B beside it, of rank r: y = W x + B A x (Hu et al., "LoRA",
2021, section 4.1). Ranks that share layers divide both as NeMo and Megatron-Bridge do
(`ParallelLinearAdapter`; PEFT's `LoraParallelLinear` is the same without sequence parallelism):

    queries, keys, values   A by its rows, then a gather of r numbers a token; B by its rows
    attention's output      A by its columns, then a sum of r numbers a token; B by its rows, then
                            an all-to-all of tokens for columns where ranks divide the sequence
                            (`a2a_experimental`, as in MLPerf's runs), else a gather of all columns

Nothing overlaps these collectives: each waits for a product of the adapter, and the next one waits
for it.
"""

from collections.abc import Iterator

from paracosm.graphs.graph import Op
from paracosm.graphs.transformer.ops import (
    HALF,
    Kept,
    Step,
    all_gather,
    all_reduce,
    all_to_all,
    product,
    streaming,
)
from paracosm.graphs.transformer.share import Share

BY_COLUMNS = "attention.out"
"""The map whose input ranks that share layers have their part of each."""

ADAPTED = ("attention.qkv", "attention.key", "attention.value", BY_COLUMNS)
"""Linear maps with adapters."""


def adapter(share: Share, place: str, outputs: int, inputs: int) -> Iterator[Step]:
    """Yield the adapter of a map to `outputs` from `inputs` numbers on this rank, and the sum with
    what the map makes; nothing where all weights are trained."""
    rank, tokens, ranks = share.model.adapter, share.tokens, share.split.tensor
    if not rank:
        return
    first, second, added = _parts(share, place, outputs)
    size = HALF * tokens * inputs
    if share.model.adapter_dropout:
        kept: Kept = ((size + size // HALF, place),)  # with its mask
        yield Step(place, streaming("aten.native_dropout.default", size, size + size // HALF), kept)
    yield Step(place, product(tokens, first, inputs), ((HALF * tokens * rank, place),))
    if ranks > 1:
        low = HALF * tokens * rank
        yield Step(place, all_reduce(low) if place == BY_COLUMNS else all_gather(low, ranks))
    yield Step(place, product(tokens, second, rank))
    if ranks > 1 and place == BY_COLUMNS:
        yield Step(place, _whole(share, second))
    yield Step(place, streaming("aten.add.Tensor", 2 * added, added))


def adapter_backward(share: Share, place: str, outputs: int, inputs: int) -> Iterator[Step]:
    """Yield the gradients of an adapter's input and weights, and the sum with those of the map."""
    rank, tokens, size = share.model.adapter, share.tokens, share.gradient
    first, second, _ = _parts(share, place, outputs)
    stream = HALF * tokens * inputs
    if share.split.tensor > 1 and place == BY_COLUMNS and share.split.sequence:
        yield Step(place, _whole(share, second))
    yield Step(place, product(tokens, rank, second))
    if share.split.tensor > 1:
        yield Step(place, all_reduce(HALF * tokens * rank))
    yield Step(place, product(tokens, inputs, first))
    if share.model.adapter_dropout:
        name = "aten.native_dropout_backward.default"
        yield Step(place, streaming(name, stream + stream // HALF, stream))
    yield Step(place, streaming("aten.add.Tensor", 2 * stream, stream))
    for weights, op in (
        (rank * second, product(second, rank, tokens)),
        (first * inputs, product(first, inputs, tokens)),
    ):
        yield Step(place, op, of_weights=True)
        copy = streaming("aten._to_copy.default", HALF * weights, size * weights)
        yield Step(place, copy, gradient=size * weights, of_weights=True)


def gather_for_adapter(share: Share, place: str) -> Iterator[Step]:
    """Yield the gather of an input that an adapter takes as well as the frozen map.

    It is in half precision, since the adapter multiplies such numbers, and the kernel that overlaps
    it with a product keeps nothing of it: the norm hands it on complete (Transformer Engine's
    `return_layernorm_output_gathered`; NeMo's `tp_comm_overlap_disable_qkv`). The adapter keeps it
    for the gradient of its weights.
    """
    kept: Kept = () if share.model.adapter_dropout else ((share.stream, place),)
    yield Step(place, all_gather(share.stream, share.split.tensor), kept)


def _parts(share: Share, place: str, outputs: int) -> tuple[int, int, int]:
    """Return a rank's rows of A and of B, and the bytes of its part of what the map makes."""
    rank, ranks = share.model.adapter, share.split.tensor
    if place == BY_COLUMNS:
        return rank, -(-outputs // ranks), share.local
    return -(-rank // ranks), outputs, HALF * share.tokens * outputs


def _whole(share: Share, columns: int) -> Op:
    """Return what turns a rank's columns of all tokens into all columns."""
    size, ranks = HALF * share.tokens * columns, share.split.tensor
    return all_to_all(size, "tensor") if share.split.sequence else all_gather(size * ranks, ranks)
