"""What takes the measurements of a run."""

from __future__ import annotations

from typing import Protocol


class MetricSink(Protocol):
    """What takes measurements: a run folder, or a list."""

    def metric(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None:
        """Take one of them; times in seconds."""
