"""The nearest timed ops of the same cell: ops that differ from it in sizes alone, and a little.

Two ops are in one cell if all but the sizes of their tensors is equal: dtypes, orders of strides,
flags, kernel attributes such as stride, padding and groups. Their distance is the largest logarithm
of a ratio of sizes: 0.1 means that no size differs by more than about 10 %. Work is accounted for
by the roofline: what is interpolated is the ratio of time to roofline.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.profiling.estimators.describe import Description
from paracosm.profiling.estimators.features import Floats
from paracosm.profiling.estimators.roofline import Roofline

__all__ = ["FARTHEST", "Cells", "cells_of"]

FARTHEST = 0.3
"""Never is a neighbour used that is farther than this, a factor of 1.35 in one size."""

_MOST_NEIGHBOURS = 4
_SOFTENING = 0.02  # of the distances by whose inverse neighbours are weighted


@dataclass(frozen=True, eq=False)
class Cells:
    """The timed ops of one type.

    Attributes:
        names: the text of every cell.
        offsets: (cells + 1,), where each cell's ops begin.
        sizes: (n, most sizes of an op), their logarithms; 0 where an op has fewer.
        ratio: (n,), logarithm of time over roofline.
    """

    names: tuple[str, ...]
    offsets: npt.NDArray[np.int64]
    sizes: Floats
    ratio: Floats

    def estimate(
        self, op: Description, roofline: Roofline, radius: float = FARTHEST
    ) -> tuple[float, float]:
        """Return the logarithm of the time (seconds) of `op` and how far its nearest neighbour is.

        Neighbours within `radius` count, the nearest four at most, each by the inverse of its
        distance. Without any, the distance is infinite.
        """
        if op.cell not in self.names:
            return np.nan, np.inf
        cell = self.names.index(op.cell)
        begin, end = self.offsets[cell], self.offsets[cell + 1]
        here = _log_sizes(op)
        distance = np.abs(self.sizes[begin:end, : len(here)] - here).max(axis=1, initial=0.0)
        order = np.argsort(distance, kind="stable")[:_MOST_NEIGHBOURS]
        order = order[distance[order] <= radius]
        if not len(order):
            return np.nan, np.inf
        weights = 1 / (distance[order] + _SOFTENING)
        ratio = float(weights @ self.ratio[begin:end][order] / weights.sum())
        return float(roofline.log_time([op])[0]) + ratio, float(distance[order[0]])


def cells_of(ops: Sequence[Description], log_time: Floats, roofline: Roofline) -> Cells:
    """Return the cells of `ops` with the logarithms of their times."""
    ratio = log_time - roofline.log_time(ops)
    cells = [op.cell for op in ops]
    order = sorted(range(len(ops)), key=lambda row: cells[row])
    names = tuple(sorted(set(cells)))
    counts = [cells.count(name) for name in names]
    sizes = np.zeros((len(ops), max(len(op.sizes) for op in ops)))
    for row, index in enumerate(order):
        here = _log_sizes(ops[index])
        sizes[row, : len(here)] = here
    return Cells(names, np.cumsum([0, *counts]), sizes, ratio[order])


def _log_sizes(op: Description) -> Floats:
    return np.log1p([size for _, size in op.shapes])
