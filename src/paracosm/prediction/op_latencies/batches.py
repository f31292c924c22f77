"""Op latencies at a batch at which nobody timed them, from those at other batches.

An op's time is a line in the batch, through its times at the two nearest batches. Where training
was timed at one batch alone, its ops grow as those of the forward pass do in tables of inference.
What is accumulated is as large as the weights, whatever the batch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from paracosm.errors import InputError
from paracosm.prediction.op_latencies.latencies import Reading, reading_of
from paracosm.prediction.op_latencies.table import Row

__all__ = ["rows_at"]

Table = Sequence[Row]


def rows_at(
    batch: float, training: Mapping[int, Table], inference: Mapping[int, Table]
) -> tuple[list[Row], Reading]:
    """Return the rows of a training step at `batch` examples, and how to read their intervals.

    Args:
        batch: of one GPU; may be a fraction: a part of the work of a larger one.
        training: tables of training steps by their batch, at least one.
        inference: tables of the same model's inference, by their batch.

    Raises:
        InputError: tables of the same model with other rows.
    """
    nearest = min(training, key=lambda other: (abs(other - batch), other))
    rows, reading = list(training[nearest]), reading_of(training[nearest])
    if batch == nearest:
        return rows, reading
    by_batch = {size: {row.name: row for row in table} for size, table in training.items()}
    for size, table in by_batch.items():
        if table.keys() != by_batch[nearest].keys():
            raise InputError(f"tables at batches {nearest} and {size} have other rows")
    forward = {size: {row.name: row for row in table} for size, table in inference.items()}
    floors = {size: reading_of(table).floor for size, table in inference.items()}
    own = {size: reading_of(table).floor for size, table in training.items()}
    scaled = []
    for row in rows:
        if reading.on_host(row, row.forward) and not row.backward:
            scaled.append(row)
            continue
        growth = _growth(row.name, nearest, batch, forward, floors)
        times = {}
        for name in ("forward", "backward"):
            usual = getattr(row, name)
            if reading.on_host(row, usual):
                times[name] = usual
                continue
            known = {
                size: max(getattr(table[row.name], name) - own[size], 0.0)
                for size, table in by_batch.items()
            }
            line = _line(known, batch) if len(known) > 1 else known[nearest] * growth
            times[name] = reading.floor + line
        scaled.append(replace(row, **times))
    return scaled, reading


def _growth(
    name: str,
    known: int,
    batch: float,
    forward: Mapping[int, Mapping[str, Row]],
    floors: Mapping[int, float],
) -> float:
    """Return how much longer an op takes at `batch` than at `known`, by tables of inference."""
    times = {
        size: rows[name].forward - floors[size]
        for size, rows in forward.items()
        if name in rows and rows[name].forward > floors[size]
    }
    if len(times) > 1 and (start := _line(times, known)) > 0:
        return _line(times, batch) / start
    return batch / known


def _line(known: Mapping[int, float], batch: float) -> float:
    """Return the value at `batch` of the line through those at the two nearest batches.

    Below the smallest batch it is no less than in proportion: a line might end below 0.
    """
    low, high = sorted(sorted(known, key=lambda size: (abs(size - batch), size))[:2])
    slope = (known[high] - known[low]) / (high - low)
    return max(known[low] + slope * (batch - low), known[low] * min(batch / low, 1.0))
