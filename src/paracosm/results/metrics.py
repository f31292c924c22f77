"""The metrics of a run: how they are recorded, and how one is read."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray


class MetricSink(Protocol):
    """A recorder of metrics: a run folder, or a list."""

    def metric(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None:
        """Record one value; times in seconds."""


@dataclass(frozen=True)
class Series:
    """All values of one metric in order of recording, in columns of shape (n,)."""

    virtual_time: NDArray[np.float64]  # the simulated clock, seconds
    wall_time: NDArray[np.float64]  # real time since the run began, seconds
    node: NDArray[np.object_]  # the worker, server or evaluation that the value belongs to
    value: NDArray[np.float64]
    step: NDArray[np.int64]  # number of the update (iteration, sweep)

    def __len__(self) -> int:
        return len(self.value)

    def where(self, chosen: NDArray[np.bool_]) -> Series:
        """Return the rows for which `chosen`, of shape (n,), is true."""
        return Series(*(getattr(self, field.name)[chosen] for field in fields(self)))
