"""How sure a comparison of runs is, from runs that differ by their seed alone."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
from curves import Curve
from numpy.typing import NDArray
from scipy.stats import binom

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Ratio:
    """The median over the seeds of a ratio of two runs, and its confidence interval."""

    median: float
    low: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.3g} ({self.low:.3g} to {self.high:.3g})"

    @property
    def above_one(self) -> bool | None:
        """Whether the ratio is above 1; None where the interval contains 1."""
        return True if self.low > 1 else False if self.high < 1 else None

    def within(self, factor: float) -> bool | None:
        """Whether the ratio, or its inverse, is at most `factor`; None if the interval decides."""
        if self.high <= factor and self.low >= 1 / factor:
            return True
        return False if self.low > factor or self.high < 1 / factor else None


def ratio(
    above: Sequence[Curve], below: Sequence[Curve], measure: Callable[[Curve], float]
) -> Ratio:
    """Compare two settings seed by seed: runs of one seed share model and minibatches.

    The interval is that of the sign test, between two order statistics, so that it holds for any
    distribution (David and Nagaraja, Order Statistics, section 7.1): of ten seeds, the second and
    the second last.
    """
    found = {curve.seed: measure(curve) for curve in below}
    values = np.array([_divide(measure(curve), found[curve.seed]) for curve in above])
    low, high = _order_statistics(values)
    return Ratio(float(np.median(values)), low, high)


def between_seeds(curves: Sequence[Curve], measure: Callable[[Curve], float]) -> float:
    """Return the factor between a late and an early run of one setting.

    Curves of two settings that are closer than this coincide: so are those of two seeds.
    """
    early, late = _order_statistics(np.array([measure(curve) for curve in curves]))
    return _divide(late, early)


def all_of(verdicts: Iterable[bool | None]) -> bool | None:
    """Judge a claim of several parts: False if one fails, else None if one is open."""
    found = list(verdicts)
    return False if False in found else None if None in found else True


def _order_statistics(values: NDArray[np.float64]) -> tuple[float, float]:
    rank = max(int(binom.ppf((1 - CONFIDENCE) / 2, len(values), 0.5)), 1)
    ordered = np.sort(values)
    return float(ordered[rank - 1]), float(ordered[-rank])


def _divide(above: float, below: float) -> float:
    # Of two runs that never reach the target, neither is faster.
    return 1.0 if np.isinf(above) and np.isinf(below) else above / below
