"""Distributions as plain arrays, for `compiled.draw`."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from paracosm.timing.distribution import Array, Distribution, Scaled, Slowdown
from paracosm.timing.families import (
    Constant,
    Empirical,
    Exponential,
    Gamma,
    KernelDensity,
    LogKernelDensity,
    Lognormal,
    Normal,
    Recorded,
    SampleDistribution,
    Uniform,
    Weibull,
)

__all__ = ["GREATEST_SCORE", "LEAST_SCORE", "Draws", "gamma_table", "tabulate"]


# What `Draws.kind` says.
CONSTANT, UNIFORM, NORMAL, LOGNORMAL, EXPONENTIAL, GAMMA, WEIBULL = range(7)
EMPIRICAL, KERNEL_DENSITY, LOG_KERNEL_DENSITY, RECORDED, RECORDED_CYCLE = range(7, 12)

# Columns of `Draws.parameters`: the family's own three, the divisor, the slow-downs as pairs.
A, B, C, SPEED, SLOWDOWNS, PAIRS = range(6)


class Draws(NamedTuple):
    """Distributions as arrays, one row each; equal tables of samples are stored once.

    `parameters` has shape (rows, k). A row's samples (or polynomials, of a gamma) are
    `values[first:first + count]`; those of a kernel density are pairs, twice as many numbers.
    """

    kind: NDArray[np.int64]
    parameters: NDArray[np.float64]
    first: NDArray[np.int64]
    count: NDArray[np.int64]  # type: ignore[assignment]  # hides tuple.count, which nobody needs
    values: NDArray[np.float64]


def tabulate(distributions: Sequence[Distribution]) -> Draws | None:
    """Return `distributions` as arrays for `draw`, row i for the i-th.

    None when one of them is of a class that is not in this room, a user's own.
    """
    tables = _Tables()
    rows: list[_Row] = []
    for distribution in distributions:
        row = _row(distribution, tables)
        if row is None:
            return None
        rows.append(row)
    deepest = max((len(row.slowdowns) for row in rows), default=0)
    parameters = np.zeros((len(rows), PAIRS + 2 * deepest))
    for parameter, row in zip(parameters, rows, strict=True):
        flat = (*row.family, row.speed, len(row.slowdowns), *sum(row.slowdowns, ()))
        parameter[: len(flat)] = flat
    return Draws(
        np.array([row.kind for row in rows], np.int64),
        parameters,
        np.array([row.table[0] for row in rows], np.int64),
        np.array([row.table[1] for row in rows], np.int64),
        tables.joined(),
    )


class _Row(NamedTuple):
    kind: int
    family: tuple[float, float, float]
    table: tuple[int, int]  # first, count
    speed: float = 1.0
    slowdowns: tuple[tuple[float, float], ...] = ()  # (probability, factor), the outermost first


class _Tables:
    """The tables so far, to be found again."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self.length = 0
        self.of_samples: dict[Hashable, tuple[tuple[float, ...], tuple[int, int]]] = {}
        self.places: dict[Hashable, tuple[int, int] | None] = {}

    def place(self, key: Hashable, make: Callable[[], Array | None]) -> tuple[int, int] | None:
        """Return (first, length) of the table `key`, which `make` makes if it is new, or None."""
        if key not in self.places:
            array = make()
            self.places[key] = None if array is None else (self.length, array.size)
            if array is not None:
                self.arrays.append(array)
                self.length += array.size
        return self.places[key]

    def samples(self, samples: tuple[float, ...], width: float = 0.0) -> tuple[int, int]:
        """Return (first, count) of the samples; with a `width`, of those and their kernels' masses.

        The samples themselves are looked up before their values are: hashing a million takes long.
        """
        identity = (id(samples), width)
        if identity not in self.of_samples:
            make = (
                partial(_masses, samples, width) if width else partial(np.asarray, samples, float)
            )
            place = self.place((samples, width), make)
            assert place is not None
            self.of_samples[identity] = samples, (place[0], len(samples))  # alive, so is its id
        return self.of_samples[identity][1]

    def joined(self) -> Array:
        return np.concatenate([*self.arrays, np.empty(0)])


def _masses(samples: tuple[float, ...], width: float) -> Array:
    """Return x0, Phi(x0 / width), x1, ...: how much of each kernel is not negative."""
    from scipy.special import ndtr

    array = np.asarray(samples, float)
    return np.column_stack([array, ndtr(array / width)]).ravel()


def _row(distribution: Distribution, tables: _Tables) -> _Row | None:
    """Return the row of `distribution`, or None for a class that is not known here."""
    if type(distribution) is Scaled:
        row = _row(distribution.base, tables)
        return None if row is None else row._replace(speed=row.speed * distribution.speed)
    if type(distribution) is Slowdown:
        row = _row(distribution.base, tables)
        own = (distribution.probability, distribution.factor)
        return None if row is None else row._replace(slowdowns=(own, *row.slowdowns))
    if isinstance(distribution, SampleDistribution):
        return _sample_row(distribution, tables)
    return _family_row(distribution, tables)


def _family_row(distribution: Distribution, tables: _Tables) -> _Row | None:
    none = (0, 0)
    match distribution:
        case _ if type(distribution) not in _FAMILIES:
            return None
        case Constant(value):
            return _Row(CONSTANT, (value, 0.0, 0.0), none)
        case Uniform(low, high):
            return _Row(UNIFORM, (low, high - low, 0.0), none)
        case Normal(mu, sd):
            if sd == 0:
                return _Row(CONSTANT, (mu, 0.0, 0.0), none)
            # Phi(mu / sd), without the half second that importing scipy.special takes.
            return _Row(NORMAL, (mu, sd, 0.5 * math.erfc(-mu / sd / math.sqrt(2))), none)
        case Lognormal(median, sigma):
            return _Row(LOGNORMAL, (median, sigma, 0.0), none)
        case Exponential(mu):
            return _Row(EXPONENTIAL, (mu, 0.0, 0.0), none)
        case Weibull(mu, shape):
            return _Row(WEIBULL, (mu / math.gamma(1 + 1 / shape), 1 / shape, 0.0), none)
        case Gamma(mu, shape):
            place = tables.place(("gamma", shape), partial(gamma_table, shape))
            return None if place is None else _Row(GAMMA, (mu, 0.0, 0.0), place)
    return None


_FAMILIES = (Constant, Uniform, Normal, Lognormal, Exponential, Gamma, Weibull)


def _sample_row(distribution: SampleDistribution, tables: _Tables) -> _Row | None:
    nothing = (0.0, 0.0, 0.0)
    samples = distribution.samples
    width = 0.0
    if type(distribution) is Recorded:
        kind = RECORDED_CYCLE if distribution.cycle else RECORDED
        return _Row(kind, nothing, tables.samples(samples))
    if isinstance(distribution, KernelDensity | LogKernelDensity):
        width = distribution._width
    if type(distribution) is KernelDensity and width > 0:
        return _Row(KERNEL_DENSITY, (width, 0.0, 0.0), tables.samples(samples, width))
    if type(distribution) is LogKernelDensity and width > 0:
        return _Row(LOG_KERNEL_DENSITY, (width, 0.0, 0.0), tables.samples(samples))
    if type(distribution) in (Empirical, KernelDensity, LogKernelDensity):
        return _Row(EMPIRICAL, nothing, tables.samples(samples))
    return None


_TERMS = 8  # coefficients of one polynomial
LEAST_SCORE, GREATEST_SCORE = -8.4, 8.4  # beyond those of 2^-54 and 1 - 2^-53
_INTERVALS = (64, 128, 256, 512, 1024, 2048)
_TOLERANCE = 2e-11  # of the quantile, relative
_TINY = 1e-18  # below, the first term of the incomplete gamma's series is all of it
_LARGE_SHAPE = 1e5  # SciPy loses digits from 1e6 on; six terms of Cornish and Fisher do not


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
        half = (GREATEST_SCORE - LEAST_SCORE) / (2 * intervals)
        centers = LEAST_SCORE + half * (2 * np.arange(intervals) + 1)
        exact = _log_quantile(shape, centers[:, None] + half * nodes)
        table = exact @ to_coefficients.T
        expected = _log_quantile(shape, centers[:, None] + half * between)
        off = np.abs(table @ np.vander(between, _TERMS, increasing=True).T - expected)
        # A logarithm of -800 is a quantile of 0, whatever its digits.
        if np.all(off[expected > -800.0] <= _TOLERANCE):
            return np.ascontiguousarray(table).ravel()
    return None


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
