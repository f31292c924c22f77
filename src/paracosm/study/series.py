"""One metric of a run, as columns."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Series"]


@dataclass(frozen=True)
class Series:
    """All values of one metric in the order in which they were made; every column has shape (n,).

    Attributes:
        virtual_time: the simulated clock, seconds.
        wall_time: real time since the run began, seconds.
        node: name of the worker, server or evaluation that the value belongs to.
        value: the value itself.
        step: number of the update (of the iteration, of the sweep) that the value belongs to.
    """

    virtual_time: NDArray[np.float64]
    wall_time: NDArray[np.float64]
    node: NDArray[np.object_]
    value: NDArray[np.float64]
    step: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.value)

    def where(self, chosen: NDArray[np.bool_]) -> Series:
        """Return the rows for which `chosen`, of shape (n,), is true."""
        return Series(
            self.virtual_time[chosen],
            self.wall_time[chosen],
            self.node[chosen],
            self.value[chosen],
            self.step[chosen],
        )
