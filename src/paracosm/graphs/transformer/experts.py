"""Experts of a layer, and the tokens that are sent to their ranks, and back.

Sources: Lepikhin et al., "GShard", 2020 (all-to-all there and back); Singh et al., "A Hybrid
Tensor-Expert-Data Parallelism Approach", 2023, and Megatron-Core's all-to-all dispatcher
(`core/transformer/moe/token_dispatcher.py`): ranks that share layers along the sequence send tokens
each for its own part of it; where they arrive, the ranks that share an expert gather them, and
reduce and scatter what it made of them. Tokens are copied into the order of their experts before
they are sent, and where several experts are on a rank once more when they arrive, from the order of
senders to that of experts.

    forward   router permute | all-to-all | gather sort up act down sort reduce-scatter | all-to-all
              | unpermute
"""

from collections.abc import Iterator
from dataclasses import replace

from paracosm.graphs.transformer.ops import (
    HALF,
    Step,
    all_gather,
    all_to_all,
    grouped_product,
    launches,
    product,
    reduce_scatter,
    streaming,
)
from paracosm.graphs.transformer.share import Share
from paracosm.graphs.transformer.steps import activation, cast, for_weights, linear_backward

ROUTER_KERNELS = 40, 20
"""Small kernels of a router, forward and backward, by count in Megatron-Core 0.12
(`core/transformer/moe/moe_utils.py`: softmax and the largest, the map of chosen experts, what is
beyond their capacity, the order of tokens, the loss that balances loads)."""


def sends_parts(share: Share) -> bool:
    """Whether tokens are gathered only where they arrive, not before they are sent."""
    return bool(share.model.experts) and share.parts > 1


def experts(share: Share, layer: int, shared: list[Step]) -> Iterator[Step]:
    """Yield the experts' work on tokens, with the time of the rank that gets the most.

    `shared` steps are those of experts that every token goes to: where they compute beside
    exchanges, the first map beside that of tokens, the second one beside that of results.
    """
    model, split = share.model, share.split
    first, second, after = _halves(share, shared, "mlp.down")
    sent, done = share.routed_tokens(layer)
    token, tokens = HALF * model.width, share.tokens // share.parts
    arrived = done // share.gathered
    of_expert = HALF * done * share.expert_inner
    float8 = split.float8 if share.casts_once else ""
    yield Step("mlp.router", product(tokens, model.experts, model.width))
    yield Step("mlp.router", launches("moe.router", ROUTER_KERNELS[0], 4 * tokens * model.experts))
    yield Step("experts.permute", streaming("moe.permute", sent * token, sent * token))
    came = for_weights(share, done * token, "experts.up")
    is_sorted = split.expert > 1 and model.experts > split.expert
    if split.expert > 1:
        here = () if share.gathered > 1 or is_sorted else came
        exchange = all_to_all(max(sent, arrived) * token)
        yield Step("experts.dispatch", exchange, here, overlaps=bool(first))
        yield from first
    if share.gathered > 1:
        gathered = all_gather(done * token, share.gathered, share.group_of_an_expert)
        yield Step("experts.gather", gathered, () if is_sorted else came)
    if is_sorted:
        yield Step("experts.sort", streaming("moe.sort", done * token, done * token), came)
    if split.expert > 1 or share.gathered > 1:
        came = ()
    held = model.experts // split.expert
    if float8:
        yield from cast(share, "experts.up", done * token)
    for place in ("experts.up", "experts.gate")[: model.matrices - 1]:
        op = grouped_product(done, share.expert_inner, model.width, held, float8=float8)
        yield Step(place, op, (*came, (of_expert, "experts.gelu")))
        came = ()
    yield Step(
        "experts.gelu", activation(share, of_expert), for_weights(share, of_expert, "experts.down")
    )
    if float8:
        yield from cast(share, "experts.down", of_expert)
    op = grouped_product(done, model.width, share.expert_inner, held, float8=float8)
    yield Step("experts.down", op)
    if is_sorted:
        yield Step("experts.sort", streaming("moe.sort", done * token, done * token))
    if share.gathered > 1:
        scattered = reduce_scatter(done * token, share.gathered, share.group_of_an_expert)
        yield Step("experts.scatter", scattered)
    if split.expert > 1:
        exchange = all_to_all(max(sent, arrived) * token)
        yield Step("experts.combine", exchange, overlaps=bool(second))
        yield from second
    back = streaming("moe.unpermute", sent * token, tokens * token)
    yield Step("experts.unpermute", back, ((sent * token, "experts.unpermute"),))
    yield from after


def experts_backward(share: Share, layer: int, shared: list[Step]) -> Iterator[Step]:
    """Yield the backward pass of `experts`; arguments as there."""
    first, second, after = _halves(share, shared, "mlp.gelu")
    model, split = share.model, share.split
    sent, done = share.routed_tokens(layer)
    token, tokens = HALF * model.width, share.tokens // share.parts
    arrived, of_expert = done // share.gathered, HALF * done * share.expert_inner
    stream, routed = tokens * token, sent * token
    yield Step("experts.unpermute", streaming("moe.unpermute_backward", stream + routed, routed))
    is_sorted = split.expert > 1 and model.experts > split.expert
    sort = Step("experts.sort", streaming("moe.sort", done * token, done * token))
    if split.expert > 1:
        exchange = all_to_all(max(sent, arrived) * token)
        yield Step("experts.combine", exchange, overlaps=bool(first))
        yield from first
    if share.gathered > 1:
        gathered = all_gather(done * token, share.gathered, share.group_of_an_expert)
        yield Step("experts.scatter", gathered)
    if is_sorted:
        yield sort
    held = model.experts // split.expert
    sizes = (model.width, share.expert_inner)
    yield from linear_backward(
        share, "experts.down", done, *sizes, groups=held, needed_by="experts.gelu"
    )
    kept = (((model.matrices - 1) * of_expert, "experts.gate" if model.gated else "experts.up"),)
    yield Step("experts.gelu", activation(share, of_expert, backward=True), kept)
    for place in ("experts.up", "experts.gate")[: model.matrices - 1]:
        yield from linear_backward(share, place, done, *reversed(sizes), groups=held)
    if is_sorted:
        yield sort
    if share.gathered > 1:
        scattered = reduce_scatter(done * token, share.gathered, share.group_of_an_expert)
        yield Step("experts.gather", scattered)
    if split.expert > 1:
        exchange = all_to_all(max(sent, arrived) * token)
        yield Step("experts.dispatch", exchange, overlaps=bool(second))
        yield from second
    yield Step("experts.permute", streaming("moe.permute_backward", routed, stream))
    scores = 4 * tokens * model.experts
    yield Step("mlp.router", launches("moe.router_backward", ROUTER_KERNELS[1], scores))
    yield from linear_backward(share, "mlp.router", tokens, model.experts, model.width)
    yield from after


def _halves(share: Share, shared: list[Step], place: str) -> tuple[list[Step], ...]:
    """Return the steps up to the first one at a place, those from there on, and none; where
    exchanges are not beside them, no step, none, and all."""
    overlaps = share.model.recipe == "transformer-engine" and share.split.expert > 1
    if not shared or not overlaps:
        return [], [], shared
    cut = next(number for number, step in enumerate(shared) if step.place == place)
    return _beside(shared[:cut]), _beside(shared[cut:]), []


def _beside(steps: list[Step]) -> list[Step]:
    """Return steps all of which an exchange goes on beside, up to the last that is waited for."""
    waited = [number for number, step in enumerate(steps) if not (step.of_weights or step.overlaps)]
    return [
        replace(step, beside=True) if number in waited[:-1] else step
        for number, step in enumerate(steps)
    ]
