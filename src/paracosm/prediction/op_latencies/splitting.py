"""Which ops of a model tensor-parallel ranks share, and where their results have to be summed.

Shoeybi et al., "Megatron-LM", 2019: a linear map of a whole input is cut by columns, what follows
works on its part of the result, and the next linear map is cut by rows: its results are summed over
the ranks. In the backward pass the gradient of the first one's input is summed. Outside the layers,
the embedding and the head are cut by the vocabulary.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from paracosm.errors import InputError
from paracosm.prediction.op_latencies.layers import layer_of
from paracosm.prediction.op_latencies.table import Row

__all__ = ["Splitting", "check_shapes", "head_of", "is_linear", "split_rows"]

LINEAR = frozenset({"addmm", "linear"})
"""Functions that are linear maps, where the weights are attributes of the model."""


NUMBERS = frozenset({"size", "getattr", "dim"})
"""Functions whose results are no part of their argument's values."""


@dataclass(frozen=True)
class Splitting:
    """Names of rows, by what becomes of them.

    Attributes:
        shared: each rank does its part of the work.
        summed: the result is summed over the ranks, forward.
        gradient_summed: the gradient of the input is, backward.
    """

    shared: frozenset[str]
    summed: frozenset[str]
    gradient_summed: frozenset[str]


def split_rows(rows: Sequence[Row]) -> Splitting:
    """Return how ranks share the rows of a table; a layer stands in it once."""
    shared: set[str] = set()
    summed: set[str] = set()
    gradient_summed: set[str] = set()
    sources: set[str] = set()
    head = head_of(rows)
    embedding = next((row for row in rows if row.layer == "Embedding"), None)
    for row in rows:
        if embedding is not None and row.name == embedding.name:
            summed.add(row.name)
        elif is_linear(row) and (layer_of(row.module) or row is head):
            if (shared - summed) & set(row.inputs):
                summed.add(row.name)
            else:
                source = row.inputs[0] if row.layer else next(iter(_activations(row, rows)), "")
                if source not in sources:
                    gradient_summed.add(row.name)
                sources.add(source)
            shared.add(row.name)
        elif row.function not in NUMBERS and (shared - summed) & set(row.inputs):
            shared.add(row.name)
    return Splitting(frozenset(shared), frozenset(summed), frozenset(gradient_summed))


def check_shapes(rows: Sequence[Row], where: str) -> None:
    """Raise InputError for a linear map whose shapes the table does not say."""
    for row in rows:
        if is_linear(row):
            inputs = 2 if row.function in LINEAR else 1
            if not row.shape or len(row.shapes) < inputs or not all(row.shapes[:inputs]):
                raise InputError(
                    f"{where}: the shapes of {row.name} are not known: several GPUs need the "
                    "columns input_shapes, output_shape and _input_nodes"
                )


def head_of(rows: Sequence[Row]) -> Row | None:
    """Return the linear map with the most outputs, if it belongs to no layer."""
    linear = [row for row in rows if is_linear(row) and not layer_of(row.module)]
    return max(linear, key=lambda row: row.shape[-1], default=None)


def is_linear(row: Row) -> bool:
    """Return whether a row is a linear map with weights."""
    return row.layer == "Linear" or (row.layer == "" and row.function in LINEAR)


def _activations(row: Row, rows: Sequence[Row]) -> list[str]:
    attributes = {each.name for each in rows if each.kind == "get_attr"}
    return [name for name in row.inputs if name not in attributes]
