"""Which rows of a graph are its layer, and the graph with that layer repeated."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paracosm.errors import InputError
from paracosm.prediction.op_latencies.table import Row

__all__ = ["layer_of", "repeated"]


def repeated(rows: Sequence[Row], layers: int, where: str) -> list[Row]:
    """Return what comes before the layer, the layer `layers` times, and what comes after it.

    The layer is all from the first to the last row of modules whose place has a number in it,
    "transformer.h.0.attn"; its copies are numbered, "transformer.h.1.attn". With 0 layers the graph
    is the whole model and stays as it is.

    Raises:
        InputError: there is no such module, or there are several layers already.
    """
    if layers == 0:
        return list(rows)
    found = {index: layer for index, row in enumerate(rows) if (layer := layer_of(row.module))}
    if not found:
        raise InputError(f"{where}: no layer to repeat: no module's place has a number in it")
    if len(distinct := sorted(set(found.values()))) > 1:
        raise InputError(
            f"{where}: {layers} layers of which kind? it has {', '.join(distinct[:5])}"
        )
    first, last = min(found), max(found) + 1
    (original,) = distinct
    stem = original.rstrip("0123456789")
    copies = (
        replace(row, module=row.module.replace(original, f"{stem}{number}", 1))
        for number in range(layers)
        for row in rows[first:last]
    )
    return [*rows[:first], *copies, *rows[last:]]


def layer_of(module: str) -> str:
    """Return "transformer.h.0" of "transformer.h.0.attn.c_attn"; empty if it has no number."""
    parts = module.split(".")
    numbers = [index for index, part in enumerate(parts) if part.isdigit()]
    return ".".join(parts[: numbers[0] + 1]) if numbers else ""
