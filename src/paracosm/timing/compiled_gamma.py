"""The gamma distribution's quantile, for compiled loops: piecewise polynomials, made once a shape.

The logarithm of the quantile, as a function of the normal score z = Phi^-1(u), is smooth and nearly
straight for every shape, so that a few polynomials give it to 12 digits over all z that a double
`u` can have. Reading them costs a hundredth of inverting the incomplete gamma function, and the
cost does not depend on the shape.
"""

# Numba infers the types of compiled functions; mypy is told the same once, at `_compiled`.
from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
from numpy.typing import NDArray

from paracosm.timing.compiled_normal import normal_quantile

__all__ = ["gamma_quantile", "gamma_table"]

Array = NDArray[np.float64]

_TERMS = 8  # coefficients of one polynomial
_LEAST_SCORE, _GREATEST_SCORE = -8.4, 8.4  # beyond those of 2^-54 and 1 - 2^-53
_INTERVALS = (64, 128, 256, 512, 1024, 2048)
_TOLERANCE = 2e-11  # of the quantile, relative
_TINY = 1e-18  # below, the first term of the incomplete gamma's series is all of it
_LARGE_SHAPE = 1e5  # SciPy loses digits from 1e6 on; six terms of Cornish and Fisher do not


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return cast(Callable[..., Any], numba.njit(cache=True, error_model="numpy")(function))


def gamma_table(shape: float) -> Array | None:
    """Return the polynomials for `gamma_quantile`, flat, of length 8 x intervals.

    Each interval of the normal score has 8 coefficients, the constant first, of the logarithm of
    the quantile of Gamma(`shape`) of mean 1, in its local coordinate in [-1, 1]. There are as few
    intervals as give 2e-11 relative; None where no number of them does.
    """
    angles = (np.arange(_TERMS) + 0.5) * math.pi / _TERMS
    nodes = np.cos(angles)  # Chebyshev's, where the interpolation error is nearly the least
    to_coefficients = np.linalg.inv(np.vander(nodes, increasing=True))
    between = np.array([-1.0, -0.6, 0.05, 0.7, 1.0])
    for intervals in _INTERVALS:
        half = (_GREATEST_SCORE - _LEAST_SCORE) / (2 * intervals)
        centers = _LEAST_SCORE + half * (2 * np.arange(intervals) + 1)
        exact = _log_quantile(shape, centers[:, None] + half * nodes)
        table = exact @ to_coefficients.T
        expected = _log_quantile(shape, centers[:, None] + half * between)
        off = np.abs(table @ np.vander(between, _TERMS, increasing=True).T - expected)
        # A logarithm of -800 is a quantile of 0, whatever its digits.
        if np.all(off[expected > -800.0] <= _TOLERANCE):
            return np.ascontiguousarray(table).ravel()
    return None


@_compiled
def gamma_quantile(values: Any, first: Any, count: Any, u: Any) -> Any:
    """Return the quantile at `u` of a gamma of mean 1, from its table `values[first:][:count]`."""
    intervals = count // 8
    position = (normal_quantile(u) - _LEAST_SCORE) * (intervals / (_GREATEST_SCORE - _LEAST_SCORE))
    interval = min(max(int(position), 0), intervals - 1)
    t = 2.0 * (position - interval) - 1.0
    at = first + 8 * interval
    low = (values[at + 3] * t + values[at + 2]) * t * t + (values[at + 1] * t + values[at])
    high = (values[at + 7] * t + values[at + 6]) * t * t + (values[at + 5] * t + values[at + 4])
    return math.exp(high * (t * t) * (t * t) + low)


def _log_quantile(shape: float, score: Array) -> Array:
    """Return the logarithm of the quantile of Gamma(`shape`) of mean 1 at Phi(`score`)."""
    from scipy.special import gammainccinv, gammaincinv, gammaln, log_ndtr, ndtr

    if shape > _LARGE_SHAPE:
        return np.log1p(_expansion(score, math.sqrt(shape)))
    below = score < 0
    with np.errstate(all="ignore"):
        standard = np.where(
            below, gammaincinv(shape, ndtr(score)), gammainccinv(shape, ndtr(-score))
        )
        # P(a, x) = x^a / Gamma(a + 1) for tiny x; DLMF 8.11.4.
        tiny = (log_ndtr(score) + gammaln(shape + 1)) / shape
        exact = np.where(standard > _TINY, np.log(standard), tiny)
    return np.asarray(exact - math.log(shape))


def _expansion(z: Array, root: float) -> Array:
    """Return the quantile of a gamma of mean 1 and a large shape `root`^2, less 1.

    Fisher, Cornish, "The percentile points of distributions having known cumulants", Technometrics
    2, 1960: chi-squared with 2 shape degrees of freedom, divided by them.
    """
    terms = (
        z,
        (z**2 - 1) / 3,
        (z**3 - 7 * z) / 36,
        -(3 * z**4 + 7 * z**2 - 16) / 810,
        (9 * z**5 + 256 * z**3 - 433 * z) / 38880,
    )
    return np.asarray(sum(term / root**power for power, term in enumerate(terms, start=1)))
