"""Fewer points that look the same: for curves, histograms and crowds of nodes."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from paracosm.report.chart import Floats

__all__ = ["extremes", "histogram", "quantiles"]


def extremes(y: Floats, points: int = 2000) -> NDArray[np.intp]:
    """Return the indices, at most about `points`, of a thinned curve that keeps its outline.

    The curve is cut into equal runs of points, and the first, lowest, highest and last one of
    each are kept: a spike never disappears.
    """
    if len(y) <= points:
        return np.arange(len(y))
    kept = []
    for part in np.array_split(np.arange(len(y)), points // 4):
        values = y[part]
        # A stretch without any number keeps its ends, hence stays a gap.
        known = part[np.isfinite(values)] if np.isfinite(values).any() else part
        inside = y[known]
        kept += [part[0], known[inside.argmin()], known[inside.argmax()], part[-1]]
    return np.unique(kept)


def histogram(
    values: Floats, most: int = 100, counts: Floats | None = None
) -> tuple[Floats, Floats]:
    """Return the edges and the shares of a histogram of whole numbers, each its own bin.

    Where they range over more than `most` numbers, a bin holds several; its share is then the
    mean over the numbers in it, so that histograms with different bins compare. `counts`, of the
    same shape, say how often each value was seen (once).
    """
    low, high = np.floor(values.min()), np.floor(values.max())
    width = np.ceil((high - low + 1) / most)
    bins = int(np.ceil((high - low + 1) / width))
    edges = low - 0.5 + width * np.arange(bins + 1)
    sums, _ = np.histogram(values, edges, weights=counts)
    return edges, sums / (sums.sum() * width)


def quantiles(values: Floats, most: int = 200) -> NDArray[np.intp]:
    """Return the indices of at most `most` values, evenly by rank, the lowest and highest kept."""
    order = np.argsort(values, kind="stable")
    if len(values) <= most:
        return order
    return order[np.linspace(0, len(values) - 1, most).round().astype(np.intp)]
