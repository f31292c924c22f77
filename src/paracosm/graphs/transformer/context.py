"""Attention of the ranks that share each sequence, by how they exchange keys and values.

    ring         around a ring, beside the attention to those that are there; gradients with them,
                 and one step further (Liu et al., "Ring Attention", 2023; Transformer Engine,
                 `cp_comm_type="p2p"`, Megatron's default)
    gather       all of them before attention; backward again, and gradients are summed and
                 scattered after it (Dubey et al., "The Llama 3 Herd of Models", 2024, section
                 3.3.2; Transformer Engine, "all_gather"; MaxText's default)
    ulysses      none: ranks exchange parts of the sequence for heads before attention, and back
                 after it (Jacobs et al., "DeepSpeed Ulysses", 2023; Transformer Engine, "a2a")
    pieces       PyTorch's ring attention as torchtitan has it: keys and values, repeated for every
                 head, are gathered at once, attention goes over the pieces of each rank all the
                 same; gradients go around a ring in single precision (torch.distributed.tensor
                 .experimental, `_RotateMethod.ALL_GATHER`, the default)
    pieces-ring  the same, with keys and values around the ring too (`_RotateMethod.ALL_TO_ALL`)

Every rank has an early and a late part of the sequence, so that causal attention takes all of them
equally long: half of all pairs of its own tokens, and then, for each other rank, all queries to the
keys of its early part or queries of the late part to all keys, half of all pairs as well. What is
left of pieces' outputs is merged by the sums of their exponentials: with Transformer Engine in one
pass over each piece in half precision (`flash_attn_fwd_out_correction`), with PyTorch in single
precision, op by op or, compiled, in one pass (`_SDPAMerger`).

What PyTorch compiles waits for a collective where it is called (`_functional_collectives`,
`_maybe_wrap_tensor`), so that nothing overlaps it; Transformer Engine's gathers and all-to-alls
overlap nothing either (its documentation of `cp_comm_type`).
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from paracosm.graphs.graph import Op
from paracosm.graphs.transformer.ops import (
    HALF,
    Step,
    all_gather,
    all_to_all,
    flash,
    permute,
    reduce_scatter,
    streaming,
)
from paracosm.graphs.transformer.share import Share

PLACE = "attention.core"
SINGLE = 4
"""Bytes of a number in single precision."""


def attend(share: Share, *, backward: bool) -> Iterator[Step]:
    """Yield attention of a rank's queries to all keys before them, with its exchanges."""
    form = share.split.context_form
    if share.split.context == 1:
        yield _core(share, _flash(share, backward=backward), backward)
    elif form == "ring":
        yield from _ring(share, backward=backward)
    elif form == "gather":
        yield from _gather(share, backward=backward)
    elif form == "ulysses":
        yield from _ulysses(share, backward=backward)
    else:
        yield from _pieces_backward(share) if backward else _pieces(share)


def _core(share: Share, op: Op, backward: bool) -> Step:
    """Return the last attention of a pass with what it keeps: forward output, and the logarithms
    of the sums of each row's exponentials; backward gradients of queries, keys and values."""
    if backward:
        size = _Sizes.of(share)
        plain = "attention.qkv" if share.model.fused_qkv else "attention.value"
        last = "attention.kv_up" if share.model.latent else plain
        return Step(PLACE, op, ((size.queries + size.keys, last),))
    result = HALF * share.tokens * share.heads * share.model.head_width
    logarithms = SINGLE * share.tokens * share.heads
    return Step(PLACE, op, ((result, "attention.out"), (logarithms, PLACE)))


def _flash(share: Share, *, backward: bool, repeated: bool = False, first: bool = True) -> Op:
    """Return attention to a rank's own keys, or, after the first, to half of those of another."""
    model = share.model
    length = min(model.chunk or model.sequence, model.sequence) // share.split.context
    kv_heads = share.heads if repeated else share.kv_heads
    return flash(
        *(share.tokens // length, share.heads, kv_heads),
        *(length, length if first else length // 2, model.key_width),
        backward=backward,
        causal=first and model.causal,
        value_width=model.head_width,
    )


def _ring(share: Share, *, backward: bool) -> Iterator[Step]:
    ranks, size = share.split.context, _Sizes.of(share)
    for number in range(ranks):
        if number < ranks - 1:
            yield Step(PLACE, permute((1 + backward) * size.keys), overlaps=True)
        op = _flash(share, backward=backward, first=not number)
        last = number == ranks - 1
        yield _core(share, op, backward) if last else Step(PLACE, op)
        if backward and number:  # gradients of queries, and of half of the keys and values
            moved = size.queries + size.keys // 2
            yield Step(PLACE, streaming("context.add", 2 * moved, moved))
    if backward:
        yield Step(PLACE, permute(size.keys))
        return
    yield Step(PLACE, streaming("context.merge", size.queries, size.queries))
    for _ in range(1, ranks):
        yield Step(PLACE, streaming("context.merge", 2 * size.queries, size.queries))


def _gather(share: Share, *, backward: bool) -> Iterator[Step]:
    ranks, size = share.split.context, _Sizes.of(share)
    length, whole = share.model.sequence // ranks, ranks * size.keys
    # The early and the late part together meet half of all keys.
    op = flash(
        *(share.micro_batch, share.heads, share.kv_heads),
        *(length, share.model.sequence // 2, share.model.key_width),
        backward=backward,
        value_width=share.model.head_width,
        causal=False,
    )
    yield Step(PLACE, all_gather(whole, ranks, "context"))
    yield replace(_core(share, op, backward), during=whole)
    if backward:
        yield Step(PLACE, reduce_scatter(whole, ranks, "context"))


def _ulysses(share: Share, *, backward: bool) -> Iterator[Step]:
    """Yield attention of some heads of whole sequences; fewer key heads than ranks are repeated."""
    ranks, size = share.split.context, _Sizes.of(share)
    kv_heads = max(share.kv_heads // ranks, 1)
    inward = size.queries + size.keys * kv_heads * ranks // share.kv_heads
    there, back = (size.queries, inward) if backward else (inward, size.queries)
    op = flash(
        *(share.micro_batch, share.heads // ranks, kv_heads),
        *(share.model.sequence, share.model.sequence, share.model.key_width),
        backward=backward,
        value_width=share.model.head_width,
    )
    yield Step(PLACE, all_to_all(there, "context"))
    yield _core(share, op, backward)
    yield Step(PLACE, all_to_all(back, "context"))


# PyTorch's: keys and values have as many heads as queries.


def _pieces(share: Share) -> Iterator[Step]:
    ranks, size, eager = share.split.context, _Sizes.of(share), _is_eager(share)
    repeated, queries = size.repeated, size.queries
    if share.kv_heads < share.heads:
        yield Step(PLACE, streaming("context.repeat", size.keys, repeated))
    for number in range(ranks):
        yield from _next_keys(share, number, repeated)
        op = _flash(share, backward=False, repeated=True, first=not number)
        last = number == ranks - 1
        yield _core(share, op, backward=False) if last else Step(PLACE, op)
        if eager:  # to single precision; difference, product with the share, difference
            yield Step(PLACE, streaming("context.cast", queries, 2 * queries))
        if number and eager:
            yield Step(PLACE, streaming("context.merge", 10 * queries, 6 * queries))
        elif number:
            yield Step(PLACE, streaming("context.merge", 3 * queries, (1 if last else 2) * queries))
    if eager:
        yield Step(PLACE, streaming("context.cast", 2 * queries, queries))


def _pieces_backward(share: Share) -> Iterator[Step]:
    """Yield attention to the pieces; gradients are added up in single precision, and those of keys
    and values go around the ring, once for each piece."""
    ranks, size, eager = share.split.context, _Sizes.of(share), _is_eager(share)
    of_keys = SINGLE // HALF * size.repeated
    for number in range(ranks):
        exchanges = list(_next_keys(share, number, size.repeated))
        if number:
            gradients = Step(PLACE, permute(of_keys), overlaps=eager)
            exchanges.insert(eager and number < ranks - 1, gradients)
        yield from exchanges
        op = _flash(share, backward=True, repeated=True, first=not number)
        yield _core(share, op, backward=True) if number == ranks - 1 else Step(PLACE, op)
        moved = size.queries + size.repeated
        yield Step(PLACE, streaming("context.add", 3 * moved, 2 * moved))
        if eager:
            yield Step(PLACE, streaming("context.cat", of_keys, of_keys))
    yield Step(PLACE, permute(of_keys))
    moved = size.queries + size.repeated
    yield Step(PLACE, streaming("context.cast", 2 * moved, moved))
    if share.kv_heads < share.heads:
        yield Step(PLACE, streaming("context.sum", size.repeated, size.keys))


def _next_keys(share: Share, number: int, repeated: int) -> Iterator[Step]:
    """Yield the exchange that is begun before a piece: of all keys and values, or the next ones."""
    ranks, eager = share.split.context, _is_eager(share)
    gathers = share.split.context_form == "pieces"
    if eager and number < ranks - 1:
        yield Step(PLACE, streaming("context.cat", repeated, repeated))
    if gathers and not number:
        yield Step(PLACE, all_gather(ranks * repeated, ranks, "context"), overlaps=eager)
    elif not gathers and number < ranks - 1:
        yield Step(PLACE, permute(repeated), overlaps=eager)


def _is_eager(share: Share) -> bool:
    return share.model.recipe == "eager"


@dataclass(frozen=True)
class _Sizes:
    """Bytes on one rank, in half precision."""

    queries: int  # or output
    keys: int  # and values
    repeated: int  # keys and values, with as many heads as queries

    @staticmethod
    def of(share: Share) -> "_Sizes":
        model, numbers = share.model, HALF * share.tokens
        both = numbers * (model.key_width + model.head_width)
        queries = numbers * share.heads * model.head_width
        return _Sizes(queries, both * share.kv_heads, both * share.heads)
