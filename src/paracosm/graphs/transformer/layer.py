"""One layer of a transformer on one of the ranks that share it, op by op.

Sources: Shoeybi et al., "Megatron-LM", 2019 (how a layer is split: two all-reduces forward, two
backward); Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021
(which kernels are fused: scale, mask and softmax; bias and GeLU; bias, dropout and add);
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022 (section
4: what is kept for the backward pass, s b h (10 + 24 / t + 5 a s / (h t)) bytes; section 4.2.2:
along the sequence all-reduces become a gather before and a reduce-scatter after, and what is
gathered is gathered again backward); Liu et al., "Ring Attention with Blockwise Transformers",
2023 (keys and values go around a ring beside the attention to those that are there); Lepikhin et
al., "GShard", 2020 (tokens are sent to the ranks of their experts, and back).

    forward   norm qkv attention out | add   norm up act down | add
    all-reduce of the output of each half at |; backward, of the gradient of each half's input
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from paracosm.graphs.graph import Op
from paracosm.graphs.transformer.ops import (
    HALF,
    all_gather,
    all_reduce,
    all_to_all,
    flash,
    grouped_product,
    permute,
    product,
    reduce_scatter,
    streaming,
)
from paracosm.graphs.transformer.share import Share

Kept = tuple[tuple[int, str], ...]


@dataclass(frozen=True, slots=True)
class Step:
    """An op at its place in the layer."""

    place: str  # "attention.qkv"
    op: Op  # a collective communicates
    # bytes of each result that the backward pass needs, and the place whose backward pass is the
    # last to need it; "" where the next layer's first norm is
    kept: Kept = ()
    gradient: int = 0  # bytes of the gradient of weights that it makes
    of_weights: bool = False  # whether nothing but the optimizer waits for it
    overlaps: bool = False  # whether the next step overlaps it, and the one after waits for both


def layer_forward(share: Share, layer: int) -> Iterator[Step]:
    """Yield the forward pass of a layer; `layer` selects the loads of experts."""
    local, gate = share.local, "mlp.gate" if share.model.gated else "mlp.up"
    last = "mlp.router" if share.model.experts and not share.model.shared else gate
    yield Step("attention.norm", norm(share), ((local, _projections(share)[-1][0]),))
    yield from _gather(share, "attention.qkv")
    yield from _queries(share)
    yield from _attention(share)
    yield from _linear(share, "attention.out", share.model.width)
    fused = share.model.recipe == "compiled"
    if fused:  # the sum is part of the norm's kernel
        both = norm(share, streams=2)
        yield Step("mlp.norm", both, ((local, "mlp.norm"), (local, last)))
    else:
        yield _add(share, "attention.add", "mlp.norm")
        yield Step("mlp.norm", norm(share), ((local, last),))
    if not _sends_parts(share) or share.model.shared:
        yield from _gather(share, "mlp.up")
    if share.model.experts:
        yield from _experts(share, layer)
    if share.model.shared or not share.model.experts:
        yield from _perceptron(share)
    elif not _sends_parts(share):
        yield from _sum(share, "experts.down")
    yield _add(share, "mlp.add", "")


def layer_backward(share: Share, layer: int) -> Iterator[Step]:
    """Yield the backward pass, which adds each gradient of weights to the existing one."""
    yield from _add_backward(share, "mlp.add")
    if not _sends_parts(share) or share.model.shared:
        yield from _gather(share, "mlp.down")
    if share.model.experts:
        yield from _experts_backward(share, layer)
    if share.model.shared or not share.model.experts:
        yield from _perceptron_backward(share)
    elif not _sends_parts(share):
        yield from _sum(share, "mlp.router")
    yield from norm_backward(share, "mlp.norm", with_stream=True)
    yield from _add_backward(share, "attention.add")
    yield from _gather(share, "attention.out")
    width, inner = share.model.width, share.heads * share.model.head_width
    yield from linear_backward(share, "attention.out", share.tokens, width, inner, first=True)
    yield from _attention_backward(share)
    yield from _gather(share, "attention.qkv", again=True)
    projections = (
        step
        for number, (place, columns) in enumerate(_projections(share))
        for step in linear_backward(share, place, share.tokens, columns, width, first=not number)
    )
    yield from _summed(share, "attention.qkv", projections)
    yield from norm_backward(share, "attention.norm", with_stream=True)


# Attention.


def _projections(share: Share) -> list[tuple[str, int]]:
    """Return the products that make queries, keys and values: places, columns on this rank."""
    head = share.model.head_width
    queries, keys = share.heads * head, share.kv_heads * head
    if share.model.fused_qkv:
        return [("attention.qkv", queries + 2 * keys)]
    return [("attention.qkv", queries), ("attention.key", keys), ("attention.value", keys)]


def _queries(share: Share) -> Iterator[Step]:
    sizes = _projections(share)
    for number, (place, columns) in enumerate(sizes):
        if share.split.float8 and not number:
            yield from _cast(share, place, share.stream, after_norm=True)
        op = product(share.tokens, columns, share.model.width, float8=share.split.float8)
        kept = HALF * share.tokens * columns
        user = "attention.scores" if share.model.recipe == "megatron" else "attention.core"
        yield Step(place, op, ((kept, user),))
    if share.model.rotary:
        yield Step("attention.rotary", _rotary(share))


def _rotary(share: Share) -> Op:
    """Rotate queries and keys; op by op they are cast to single precision, multiplied, and cast."""
    heads = share.heads + share.kv_heads
    size = share.tokens * heads * share.model.head_width
    read, written = (10, 10) if share.model.recipe == "eager" else (HALF, HALF)
    return streaming(f"{share.model.recipe}.rotary", read * size, written * size)


def _attention(share: Share) -> Iterator[Step]:
    model = share.model
    heads, size = share.micro_batch * share.heads, share.tokens * share.heads * model.head_width
    if model.recipe != "megatron":
        yield from _ring(share, backward=False)
        return
    s, scores = model.sequence, heads * model.sequence**2
    yield Step("attention.scores", product(s, s, model.head_width, heads))
    softmax = streaming("aten._softmax.default", HALF * scores, HALF * scores)
    yield Step("attention.softmax", softmax, ((HALF * scores, "attention.softmax"),))
    yield Step(
        "attention.dropout",
        streaming("aten.native_dropout.default", HALF * scores, (HALF + 1) * scores),
        ((scores, "attention.dropout"), (HALF * scores, "attention.context")),
    )
    yield Step("attention.context", product(s, model.head_width, s, heads))
    yield Step("attention.copy", _copy(HALF * size), ((HALF * size, "attention.out"),))


def _attention_backward(share: Share) -> Iterator[Step]:
    model = share.model
    heads, size = share.micro_batch * share.heads, share.tokens * share.heads * model.head_width
    if model.recipe != "megatron":
        yield from _ring(share, backward=True)
        if model.rotary:
            yield Step("attention.rotary", _rotary(share))
        return
    s, head, scores = model.sequence, model.head_width, heads * model.sequence**2
    yield Step("attention.copy", _copy(HALF * size))
    yield Step("attention.context", product(s, s, head, heads))
    yield Step("attention.context", product(s, head, s, heads))
    dropout = "aten.native_dropout_backward.default"
    yield Step("attention.dropout", streaming(dropout, (HALF + 1) * scores, HALF * scores))
    softmax = "aten._softmax_backward_data.default"
    yield Step("attention.softmax", streaming(softmax, 2 * HALF * scores, HALF * scores))
    yield Step("attention.scores", product(s, head, s, heads))
    yield Step("attention.scores", product(s, head, s, heads))


def _ring(share: Share, *, backward: bool) -> Iterator[Step]:
    """Yield attention to the keys of each rank of the ring, while the next ones are transferred.

    Every rank has an early and a late part of the sequence, so that causal attention takes all of
    them equally long (Brandon et al., "Striped Attention", 2023). In the backward pass the
    gradients of keys and values travel with them, and one step further, back to their rank.
    """
    model, ranks = share.model, share.split.context
    length, head = model.sequence // ranks, model.head_width
    op = flash(
        *(share.micro_batch, share.heads, share.kv_heads, length, length, head), backward=backward
    )
    keys = 2 * HALF * share.tokens * share.kv_heads * head
    result = HALF * share.tokens * share.heads * head
    logarithms = 4 * share.tokens * share.heads  # of the sums of each row's exponentials
    kept = ((result, "attention.out"), (logarithms, "attention.core"))
    for number in range(ranks):
        if number < ranks - 1:
            yield Step("attention.core", permute((1 + backward) * keys), overlaps=True)
        last = number == ranks - 1
        yield Step("attention.core", op, kept if last and not backward else ())
    if backward and ranks > 1:
        yield Step("attention.core", permute(keys))


# The perceptron, and experts.


def _perceptron(share: Share) -> Iterator[Step]:
    model, inner = share.model, _inner(share)
    size = HALF * share.tokens * inner
    ways = ("mlp.up", "mlp.gate")[: model.matrices - 1]
    for number, place in enumerate(ways):
        if share.split.float8 and not number:
            yield from _cast(share, place, share.stream, after_norm=True)
        op = product(share.tokens, inner, model.width, float8=share.split.float8)
        yield Step(place, op, ((size, "mlp.gelu"),))
    yield Step("mlp.gelu", _activation(share, size), ((size, "mlp.down"),))
    yield from _linear(share, "mlp.down", _whole_inner(share))


def _perceptron_backward(share: Share) -> Iterator[Step]:
    model, inner = share.model, _inner(share)
    size = HALF * share.tokens * inner
    yield from linear_backward(share, "mlp.down", share.tokens, model.width, inner, first=True)
    yield Step("mlp.gelu", _activation(share, size, backward=True))
    yield from _gather(share, "mlp.up", again=True)
    ways = (
        step
        for number, place in enumerate(("mlp.up", "mlp.gate")[: model.matrices - 1])
        for step in linear_backward(
            share, place, share.tokens, inner, model.width, first=not number
        )
    )
    yield from _summed(share, "mlp.up", ways)


def _whole_inner(share: Share) -> int:
    return share.model.inner * (share.model.shared or 1)


def _inner(share: Share) -> int:
    return -(-_whole_inner(share) // share.split.tensor)


def _activation(share: Share, size: int, *, backward: bool = False) -> Op:
    suffix = "_backward" if backward else ""
    if not share.model.gated:
        return streaming(f"aten.gelu{suffix}.default", (1 + backward) * size, size)
    eager = share.model.recipe == "eager"  # SiLU, then the product with the gate
    there, back = ((3, 2), (6, 3)) if eager else ((2, 1), (3, 2))
    read, written = back if backward else there
    return streaming(f"{share.model.recipe}.silu_mul{suffix}", read * size, written * size)


def _sends_parts(share: Share) -> bool:
    """Whether ranks that share layers send tokens to experts each for its own part of a sequence.

    Then tokens are gathered where they arrive, between the ranks that share an expert, in place of
    a gather before they are sent (Singh et al., "A Hybrid Tensor-Expert-Data Parallelism Approach",
    2023; Megatron's all-to-all dispatcher).
    """
    return bool(share.model.experts) and share.split.tensor > 1 and share.split.sequence


def _experts(share: Share, layer: int) -> Iterator[Step]:
    """Yield the experts' work on tokens, with the time of the rank that gets the most."""
    model, split = share.model, share.split
    parts = split.tensor if _sends_parts(share) else 1
    sent, done = share.routed_tokens(layer)
    token, own = HALF * model.width, share.tokens // parts
    of_expert = HALF * done * share.inner
    float8 = split.float8 if share.casts_once else ""
    yield Step("mlp.router", product(own, model.experts, model.width))
    scores = 4 * own * model.experts
    yield Step("mlp.router", streaming("moe.top_k", scores, scores))
    moved = streaming("moe.permute", sent * token // parts, sent * token // parts)
    yield Step("experts.permute", moved)
    came: Kept = ((done * token, "experts.up"),)
    if split.expert > 1:
        here = () if parts > 1 else came
        exchange = all_to_all(max(sent, done) * token // parts)
        yield Step("experts.dispatch", exchange, here)
    if parts > 1:
        yield Step("experts.gather", all_gather(done * token, parts), came)
    if split.expert > 1 or parts > 1:
        came = ()
    held = model.experts // split.expert
    if float8:
        yield from _cast(share, "experts.up", done * token)
    for place in ("experts.up", "experts.gate")[: model.matrices - 1]:
        op = grouped_product(done, share.inner, model.width, held, float8=float8)
        yield Step(place, op, (*came, (of_expert, "experts.gelu")))
        came = ()
    yield Step("experts.gelu", _activation(share, of_expert), ((of_expert, "experts.down"),))
    if float8:
        yield from _cast(share, "experts.down", of_expert)
    yield Step("experts.down", grouped_product(done, model.width, share.inner, held, float8=float8))
    if parts > 1:
        yield Step("experts.scatter", reduce_scatter(done * token, parts))
    if split.expert > 1:
        yield Step("experts.combine", all_to_all(max(sent, done) * token // parts))
    back = streaming("moe.unpermute", sent * token // parts, share.stream // parts)
    yield Step("experts.unpermute", back, ((sent * token // parts, "experts.unpermute"),))


def _experts_backward(share: Share, layer: int) -> Iterator[Step]:
    model, split = share.model, share.split
    parts = split.tensor if _sends_parts(share) else 1
    sent, done = share.routed_tokens(layer)
    token, of_expert, own = HALF * model.width, HALF * done * share.inner, share.tokens // parts
    stream, routed = share.stream // parts, sent * token // parts
    back = streaming("moe.unpermute_backward", stream + routed, routed)
    yield Step("experts.unpermute", back)
    if split.expert > 1:
        yield Step("experts.combine", all_to_all(max(sent, done) * token // parts))
    if parts > 1:
        yield Step("experts.scatter", all_gather(done * token, parts))
    held = model.experts // split.expert
    sizes = (model.width, share.inner)
    yield from linear_backward(share, "experts.down", done, *sizes, groups=held)
    yield Step("experts.gelu", _activation(share, of_expert, backward=True))
    for place in ("experts.up", "experts.gate")[: model.matrices - 1]:
        yield from linear_backward(share, place, done, *reversed(sizes), groups=held)
    if parts > 1:
        yield Step("experts.gather", reduce_scatter(done * token, parts))
    if split.expert > 1:
        yield Step("experts.dispatch", all_to_all(max(sent, done) * token // parts))
    yield Step("experts.permute", streaming("moe.permute_backward", routed, stream))
    scores = 4 * own * model.experts
    yield Step("mlp.router", streaming("moe.top_k_backward", scores, scores))
    yield from linear_backward(share, "mlp.router", own, model.experts, model.width)


# What is the same everywhere.


def _gather(share: Share, place: str, *, again: bool = False) -> Iterator[Step]:
    """Yield the gather of a sequence-parallel input; `again` for gradients of weights."""
    if share.split.tensor > 1 and share.split.sequence:
        size = share.stream // (2 if share.split.float8 in ("tensorwise", "delayed") else 1)
        overlaps = again or share.split.overlap
        yield Step(place, all_gather(size, share.split.tensor), overlaps=overlaps)


def total(share: Share) -> Op:
    """Return the sum of the residual stream over the ranks that share layers."""
    if share.split.sequence:
        return reduce_scatter(share.stream, share.split.tensor)
    return all_reduce(share.stream)


def _sum(share: Share, place: str) -> Iterator[Step]:
    if share.split.tensor > 1:
        yield Step(place, total(share))


def _cast(
    share: Share, place: str, size: int, layouts: int = 1, *, after_norm: bool = False
) -> Iterator[Step]:
    """Yield what writes a tensor of `size` bytes in float8, in so many layouts.

    Scaled by the largest of the tensor, it is read to find that, and read again to be written, once
    for each layout (torchao); by that of a row, read once for each layout, whose rows are others.
    Transformer Engine reads it once and writes both layouts; scaled by earlier steps, the norm
    before writes them itself ("LayerNormLinear"), so that they are written in place of the tensor.
    """
    scaling = share.split.float8
    if scaling == "delayed" and after_norm:
        return
    if share.casts_once:
        read, layouts = size, 2
    else:
        read = 2 * size if scaling == "tensorwise" else layouts * size
    yield Step(place, streaming("float8.cast", read, layouts * size // HALF))


def _linear(share: Share, place: str, whole: int) -> Iterator[Step]:
    """Yield a map from the shares of what is `whole` on all ranks, and the sum of its outputs."""
    inner = -(-whole // share.split.tensor)
    if share.split.float8:
        yield from _cast(share, place, HALF * share.tokens * inner)
    op = product(share.tokens, share.model.width, inner, float8=share.split.float8)
    yield from _summed(share, place, [Step(place, op)])


def _summed(share: Share, place: str, steps: Iterable[Step]) -> Iterator[Step]:
    """Yield steps and the sum of their output, concurrent with the last except gradients of
    weights: piece by piece, as products are done (Wang et al., "Overlap Communication with
    Dependent Computation via Decomposition", 2023)."""
    found = list(steps)
    sums = list(_sum(share, place))
    if sums and share.split.overlap:
        last = max(n for n, step in enumerate(found) if not step.of_weights)
        found.insert(last, replace(sums.pop(), overlaps=True))
    yield from found
    yield from sums


def linear_backward(
    share: Share,
    place: str,
    tokens: int,
    outputs: int,
    inputs: int,
    *,
    groups: int = 0,
    first: bool = False,
) -> Iterator[Step]:
    """Yield the gradients of a linear map's input, weights and bias; of `groups` of them at once.

    In float8, tokens of the output's gradient are cast for both products, and those of the input,
    held by the `first` of several maps, for the second, if the forward pass has not kept them so.
    """
    model, size = share.model, share.gradient
    float8 = share.split.float8
    if place == "mlp.router" or (groups and not share.casts_once):
        float8 = ""
    weights = max(groups, 1) * outputs * inputs
    if float8:
        yield from _cast(share, place, HALF * tokens * outputs, layouts=2)
    if groups:
        yield Step(place, grouped_product(tokens, inputs, outputs, groups, float8=float8))
    else:
        yield Step(place, product(tokens, inputs, outputs, float8=float8))
    if not first and model.recipe != "megatron" and not groups:
        stream = HALF * tokens * inputs
        yield Step(place, streaming("aten.add.Tensor", 2 * stream, stream))

    def of_weights(op: Op, gradient: int = 0) -> Step:
        return Step(place, op, gradient=gradient, of_weights=True)

    if float8 and first and not share.casts_once:
        for step in _cast(share, place, HALF * tokens * inputs):
            yield of_weights(step.op)
    if groups:
        yield of_weights(grouped_product(inputs, outputs, tokens, 1, float8=float8))
    else:
        yield of_weights(product(outputs, inputs, tokens, float8=float8))
    biases = max(groups, 1) * outputs if model.bias and place != "mlp.router" else 0
    if biases:
        bias = HALF * tokens * outputs
        yield of_weights(streaming("aten.sum.dim_IntList", bias, HALF * outputs))
    read = HALF * weights if size > HALF else 2 * HALF * weights
    name = "aten._to_copy.default" if size > HALF else "aten.add_.Tensor"
    yield of_weights(streaming(name, read, size * weights), size * (weights + biases))


def norm(share: Share, streams: int = 1) -> Op:
    """Return the norm of the residual stream, or of the sum of two `streams`, which is kept."""
    size = share.local
    if not share.model.rms:
        name = "aten.native_layer_norm.default"
    elif share.model.recipe == "eager":  # cast, square, mean, product, cast, product with weights
        return streaming("eager.rms_norm", 9 * size, 7 * size)
    else:
        name = "compiled.rms_norm"
    return streaming(name, streams * size, streams * size)


def norm_backward(share: Share, place: str, *, with_stream: bool = False) -> Iterator[Step]:
    """Yield the gradient of a norm, and its sum with that of the residual stream."""
    size, model = share.local, share.model
    gradient = share.gradient * model.norm_parameters
    fused = with_stream and model.recipe == "compiled"
    read = (3 if fused else 2) * size
    if not model.rms:
        op = streaming("aten.native_layer_norm_backward.default", read, size)
    elif model.recipe == "eager":
        op = streaming("eager.rms_norm_backward", 24 * size, 12 * size)
    else:
        op = streaming("compiled.rms_norm_backward", read, size)
    yield Step(place, op, gradient=gradient)
    if with_stream and not fused:
        yield Step(place, streaming("aten.add.Tensor", 2 * size, size))


def _add(share: Share, place: str, user: str) -> Step:
    """Return the residual addition; with Megatron also bias and dropout, whose mask is kept."""
    size = share.local
    if share.model.recipe == "megatron":
        op = streaming("megatron.bias_dropout_add", 2 * size, size + size // HALF)
        return Step(place, op, ((size // HALF, place), (size, user)))
    return Step(place, streaming("aten.add.Tensor", 2 * size, size), ((size, user),))


def _add_backward(share: Share, place: str) -> Iterator[Step]:
    size = share.local
    if share.model.recipe == "megatron":
        dropout = "aten.native_dropout_backward.default"
        yield Step(place, streaming(dropout, size + size // HALF, size))


def _copy(size: int) -> Op:
    return streaming("aten.copy_.default", size, size)
