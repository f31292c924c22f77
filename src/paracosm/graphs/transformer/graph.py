"""The graph of a whole training step of a transformer."""

from collections.abc import Iterable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import NamedTuple

from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.graph import Graph, Op, decode_arguments
from paracosm.graphs.transformer.architecture import Transformer
from paracosm.graphs.transformer.layer import (
    layer_backward,
    layer_forward,
    prediction_backward,
    prediction_forward,
)
from paracosm.graphs.transformer.ops import HALF, Kept, Step, all_gather, product, streaming
from paracosm.graphs.transformer.share import Share, Split
from paracosm.graphs.transformer.steps import for_weights, norm, norm_backward, total

MEGATRON = ("megatron", "transformer-engine")
"""Recipes whose pipelines have as many layers in each stage."""


def transformer_graph(
    model: Transformer,
    micro_batch: int,
    split: Split | int = 1,
    stages: int = 1,
    *,
    train: bool = True,
) -> Graph:
    """Return one forward and backward pass and the update, on one of the ranks of a split.

    Mixed precision, Adam, no recomputation; ops follow each other in one stream. Places are
    "embedding", "h.0.attention.qkv", ..., "norm", "head", "loss"; the gradient of weights, which
    only the optimizer waits for, is at "h.0.attention.qkv.weight". Collectives over the ranks of
    the split are nodes that communicate, with their "group" among their arguments; durations are
    unknown.

    Args:
        model: its sizes.
        micro_batch: examples.
        split: how ranks share layers, sequences and experts; a number is that of those that share
            layers.
        stages: of a pipeline, with the same number of layers each. Between two of them Megatron's
            ranks that share layers send a part of the activation each, and gather it.
        train: whether there are a backward pass and an update.

    Raises:
        InputError: ranks that do not divide what they share, stages that do not divide the layers;
            no example.
    """
    if isinstance(split, int):
        split = Split(tensor=split)
    share = Share(model, micro_batch, split)
    if model.recipe == "megatron":
        model.cut(stages)
    gathers = model.recipe == "megatron" and split.tensor > 1 and not split.sequence
    return _graph(share, stages if gathers else 1, train)


@lru_cache(maxsize=64)  # as many as one search needs, for those on other hardware after it
def _graph(share: Share, stages: int, train: bool) -> Graph:
    model, split = share.model, share.split
    rows = list(_rows(share, stages))
    trained = held = sum(row.step.gradient for row in rows) // share.gradient
    if model.adapter:
        whole = replace(share, model=replace(model, adapter=0, adapter_dropout=False))
        held += sum(row.step.gradient for row in _rows(whole, stages)) // share.gradient
    if not train:
        trained = 0
        forward = (row for row in rows if row.phase == "forward")
        rows = [row._replace(kept=()) for row in forward]
    last = {row.place: index for index, row in enumerate(rows) if row.phase == "backward"}
    nodes = list(_nodes(rows, last, split))
    # In single precision: weights and two moments, with Megatron also gradients; or two moments in
    # half precision.
    states = 16 if model.recipe == "megatron" else 4 if share.in_half_precision else 12
    master = 0 if share.in_half_precision else 4
    buffer = 4 if model.recipe == "megatron" and model.weights == "buffers" else 0
    return build_graph(
        nodes,
        resident={
            "parameters": HALF * held,
            **({"master weights": master * trained} if master * trained else {}),
            "optimizer": (states - master - buffer) * trained,
            **({"gradients": buffer * trained} if buffer * trained else {}),
        },
        provenance={
            "model": "transformer",
            "source": "published sizes",
            "batch": share.micro_batch,
            "shape": [model.sequence],
            "dtype": "float16" if model.recipe == "megatron" else "bfloat16",
            "optimizer": _optimizer(model) if train else "none",
            "parallel": "tensor",
            "ranks": split.tensor,
            "checkpoint": "whole layer" if model.recipe == "megatron" else "as far as needed",
            "sp": "yes" if split.sequence else "no",
            "async_tp": "yes" if split.overlap else "no",
            "cp": split.context,
            "cp_form": split.context_form,
            "ep": split.expert,
            "etp": str(split.expert_tensor or "no"),
            "float8": split.float8 or "no",
            "states": split.states,
            "weights": model.weights,
            # as Megatron-Core cuts a pipeline (`transformer_block.py`, `get_num_layers_to_build`)
            "stages": "equal" if model.recipe in MEGATRON else "even times",
            # share of the parameters that embedding and head have in common
            "tied": share.vocabulary * model.width / held if model.tied else 0.0,
        },
        where="transformer",
    )


def _optimizer(model: Transformer) -> str:
    name = "adam" if model.recipe == "megatron" else "adamw"
    return f"{name} of adapters of rank {model.adapter}" if model.adapter else name


class _Row(NamedTuple):
    place: str
    phase: str
    step: Step
    kept: Kept = ()  # of the step, with whole places


def _nodes(rows: list[_Row], last: dict[str, int], split: Split) -> Iterator[Node]:
    """Yield the nodes of rows.

    Computation waits for the previous result; communication also for everything issued before it,
    as a stream of collectives waits for that of kernels.
    """
    ranks = {
        "tensor": tuple(range(split.tensor)),
        "context": tuple(range(split.context)),
        "expert": tuple(range(split.expert)),
        "expert_tensor": tuple(range(split.of_an_expert)),
    }
    handed: tuple[int, ...] = ()
    overlaps: tuple[int, ...] = ()
    for index, row in enumerate(rows):
        step = row.step
        group = ranks[_group(step.op)] if step.op.name.startswith("_c10d") else ()
        after = (*handed, index - 1) if group and index else handed
        yield Node(
            id=index,
            op=step.op,
            name=f"{row.place}.weight" if step.of_weights else row.place,
            phase=row.phase,
            resource="communication" if group else "compute",
            dependencies=tuple(dict.fromkeys(after)),
            group=group,
            allocates=(
                *[(size, last[user]) for size, user in row.kept],
                *([(step.handed, index + 1)] if step.handed else []),
                *([(step.during, index)] if step.during else []),
                *([(step.gradient, -1)] if step.gradient else []),
            ),
        )
        if step.overlaps:
            overlaps = (*overlaps, index)
        elif step.beside:
            handed = (index,)
        elif not step.of_weights:
            handed, overlaps = (index, *overlaps), ()


def _group(op: Op) -> str:
    named: str = decode_arguments(op.arguments)[1]["group"]
    return named


# Between two stages of a pipeline whose ranks share each layer. All t ranks of a stage have the
# same activation. Each sends one part of it to its peer in the next stage, where the parts are
# gathered again: over the network goes a t-th, and the rest within the machine (Narayanan et al.,
# 2021, section 4.1, "scatter/gather optimization"). Gradients go back the same way.
#
#     h.9   ... add | hand_on   a part goes over    take_over | norm ...   h.10

_SPLIT = streaming("megatron.split_tensor_into_1d_equal_chunks", 0, 0)  # a view


def _rows(share: Share, stages: int) -> Iterator[_Row]:
    model = share.model
    per_stage = model.layers // stages
    firsts = set(range(per_stage, model.layers, per_stage))
    count = model.layers + model.predictions
    layers = [_layer(share, number) for number in range(count)]
    part = share.stream // share.split.tensor
    gathered = all_gather(share.stream, share.split.tensor)
    take_over = Step("take_over", gathered, ((share.stream, "attention.norm"),))
    hand_on = Step("hand_on", _SPLIT, ((part, "hand_on"),))
    yield from _placed(_embedding_forward(share), "forward", "", _first_norm(0, model))
    for number, (forward, _) in enumerate(layers):
        place, ends = f"h.{number}.", number + 1 in firsts
        if number in firsts:
            yield from _placed([take_over], "forward", place)
        if number >= model.layers:
            yield from _placed(prediction_forward(share), "forward", place)
        following = f"{place}hand_on" if ends else _first_norm(number + 1, model)
        yield from _placed(forward, "forward", place, following)
        if ends:
            yield from _placed([hand_on], "forward", place)
    for _ in range(1 + model.predictions):
        yield from _placed(_head_forward(share), "forward")
    for number in range(1 + model.predictions):
        yield from _placed(_head_backward(share, is_first=not number), "backward")
    for number, (_, backward) in reversed(list(enumerate(layers))):
        place = f"h.{number}."
        if number + 1 in firsts:
            yield from _placed([Step("hand_on", gathered)], "backward", place)
        yield from _placed(backward, "backward", place)
        if number >= model.layers:
            yield from _placed(prediction_backward(share), "backward", place)
        if number in firsts:
            yield from _placed([Step("take_over", _SPLIT)], "backward", place)
    yield from _placed(_embedding_backward(share), "backward")
    yield from _updates(share, [backward for _, backward in layers])


def _layer(share: Share, number: int) -> tuple[list[Step], list[Step]]:
    """Return the forward and the backward pass of a layer; loads of experts are its own."""
    layer_share = share.of_layer(number)
    even = not layer_share.model.experts or layer_share.split.routing in ("", "uniform")
    return _passes(layer_share, 0 if even else number)


@lru_cache(maxsize=256)
def _passes(share: Share, number: int) -> tuple[list[Step], list[Step]]:
    return list(layer_forward(share, number)), list(layer_backward(share, number))


def _placed(
    steps: Iterable[Step], phase: str, prefix: str = "", following: str = ""
) -> Iterator[_Row]:
    """Yield the rows of a layer; what the next one's first norm keeps is kept for `following`."""
    for step in steps:
        kept = tuple([(size, prefix + user if user else following) for size, user in step.kept])
        yield _Row(prefix + step.place, phase, step, kept)


def _first_norm(layer: int, model: Transformer) -> str:
    if layer >= model.layers + model.predictions:
        return "norm"
    return f"h.{layer}.{'attention' if layer < model.layers else 'prediction'}.norm"


def _updates(share: Share, layers: list[list[Step]]) -> Iterator[_Row]:
    """Yield the optimizer step: of the tables, then of every layer, with experts separately."""
    size, model = share.gradient, share.model
    table = share.vocabulary + (0 if model.rotary else model.sequence)
    if not model.adapter:
        yield _Row("embedding", "optimizer", Step("", _adam(share, table * model.width)))
    if not model.tied and not model.adapter:
        yield _Row("head", "optimizer", Step("", _adam(share, share.vocabulary * model.width)))
    for layer, backward in enumerate(layers):
        experts = sum(s.gradient for s in backward if s.place.startswith("experts.")) // size
        others = sum(step.gradient for step in backward) // size - experts
        if layer >= model.layers:
            others += sum(step.gradient for step in prediction_backward(share)) // size
        place = "mlp.norm" if experts else "mlp.up"
        place = "attention.out" if model.adapter else place
        yield _Row(f"h.{layer}.{place}", "optimizer", Step("", _adam(share, others)))
        if experts:
            yield _Row(f"h.{layer}.experts.up", "optimizer", Step("", _adam(share, experts)))


def _adam(share: Share, parameters: int) -> Op:
    """Return the update of mixed-precision training.

    With Megatron 62 bytes a parameter: gradients to single precision (2 read, 4 written), their
    check for overflow and division by the loss scale (4, 4), their norm (4), clipping (4, 4), Adam
    with fused kernels on weights, two moments and gradients (16, 12), weights back to half
    precision (4, 2), gradients to zero (2). With PyTorch 46: norm (4), clipping (4, 4), Adam (16,
    12), weights to half precision (4, 2); all in half precision 20: norm (2), clipping (2, 2), Adam
    (8, 6).
    """
    if share.in_half_precision:
        return streaming("pytorch.adamw", 12 * parameters, 8 * parameters)
    if share.model.recipe == "megatron":
        return streaming("megatron.adam", 34 * parameters, 28 * parameters)
    return streaming("pytorch.adamw", 28 * parameters, 18 * parameters)


# Before the first layer and after the last one.


def _embedding_forward(share: Share) -> Iterator[Step]:
    stream, local, model = share.stream, share.local, share.model
    megatron = model.recipe == "megatron"
    kept = () if megatron or not model.rotary else ((local, ""),)
    look_up = streaming("aten.embedding.default", stream, stream)
    yield Step("embedding", look_up, () if share.split.tensor > 1 else kept)
    if share.split.tensor > 1:
        yield Step("embedding", total(share), kept)
    if not model.rotary:
        positions = streaming("aten.add.Tensor", 2 * local, local)
        yield Step("embedding", positions, () if megatron else ((local, ""),))
    if megatron:
        yield Step(
            "embedding",
            streaming("aten.native_dropout.default", local, local + local // HALF),
            ((local // HALF, "embedding"), (local, "")),
        )


def _embedding_backward(share: Share) -> Iterator[Step]:
    stream, local, model = share.stream, share.local, share.model
    if model.adapter:
        return
    if model.recipe == "megatron":
        dropout = "aten.native_dropout_backward.default"
        yield Step("embedding", streaming(dropout, local + local // HALF, local))
    if share.split.tensor > 1 and share.split.sequence:
        yield Step("embedding", all_gather(stream, share.split.tensor))
    rows = share.vocabulary + (0 if model.rotary else model.sequence)
    zeros = 0 if model.recipe == "megatron" else HALF * rows * model.width
    yield Step(
        "embedding",
        streaming("aten.embedding_dense_backward.default", stream, stream + zeros),
        gradient=share.gradient * rows * model.width,
    )


def _head_forward(share: Share) -> Iterator[Step]:
    """Yield the last norm, the logits, and the cross entropy of logits that are split by tokens.

    The loss is computed in single precision, in eager steps. Megatron: cast, maximum, difference,
    exponential, sum, division (`vocab_parallel_cross_entropy`). PyTorch: cast, logarithm of the
    softmax; torchtitan did not compile it in 2024. What of it is held: `Transformer.loss`.
    """
    split, tokens = share.split, share.scored_tokens
    logits = tokens * share.vocabulary
    yield Step("norm", norm(share), for_weights(share, share.local, "head"))
    if split.tensor > 1 and split.sequence:  # PyTorch's DTensor keeps what it has gathered
        again = share.model.loss == "in place"
        gathered: Kept = () if again else for_weights(share, share.stream, "head")
        yield Step("head", all_gather(share.stream, split.tensor), gathered)
    made = product(tokens, share.vocabulary, share.model.width)
    loss = share.model.loss
    keeps = HALF * logits if loss in ("fused", "returned") else 0
    keeps += share.stream if loss == "chunked" else 0
    handed = HALF * logits if loss in ("separate", "in place") else 0
    yield Step("head", made, ((keeps, "loss"),) if keeps else (), handed=handed)
    if share.model.recipe == "megatron":
        op = streaming("megatron.vocab_parallel_cross_entropy", 22 * logits, 16 * logits)
    else:
        op = streaming("pytorch.cross_entropy", 10 * logits, 8 * logits)
    copies = {"separate": 4 * logits, "chunked": share.stream}.get(loss, 0)
    sizes = {"separate": 4, "in place": 4, "returned": 8}
    kept = ((sizes[loss] * logits, "loss"),) if loss in sizes else ()
    yield Step("loss", op, kept, during=copies)


def _head_backward(share: Share, *, is_first: bool = True) -> Iterator[Step]:
    """Yield the backward pass of one prediction's head; all predictions have the same weights."""
    model, split = share.model, share.split
    tokens, rows = share.scored_tokens, share.vocabulary
    logits = tokens * rows
    weights = HALF * rows * model.width
    if model.recipe == "megatron":
        name = "megatron.vocab_parallel_cross_entropy_backward"
        op = streaming(name, 8 * logits, 6 * logits)
    else:  # gradients of the logarithms and of the logits, in single precision; a cast
        op = streaming("pytorch.cross_entropy_backward", 12 * logits, 10 * logits)
    # torch.distributed.tensor.parallel.loss_parallel has a third one, of the exponentials.
    copies = (2 if split.tensor == 1 else 3) if model.loss in ("separate", "returned") else 0
    yield Step("loss", op, during=4 * copies * logits)
    kept: Kept = () if model.loss == "chunked" else ((HALF * logits, "head"),)
    yield Step("head", product(tokens, model.width, rows), kept)
    if not model.adapter:
        yield Step("head", product(rows, model.width, tokens), of_weights=True)
        gradient = share.gradient * rows * model.width if is_first and not model.tied else 0
        added = streaming("aten.add_.Tensor", 2 * weights, weights)
        yield Step("head", added, gradient=gradient, of_weights=True)
    if split.tensor > 1:
        yield Step("head", total(share))
    for step in norm_backward(share, "norm"):
        yield step if is_first else replace(step, gradient=0)
