"""A line with one knee, fitted to points with errors by least squares.

y = base + before * x up to the knee, and rises by `after` from there on. Between two neighbouring
points the best knee is where the best lines through the points on either side meet, if they meet
there; else it is one of the two points. Trying all of them gives the least squares exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from paracosm.timeline.analysis import Floats

__all__ = ["BrokenLine", "fit_broken_line", "fit_line", "line_suffices"]

LEVEL = 0.05  # chance of seeing a knee where there is none
LEAST_CHI_SQUARED = 0.1  # per degree of freedom: what is left of a fit is never less


@dataclass(frozen=True)
class BrokenLine:
    """A line with a knee.

    Attributes:
        knee: where it is.
        base: y at x = 0.
        before, after: the slopes.
        chi_squared: the squares of what is left of the points, in units of their errors.
    """

    knee: float
    base: float
    before: float
    after: float
    chi_squared: float


def fit_broken_line(x: Floats, y: Floats, errors: Floats) -> BrokenLine:
    """Return the line with a knee that is nearest to five or more points, all of shape (n,).

    At least two points lie on either side of the knee, or on it. `x` rises.
    """
    return min(_candidates(x, y, errors), key=lambda fit: fit.chi_squared)


def fit_line(x: Floats, y: Floats, errors: Floats) -> tuple[float, float, float, float]:
    """Return base, slope, the slope's standard error and chi squared of the best straight line."""
    (base, slope), chi_squared = _solved([np.ones_like(x), x], y, errors)
    weight = errors**-2.0
    middle = (weight * x).sum() / weight.sum()
    error = (weight * (x - middle) ** 2).sum() ** -0.5
    return base, slope, float(error), chi_squared


def line_suffices(fit: BrokenLine, x: Floats, y: Floats, errors: Floats) -> bool:
    """Whether a straight line is as good, or the knee bends down.

    The F test of two numbers more (slope and knee): the chance that points of a straight line gain
    so much is (chi_2 / chi_1)^(d / 2) with d = n - 4 degrees of freedom left, for each of the n - 3
    places that the knee was sought at (Bonferroni).
    """
    if fit.after <= fit.before:
        return True
    *_, straight = fit_line(x, y, errors)
    free = len(x) - 4
    least = LEAST_CHI_SQUARED * free
    ratio = max(fit.chi_squared, least) / max(straight, least)
    return bool((len(x) - 3) * ratio ** (free / 2) > LEVEL)


def _candidates(x: Floats, y: Floats, errors: Floats) -> Iterator[BrokenLine]:
    one = np.ones_like(x)
    for knee in x[1:-1].tolist():
        (base, before, bend), left = _solved([one, x, np.maximum(x - knee, 0.0)], y, errors)
        yield BrokenLine(knee, base, before, before + bend, left)
    for place in range(2, len(x) - 1):
        low, high = slice(None, place), slice(place, None)
        (base, before), left = _solved([one[low], x[low]], y[low], errors[low])
        (other, after), right = _solved([one[high], x[high]], y[high], errors[high])
        if before != after:
            knee = (base - other) / (after - before)
            if x[place - 1] < knee < x[place]:
                yield BrokenLine(knee, base, before, after, left + right)


def _solved(columns: list[Floats], y: Floats, errors: Floats) -> tuple[list[float], float]:
    """Return the weights of columns whose sum is nearest to `y`, and chi squared."""
    matrix = np.column_stack(columns)
    weights = np.linalg.lstsq(matrix / errors[:, None], y / errors, rcond=None)[0]
    left = (matrix @ weights - y) / errors
    return weights.tolist(), float(left @ left)
