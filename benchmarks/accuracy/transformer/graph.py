"""The graph of a whole training step of a transformer."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from paracosm.errors import InputError
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.graph import Graph, Op
from transformer.architecture import Transformer
from transformer.boundary import hand_back, hand_on, take_back, take_over
from transformer.ends import (
    adam,
    embedding_backward,
    embedding_forward,
    head_backward,
    head_forward,
)
from transformer.layer import Step, layer_backward, layer_forward
from transformer.ops import HALF

__all__ = ["transformer_graph"]

MASTER = 16  # bytes a parameter in single precision: weights, two moments, gradients


def transformer_graph(
    model: Transformer, micro_batch: int, tensor: int = 1, stages: int = 1
) -> Graph:
    """Return one forward and backward pass and the update, on one of `tensor` ranks.

    Mixed precision, Adam, nothing recomputed; ops follow each other in one stream. Places are
    "embedding", "h.0.attention.qkv", ..., "norm", "head", "loss". All-reduces over the ranks that
    share the layers are nodes that communicate; durations are not known.

    Args:
        model: its sizes.
        micro_batch: examples.
        tensor: ranks that share each layer.
        stages: of a pipeline, with the same number of layers each; between two of them, ranks that
            share layers hand on a part of the activation each.

    Raises:
        InputError: ranks that do not divide the heads, stages that do not divide the layers; no
            example.
    """
    model.split(tensor)
    model.cut(stages)
    if micro_batch < 1:
        raise InputError(f"micro_batch must be 1 or more, not {micro_batch}")
    rows = list(_rows(model, micro_batch, tensor, stages))
    last = {row.place: index for index, row in enumerate(rows) if row.phase == "backward"}
    ranks = tuple(range(tensor))
    nodes = [
        Node(
            id=index,
            op=row.op,
            name=row.place,
            phase=row.phase,
            resource="communication" if row.op.name.startswith("_c10d") else "compute",
            dependencies=(index - 1,) if index else (),
            group=ranks if row.op.name.startswith("_c10d") else (),
            allocates=(
                *((size, last[user]) for size, user in row.kept),
                *([(row.gradient, -1)] if row.gradient else []),
            ),
        )
        for index, row in enumerate(rows)
    ]
    held = _parameters_of_rank(model, tensor)
    return build_graph(
        nodes,
        resident={"parameters": HALF * held, "optimizer": MASTER * held},
        provenance={"model": "transformer", "batch": micro_batch, "tensor_ranks": tensor},
        where="transformer",
    )


@dataclass(frozen=True, slots=True)
class _Row:
    """A step at its place in the whole model."""

    place: str
    phase: str
    op: Op
    kept: tuple[tuple[int, str], ...] = ()
    gradient: int = 0


def _rows(model: Transformer, micro_batch: int, tensor: int, stages: int) -> Iterator[_Row]:
    sizes = (model, micro_batch, tensor)
    per_stage = model.layers // stages
    firsts = set(range(per_stage, model.layers, per_stage)) if tensor > 1 else set()
    forward, backward = list(layer_forward(*sizes)), list(layer_backward(*sizes))
    yield from _placed(embedding_forward(*sizes), "forward", "", _first_norm(0, model))
    for layer in range(model.layers):
        place, ends = f"h.{layer}.", layer + 1 in firsts
        if layer in firsts:
            yield from _placed(take_over(*sizes), "forward", place)
        following = f"{place}hand_on" if ends else _first_norm(layer + 1, model)
        yield from _placed(forward, "forward", place, following)
        if ends:
            yield from _placed(hand_on(*sizes), "forward", place)
    yield from _placed(head_forward(*sizes), "forward")
    yield from _placed(head_backward(*sizes), "backward")
    for layer in reversed(range(model.layers)):
        place = f"h.{layer}."
        if layer + 1 in firsts:
            yield from _placed(take_back(*sizes), "backward", place)
        yield from _placed(backward, "backward", place)
        if layer in firsts:
            yield from _placed(hand_back(*sizes), "backward", place)
    yield from _placed(embedding_backward(*sizes), "backward")
    embedding = (model.padded_vocabulary(tensor) // tensor + model.sequence) * model.width
    yield _Row("embedding", "optimizer", adam(embedding))
    for layer in range(model.layers):
        yield _Row(f"h.{layer}.mlp.up", "optimizer", adam(_layer_of_rank(model, tensor)))


def _placed(
    steps: Iterable[Step], phase: str, prefix: str = "", following: str = ""
) -> Iterator[_Row]:
    """Yield the rows of a layer; what the next one's first norm keeps is kept for `following`."""
    for step in steps:
        kept = tuple((size, prefix + user if user else following) for size, user in step.kept)
        yield _Row(prefix + step.place, phase, step.op, kept, step.gradient)


def _first_norm(layer: int, model: Transformer) -> str:
    return f"h.{layer}.attention.norm" if layer < model.layers else "norm"


def _layer_of_rank(model: Transformer, tensor: int) -> int:
    """Return the parameters of a layer on a rank: norms and biases of outputs are on every one."""
    h = model.width
    return (12 * h * h + 7 * h) // tensor + 6 * h


def _parameters_of_rank(model: Transformer, tensor: int) -> int:
    rows = model.padded_vocabulary(tensor) // tensor + model.sequence
    return model.layers * _layer_of_rank(model, tensor) + (rows + 2) * model.width
