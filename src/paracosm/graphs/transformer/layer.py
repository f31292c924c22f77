"""One layer of a transformer on one of the ranks that share it, op by op.

Sources: Shoeybi et al., "Megatron-LM", 2019 (how a layer is split: two all-reduces forward, two
backward); Narayanan et al., "Efficient Large-Scale Language Model Training on GPU Clusters", 2021
(which kernels are fused: scale, mask and softmax; bias and GeLU; bias, dropout and add);
Korthikanti et al., "Reducing Activation Recomputation in Large Transformer Models", 2022 (section
4: what is kept for the backward pass, s b h (10 + 24 / t + 5 a s / (h t)) bytes; section 4.2.2:
along the sequence all-reduces become a gather before and a reduce-scatter after, and what is
gathered is gathered again backward).

    forward   norm qkv attention out | add   norm up act down | add
    all-reduce of the output of each half at |; backward, of the gradient of each half's input
"""

from collections.abc import Iterator
from dataclasses import replace

from paracosm.graphs.graph import Op
from paracosm.graphs.transformer.adapters import adapter, gather_for_adapter
from paracosm.graphs.transformer.context import attend
from paracosm.graphs.transformer.experts import experts, experts_backward, sends_parts
from paracosm.graphs.transformer.latent import (
    first_projection,
    latent_backward,
    latent_forward,
    rotated,
)
from paracosm.graphs.transformer.ops import HALF, Kept, Step, product, streaming
from paracosm.graphs.transformer.share import Share
from paracosm.graphs.transformer.steps import (
    activation,
    cast,
    cast_weights,
    for_weights,
    gather,
    linear,
    linear_backward,
    norm,
    norm_backward,
    reduced,
    summed,
)


def layer_forward(share: Share, layer: int) -> Iterator[Step]:
    """Yield the forward pass of a layer; `layer` selects the loads of experts."""
    local, gate = share.local, "mlp.gate" if share.model.gated else "mlp.up"
    last = "mlp.router" if share.model.experts and not share.model.shared else gate
    latent = share.model.latent > 0
    needed = first_projection(share) if latent else _projections(share)[-1][0]
    kept: Kept = () if _adapts_what_is_gathered(share) else ((local, needed),)
    copies = _copies_of_norm(share, "attention.norm")
    yield Step("attention.norm", norm(share), (*kept, *copies))
    if latent:
        yield from latent_forward(share)
    else:
        gathers = gather_for_adapter if _adapts_what_is_gathered(share) else gather
        yield from gathers(share, "attention.qkv")
        yield from _queries(share)
    if share.model.rotary:
        yield Step("attention.rotary", _rotary(share))
    yield from _attention(share)
    yield from linear(share, "attention.out", share.model.heads * share.model.head_width)
    fused = share.model.is_fused
    if fused:  # the sum is part of the norm's kernel
        both = norm(share, streams=2)
        kept = ((local, "mlp.norm"), *for_weights(share, local, last))
        yield Step("mlp.norm", both, kept)
    else:
        yield _add(share, "attention.add", "mlp.norm")
        copies = _copies_of_norm(share, "mlp.norm")
        yield Step("mlp.norm", norm(share), (*for_weights(share, local, last), *copies))
    if not sends_parts(share) or share.model.shared:
        yield from gather(share, "mlp.up")
    perceptron = list(_perceptron(share)) if _has_perceptron(share) else []
    if share.model.experts:
        yield from experts(share, layer, perceptron)
    else:
        yield from perceptron
    if not perceptron and not sends_parts(share):
        yield from reduced(share, "experts.down")
    yield _add(share, "mlp.add", "")


def layer_backward(share: Share, layer: int) -> Iterator[Step]:
    """Yield the backward pass, which adds each gradient of weights to the existing one."""
    yield from _add_backward(share, "mlp.add")
    if not sends_parts(share) or share.model.shared:
        yield from gather(share, "mlp.down")
    perceptron = list(_perceptron_backward(share)) if _has_perceptron(share) else []
    if share.model.experts:
        yield from experts_backward(share, layer, perceptron)
    else:
        yield from perceptron
    if not perceptron and not sends_parts(share):
        yield from reduced(share, "mlp.router")
    yield from norm_backward(share, "mlp.norm", with_stream=True)
    yield from _add_backward(share, "attention.add")
    yield from gather(share, "attention.out")
    width, inner = share.model.width, share.heads * share.model.head_width
    yield from linear_backward(
        *(share, "attention.out", share.tokens, width, inner),
        first=True,
        needed_by="attention.context" if share.model.recipe == "megatron" else "attention.core",
    )
    yield from _attention_backward(share)
    if share.model.latent:
        yield from latent_backward(share)
    else:
        if not share.model.adapter:
            yield from gather(share, "attention.qkv", again=True)
        projections = (
            step
            for number, (place, columns) in enumerate(_projections(share))
            for step in linear_backward(
                share, place, share.tokens, columns, width, first=not number
            )
        )
        yield from summed(share, "attention.qkv", projections, backward=True)
    yield from norm_backward(share, "attention.norm", with_stream=True)


def _copies_of_norm(share: Share, place: str) -> Kept:
    """Return what a norm by the root mean square keeps op by op: its input in single precision, and
    what it makes of it there, in half."""
    eager = share.model.recipe == "eager" and share.model.rms
    return ((3 * share.local, place),) if eager else ()


# What predicts one token more joins the stream with the embedding of the next token, both after a
# norm, before a layer (DeepSeek-AI, "DeepSeek-V3", 2024, section 2.2; Megatron-Core,
# `core/transformer/multi_token_prediction.py`).


def prediction_forward(share: Share) -> Iterator[Step]:
    size = share.local
    yield Step("prediction.norm", streaming("aten.embedding.default", size, size))
    both = streaming(norm(share).name, 2 * size, 2 * size)
    yield Step("prediction.norm", both, ((2 * size, "prediction.map"),))
    yield from gather(share, "prediction.map")
    columns = -(-share.model.width // share.split.tensor)
    op = product(share.tokens, columns, 2 * share.model.width)
    yield Step("prediction.map", op, ((size, "attention.norm"),))


def prediction_backward(share: Share) -> Iterator[Step]:
    size, width = share.local, share.model.width
    columns = -(-width // share.split.tensor)
    float8_off = replace(share, split=replace(share.split, float8=""))
    yield from linear_backward(
        float8_off, "prediction.map", share.tokens, columns, 2 * width, first=True
    )
    yield from reduced(share, "prediction.map")
    both = streaming(next(norm_backward(share, "")).op.name, 4 * size, 2 * size)
    gradient = 2 * share.gradient * share.model.norm_parameters
    yield Step("prediction.norm", both, gradient=gradient)


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
            after_norm = not _adapts_what_is_gathered(share)
            yield from cast(share, place, share.stream, after_norm=after_norm)
        yield from cast_weights(share, place, columns * share.model.width)
        op = product(share.tokens, columns, share.model.width, float8=share.split.float8)
        kept = HALF * share.tokens * columns
        user = "attention.scores" if share.model.recipe == "megatron" else "attention.core"
        yield Step(place, op, ((kept, user),))
        yield from adapter(share, place, columns, share.model.width)


def _adapts_what_is_gathered(share: Share) -> bool:
    return bool(share.model.adapter) and share.split.tensor > 1 and share.split.sequence


def _rotary(share: Share) -> Op:
    """Rotate queries and keys; op by op they are cast to single precision, multiplied, and cast."""
    if share.model.latent:
        return streaming("compiled.rotary", *rotated(share))
    heads = share.heads + share.kv_heads
    size = share.tokens * heads * share.model.head_width
    read, written = (10, 10) if share.model.recipe == "eager" else (HALF, HALF)
    return streaming(f"{share.model.recipe}.rotary", read * size, written * size)


def _attention(share: Share) -> Iterator[Step]:
    model = share.model
    heads, size = share.micro_batch * share.heads, share.tokens * share.heads * model.head_width
    if model.recipe != "megatron":
        yield from attend(share, backward=False)
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
        yield from attend(share, backward=True)
        if model.rotary:
            yield Step("attention.rotary", _rotary(share))
        return
    s, head, scores = model.sequence, model.head_width, heads * model.sequence**2
    yield Step("attention.copy", _copy(HALF * size))
    made: Kept = ((HALF * scores, "attention.softmax"),)
    yield Step("attention.context", product(s, s, head, heads), made)
    yield Step("attention.context", product(s, head, s, heads))
    dropout = "aten.native_dropout_backward.default"
    yield Step("attention.dropout", streaming(dropout, (HALF + 1) * scores, HALF * scores))
    softmax = "aten._softmax_backward_data.default"
    made = ((HALF * scores, "attention.scores"),)
    yield Step("attention.softmax", streaming(softmax, 2 * HALF * scores, HALF * scores), made)
    yield Step("attention.scores", product(s, head, s, heads))
    yield Step("attention.scores", product(s, head, s, heads))


# The perceptron, and experts.


def _perceptron(share: Share) -> Iterator[Step]:
    model, inner = share.model, _inner(share)
    size = HALF * share.tokens * inner
    ways = ("mlp.up", "mlp.gate")[: model.matrices - 1]
    for number, place in enumerate(ways):
        if share.split.float8 and not number:
            yield from cast(share, place, share.stream, after_norm=True)
        yield from cast_weights(share, place, inner * model.width)
        op = product(share.tokens, inner, model.width, float8=share.split.float8)
        yield Step(place, op, ((size, "mlp.gelu"),))
    kept = for_weights(share, size, "mlp.down")
    if model.recipe == "eager" and model.gated:  # of the gate alone, before the product
        kept += ((size, "mlp.gelu"),)
    yield Step("mlp.gelu", activation(share, size), kept)
    yield from linear(share, "mlp.down", _whole_inner(share))


def _perceptron_backward(share: Share) -> Iterator[Step]:
    model, inner = share.model, _inner(share)
    size = HALF * share.tokens * inner
    yield from linear_backward(
        *(share, "mlp.down", share.tokens, model.width, inner), first=True, needed_by="mlp.gelu"
    )
    last = "mlp.gate" if model.gated else "mlp.up"
    kept = (((model.matrices - 1) * size, last),)
    yield Step("mlp.gelu", activation(share, size, backward=True), kept)
    if not model.adapter:
        yield from gather(share, "mlp.up", again=True)
    ways = (
        step
        for number, place in enumerate(("mlp.up", "mlp.gate")[: model.matrices - 1])
        for step in linear_backward(
            share, place, share.tokens, inner, model.width, first=not number
        )
    )
    yield from summed(share, "mlp.up", ways, backward=True)


def _has_perceptron(share: Share) -> bool:
    """Whether all tokens go through a perceptron; that of shared experts where there are others."""
    return bool(share.model.shared) or not share.model.experts


def _whole_inner(share: Share) -> int:
    return share.model.inner * (share.model.shared or 1)


def _inner(share: Share) -> int:
    return -(-_whole_inner(share) // share.split.tensor)


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
