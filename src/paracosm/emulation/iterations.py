"""The iterations of a real rank that count as measurements, and their spread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paracosm.emulation.records import Iteration
from paracosm.timeline.analysis import Floats

__all__ = ["Iterations", "error_of_median", "measured_iterations", "spread"]


@dataclass(frozen=True)
class Iterations:
    """Iterations, k of them.

    Attributes:
        number: of each, shape (k,).
        begin, end: when, shape (k,), seconds.
    """

    number: NDArray[np.int64]
    begin: Floats
    end: Floats

    def __len__(self) -> int:
        return len(self.number)

    @cached_property
    def time(self) -> Floats:
        """How long each took, shape (k,), seconds."""
        return self.end - self.begin

    @property
    def typical(self) -> int:
        """The number of the iteration whose time is nearest to the median, the first of such."""
        return int(self.number[np.argmin(np.abs(self.time - np.median(self.time)))])

    @property
    def middle(self) -> NDArray[np.bool_]:
        """Which belong to the middle half by time, shape (k,): no pause for a test or a file."""
        low, high = np.quantile(self.time, [0.25, 0.75], method="nearest")
        return np.asarray((self.time >= low) & (self.time <= high))


def measured_iterations(iterations: Sequence[Iteration]) -> Iterations:
    """Return those whose beginning, the end of the one before, is known: not the first."""
    number = np.array([each.number for each in iterations], dtype=np.int64)
    end = np.array([each.end for each in iterations], dtype=np.float64)
    follows = np.flatnonzero(np.diff(number) == 1) + 1
    return Iterations(number[follows], end[follows - 1], end[follows])


def spread(times: Floats) -> dict[str, Any]:
    """Return the median of times, shape (k,), its standard error, the mean, p10, p90 and k."""
    p10, median, p90 = np.quantile(times, [0.1, 0.5, 0.9]).tolist()
    return {
        "median": median,
        "p10": p10,
        "p90": p90,
        "mean": float(np.mean(times)),
        "error": error_of_median(times),
        "measured": len(times),
    }


def error_of_median(times: Floats) -> float:
    """Return the standard error of the median of times, from their median absolute deviation.

    For a normal distribution the deviation is 0.6745 sigma, and the error sqrt(pi / 2) sigma /
    sqrt(k). It is 0 for a single time.
    """
    deviation = float(np.median(np.abs(times - np.median(times))))
    return float(np.sqrt(np.pi / 2 / len(times)) * deviation / 0.6745)
