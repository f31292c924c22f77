"""Where a training run's measurements go: anything with a `metric` method, such as a run folder.

Rows of the long table (node, name, value, step) that `train` writes:

- at each update, node = the worker whose gradient it was, step = the update's number (from 1):
  `minibatch_loss`, `staleness`;
- at each update besides, node = "job": `examples` (consumed so far);
- at each evaluation, node = "evaluation", step = the number of updates so far: `loss` (over the
  training set), `test_loss`, `accuracy` (over the test set), `examples`; of large sets, over the
  examples that `evaluate_examples` allows;
- at the end, node = a worker or server, step = the number of updates: `utilisation.compute`,
  `utilisation.send`, `utilisation.receive`, fractions of the virtual time.
"""

from __future__ import annotations

from typing import NamedTuple, Protocol

__all__ = ["MetricRow", "MetricSink", "Metrics"]


class MetricRow(NamedTuple):
    """One measurement; times in seconds."""

    virtual_time: float
    wall_time: float
    node: str
    name: str
    value: float
    step: int


class MetricSink(Protocol):
    """Takes measurements as they are made."""

    def metric(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None: ...


class Metrics:
    """A sink that keeps the rows in memory."""

    def __init__(self) -> None:
        self.rows: list[MetricRow] = []

    def metric(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None:
        self.rows.append(MetricRow(virtual_time, wall_time, node, name, value, step))

    def series(self, name: str) -> list[MetricRow]:
        """Return the rows called `name`, in the order in which they were made."""
        return [row for row in self.rows if row.name == name]
