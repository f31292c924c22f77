"""The measurements of a run that kept them in memory."""

from __future__ import annotations

from paracosm.training import Metrics, TrainingResult
from paracosm.training.record import MetricRow


def all_rows(result: TrainingResult) -> list[MetricRow]:
    assert isinstance(result.metrics, Metrics)
    return result.metrics.rows


def series(result: TrainingResult, name: str) -> list[MetricRow]:
    """Return the rows called `name`, in the order in which they were made."""
    return [row for row in all_rows(result) if row.name == name]


def column(result: TrainingResult, name: str, node: str | None = None) -> list[float]:
    """Return the values of the rows called `name`, of one node or of all."""
    return [row.value for row in series(result, name) if node in (None, row.node)]
