"""Bytes of the gradients of weights that the rows of a table make."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from paracosm.prediction.op_latencies.splitting import head_of
from paracosm.prediction.op_latencies.table import Row

__all__ = ["gradient_bytes"]

SINGLE = 4  # bytes: the models were measured in single precision
ALIKE = 0.05  # relative difference of the times that two gradients of the same size take to add up


def gradient_bytes(rows: Sequence[Row], floor: float) -> dict[str, int]:
    """Return bytes of gradients by the name of the row whose backward pass completes them.

    Linear maps and norms tell the size of their weights by their shapes, functions by the
    attributes that they take. An embedding does not tell how many rows it has. Where it takes as
    long to accumulate as the head, both have the same weights, and their gradient is complete when
    the embedding's is; otherwise its size is in proportion to that time.

    Args:
        rows: of a table; a layer stands in it once.
        floor: seconds that an interval has around nothing.
    """
    attributes = {row.name: prod(row.shape) for row in rows if row.kind == "get_attr"}
    found: dict[str, int] = {}
    for row in rows:
        count = sum(attributes.get(name, 0) for name in row.inputs)
        if row.layer == "Linear":
            count = row.shape[-1] * (row.shapes[0][-1] + 1)
        elif row.layer == "LayerNorm":
            count = 2 * row.shape[-1]
        if count and row.backward > 0:
            found[row.name] = SINGLE * count
    head = head_of(rows)
    if head is None or head.accumulate <= floor or head.name not in found:
        return found
    weights = found[head.name]
    for row in rows:
        if row.layer == "Embedding" and row.accumulate > floor:
            share = (row.accumulate - floor) / (head.accumulate - floor)
            if abs(share - 1) < ALIKE and head.name in found:
                found[row.name] = found.pop(head.name)
            else:
                found[row.name] = round(weights * share)
    return found
