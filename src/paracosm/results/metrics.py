"""The interface for recording metrics of a run."""

from __future__ import annotations

from typing import Protocol


class MetricSink(Protocol):
    """A recorder of metrics: a run folder, or a list."""

    def metric(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None:
        """Record one value; times in seconds."""
