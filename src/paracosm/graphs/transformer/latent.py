"""Multi-head latent attention up to its queries, keys and values, op by op.

Sources: DeepSeek-AI, "DeepSeek-V2", 2024, section 2.1; Megatron-Core 0.12
(`core/transformer/multi_latent_attention.py`): every rank that shares a layer makes the latents of
its own part of the sequence with the whole matrix, then latents are gathered, which are narrow, in
place of the stream; each makes queries, keys and values of its own heads of them. Queries and keys
are put together of what is rotated and what is not in one pass.
"""

from collections.abc import Iterator

from paracosm.graphs.transformer.ops import (
    HALF,
    Step,
    all_gather,
    all_reduce,
    product,
    reduce_scatter,
    streaming,
)
from paracosm.graphs.transformer.share import Share
from paracosm.graphs.transformer.steps import cast, cast_weights, gather, linear_backward, reduced


def latent_forward(share: Share) -> Iterator[Step]:
    """Yield the latents, and queries, keys and values of them."""
    model, float8 = share.model, share.split.float8
    tokens = share.tokens // share.parts
    for number, (place, columns) in enumerate(_down(share)):
        if float8 and not number:
            yield from cast(share, place, HALF * tokens * model.width, after_norm=True)
        yield from cast_weights(share, place, columns * model.width)
        op = product(tokens, columns, model.width, float8=float8)
        yield Step(place, op, ((HALF * tokens * columns, "attention.latent_norm"),))
    normed = HALF * tokens * (model.latent + model.query_latent)
    yield Step("attention.latent_norm", streaming("compiled.rms_norm", normed, normed))
    if share.parts > 1:
        yield Step("attention.latent_norm", all_gather(_latents(share), share.parts))
    if not model.query_latent:
        yield from gather(share, "attention.query_up")
    for place, columns, inputs in _up(share):
        if float8:
            yield from cast(share, place, HALF * share.tokens * inputs)
        yield from cast_weights(share, place, columns * inputs)
        kept = (
            (HALF * share.tokens * inputs, place),
            (HALF * share.tokens * columns, "attention.core"),
        )
        yield Step(place, product(share.tokens, columns, inputs, float8=float8), kept)


def latent_backward(share: Share) -> Iterator[Step]:
    """Yield the gradients back to the input of attention, with those of weights."""
    model = share.model
    tokens = share.tokens // share.parts
    if not model.query_latent:
        yield from gather(share, "attention.query_up", again=True)
    for place, columns, inputs in _up(share):
        yield from linear_backward(share, place, share.tokens, columns, inputs, first=True)
        if inputs == model.width and place == "attention.query_up":
            yield from reduced(share, place)
    if share.parts > 1:
        yield Step("attention.latent_norm", reduce_scatter(_latents(share), share.parts))
    elif share.split.tensor > 1:
        yield Step("attention.latent_norm", all_reduce(_latents(share)))
    normed = HALF * tokens * (model.latent + model.query_latent)
    op = streaming("compiled.rms_norm_backward", 2 * normed, normed)
    gradient = share.gradient * (model.latent + model.query_latent)
    yield Step("attention.latent_norm", op, gradient=gradient)
    for number, (place, columns) in enumerate(_down(share)):
        first = not number and bool(model.query_latent)
        yield from linear_backward(share, place, tokens, columns, model.width, first=first)


def first_projection(share: Share) -> str:
    """Return the place whose backward pass is the last to need attention's input."""
    return _down(share)[-1][0]


def rotated(share: Share) -> tuple[int, int]:
    """Return the bytes that are read and written where queries and keys are put together."""
    values = share.tokens * share.heads * share.model.head_width
    turned = share.tokens * share.heads * share.model.rotary_head
    return HALF * (3 * values + turned), HALF * (3 * values + 2 * turned)


def _down(share: Share) -> list[tuple[str, int]]:
    """Return places and columns of the maps from the stream to latents."""
    model = share.model
    keys = ("attention.kv_down", model.latent + model.rotary_head)
    return [("attention.query_down", model.query_latent), keys] if model.query_latent else [keys]


def _up(share: Share) -> list[tuple[str, int, int]]:
    """Return places, columns and inputs of the maps from latents to this rank's heads."""
    model, heads = share.model, share.heads
    queries = heads * (model.head_width + model.rotary_head)
    return [
        ("attention.query_up", queries, model.query_latent or model.width),
        ("attention.kv_up", 2 * heads * model.head_width, model.latent),
    ]


def _latents(share: Share) -> int:
    model = share.model
    return HALF * share.tokens * (model.latent + model.query_latent + model.rotary_head)
