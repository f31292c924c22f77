"""Experts of a layer, and the tokens that are sent to their ranks, and back (Lepikhin et al.,
"GShard", 2020)."""

from collections.abc import Iterator

from paracosm.graphs.transformer.ops import (
    HALF,
    Step,
    all_gather,
    all_to_all,
    grouped_product,
    product,
    reduce_scatter,
    streaming,
)
from paracosm.graphs.transformer.share import Share
from paracosm.graphs.transformer.steps import activation, cast, for_weights, linear_backward


def sends_parts(share: Share) -> bool:
    """Whether ranks that share layers send tokens to experts each for its own part of a sequence.

    Then tokens are gathered where they arrive, between the ranks that share an expert, in place of
    a gather before they are sent (Singh et al., "A Hybrid Tensor-Expert-Data Parallelism Approach",
    2023; Megatron's all-to-all dispatcher).
    """
    return bool(share.model.experts) and share.split.tensor > 1 and share.split.sequence


def experts(share: Share, layer: int) -> Iterator[Step]:
    """Yield the experts' work on tokens, with the time of the rank that gets the most."""
    model, split = share.model, share.split
    parts = split.tensor if sends_parts(share) else 1
    sent, done = share.routed_tokens(layer)
    token, own = HALF * model.width, share.tokens // parts
    of_expert = HALF * done * share.inner
    float8 = split.float8 if share.casts_once else ""
    yield Step("mlp.router", product(own, model.experts, model.width))
    scores = 4 * own * model.experts
    yield Step("mlp.router", streaming("moe.top_k", scores, scores))
    moved = streaming("moe.permute", sent * token // parts, sent * token // parts)
    yield Step("experts.permute", moved)
    came = for_weights(share, done * token, "experts.up")
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
        yield from cast(share, "experts.up", done * token)
    for place in ("experts.up", "experts.gate")[: model.matrices - 1]:
        op = grouped_product(done, share.inner, model.width, held, float8=float8)
        yield Step(place, op, (*came, (of_expert, "experts.gelu")))
        came = ()
    yield Step(
        "experts.gelu", activation(share, of_expert), for_weights(share, of_expert, "experts.down")
    )
    if float8:
        yield from cast(share, "experts.down", of_expert)
    yield Step("experts.down", grouped_product(done, model.width, share.inner, held, float8=float8))
    if parts > 1:
        yield Step("experts.scatter", reduce_scatter(done * token, parts))
    if split.expert > 1:
        yield Step("experts.combine", all_to_all(max(sent, done) * token // parts))
    back = streaming("moe.unpermute", sent * token // parts, share.stream // parts)
    yield Step("experts.unpermute", back, ((sent * token // parts, "experts.unpermute"),))


def experts_backward(share: Share, layer: int) -> Iterator[Step]:
    model, split = share.model, share.split
    parts = split.tensor if sends_parts(share) else 1
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
    yield from linear_backward(
        share, "experts.down", done, *sizes, groups=held, needed_by="experts.gelu"
    )
    kept = (((model.matrices - 1) * of_expert, "experts.gate" if model.gated else "experts.up"),)
    yield Step("experts.gelu", activation(share, of_expert, backward=True), kept)
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
