"""Draws of durations inside compiled loops: distributions as plain arrays, and one function.

    draws = tabulate([Normal(10, 3), Exponential(2)])
    draw(draws, 0, uniform(key, index), index)  # inside a Numba loop

`draw` gives what `Distribution.from_uniform` gives for the same uniform number, to rounding.
Importing this module imports Numba, so the room's `__init__` leaves it alone.
"""

import math
from collections.abc import Callable, Hashable, Sequence
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.compiled import compiled, inlined, subroutine
from paracosm.timing.distribution import Distribution, Scaled, Slowdown
from paracosm.timing.families import (
    FAMILIES,
    Constant,
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

    kind: Ints
    parameters: Floats
    first: Ints
    count: Ints  # type: ignore[assignment]  # hides tuple.count, which is not needed
    values: Floats


def tabulate(distributions: Sequence[Distribution]) -> Draws | None:
    """Return `distributions` as arrays for `draw`; None when one is of a user's own class."""
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
    def __init__(self) -> None:
        self.arrays: list[Floats] = []
        self.length = 0
        self.of_samples: dict[Hashable, tuple[tuple[float, ...], tuple[int, int]]] = {}
        self.places: dict[Hashable, tuple[int, int] | None] = {}

    def place(self, key: Hashable, make: Callable[[], Floats | None]) -> tuple[int, int] | None:
        """Return (first, length) of the table `key`, which `make` makes if it is new, or None."""
        if key not in self.places:
            array = make()
            self.places[key] = None if array is None else (self.length, array.size)
            if array is not None:
                self.arrays.append(array)
                self.length += array.size
        return self.places[key]

    def samples(self, samples: tuple[float, ...], width: float = 0.0) -> tuple[int, int]:
        """Return (first, count) of the samples, with a `width` of their kernels' masses too."""
        identity = (id(samples), width)
        if identity not in self.of_samples:
            make = (
                partial(_masses, samples, width) if width else partial(np.asarray, samples, float)
            )
            place = self.place((samples, width), make)
            assert place is not None
            self.of_samples[identity] = samples, (place[0], len(samples))  # alive, so is its id
        return self.of_samples[identity][1]

    def joined(self) -> Floats:
        return np.concatenate([*self.arrays, np.empty(0)])


def _masses(samples: tuple[float, ...], width: float) -> Floats:
    """Return x0, Phi(x0 / width), x1, ...: the part of each kernel that is not negative."""
    from scipy.special import ndtr

    array = np.asarray(samples, float)
    return np.column_stack([array, ndtr(array / width)]).ravel()


def _row(distribution: Distribution, tables: _Tables) -> _Row | None:
    none, nothing = (0, 0), (0.0, 0.0, 0.0)
    match distribution:
        case _ if type(distribution) not in _KNOWN:
            return None
        case Scaled(base, speed):
            row = _row(base, tables)
            return None if row is None else row._replace(speed=row.speed * speed)
        case Slowdown(base, factor, probability):
            row = _row(base, tables)
            parameters = (probability, factor)
            return None if row is None else row._replace(slowdowns=(parameters, *row.slowdowns))
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
        case Recorded(samples, again):
            return _Row(RECORDED_CYCLE if again else RECORDED, nothing, tables.samples(samples))
        case KernelDensity(samples) if distribution._width > 0:
            width = distribution._width
            return _Row(KERNEL_DENSITY, (width, 0.0, 0.0), tables.samples(samples, width))
        case LogKernelDensity(samples) if distribution._width > 0:
            return _Row(
                LOG_KERNEL_DENSITY, (distribution._width, 0.0, 0.0), tables.samples(samples)
            )
    assert isinstance(distribution, SampleDistribution)
    return _Row(EMPIRICAL, nothing, tables.samples(distribution.samples))


_KNOWN = (*FAMILIES.values(), Scaled, Slowdown)


_TERMS = 8  # coefficients of one polynomial
LEAST_SCORE, GREATEST_SCORE = -8.4, 8.4  # beyond those of 2^-54 and 1 - 2^-53
_INTERVALS = (64, 128, 256, 512, 1024, 2048)
_TOLERANCE = 2e-11  # of the quantile, relative
_TINY = 1e-18  # below, the first term of the incomplete gamma's series is all of it
_LARGE_SHAPE = 1e5  # SciPy loses digits from 1e6 on; six terms of Cornish and Fisher do not


def gamma_table(shape: float) -> Floats | None:
    """Return the polynomials for `gamma_quantile`, flat, of length 8 x intervals.

    Each interval of the normal score has 8 coefficients, the constant first, of the logarithm of
    the quantile of Gamma(`shape`) of mean 1, in its local coordinate in [-1, 1]. There are as few
    intervals as give 2e-11 relative; None if no number of them does.
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


def _log_quantile(shape: float, score: Floats) -> Floats:
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


def _expansion(z: Floats, root: float) -> Floats:
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


_LEAST, _GREATEST = 2.0**-54, 1 - 2.0**-53  # as `distribution.inside`


@inlined
def draw(draws: Any, row: Any, uniform: Any, index: Any) -> Any:
    """Return one duration of the distribution in `row`, in seconds.

    `uniform` is in (0, 1), from `uniform(key, index)`. `index` is the number of earlier draws from
    this stream; only a recording uses it. NaN: a recording is exhausted.
    """
    parameters, values = draws.parameters[row], draws.values
    kind, first, count = draws.kind[row], draws.first[row], draws.count[row]

    levels = int(parameters[SLOWDOWNS])
    factor = 1.0
    for level in range(levels):
        p = parameters[PAIRS + 2 * level]
        if uniform < p:
            factor *= parameters[PAIRS + 2 * level + 1]
            uniform = _inside(uniform / p)
        else:
            uniform = _inside((uniform - p) / (1.0 - p))
    a, b = parameters[A], parameters[B]
    if kind == CONSTANT:
        duration = a
    elif kind == UNIFORM:
        duration = a + b * uniform
    elif kind == NORMAL:
        duration = _truncated_normal(uniform, a, b, parameters[C])
    elif kind == LOGNORMAL:
        duration = a * math.exp(b * normal_quantile(uniform))
    elif kind == EXPONENTIAL:
        duration = -a * math.log1p(-uniform)
    elif kind == WEIBULL:
        duration = a * (-math.log1p(-uniform)) ** b
    elif kind == GAMMA:
        duration = a * gamma_quantile(values, first, count, uniform)
    elif kind == RECORDED:
        duration = values[first + np.int64(index)] if index < count else math.nan
    elif kind == RECORDED_CYCLE:
        duration = values[first + np.int64(index) % count]
    else:
        scaled = uniform * count
        chosen = min(int(scaled), count - 1)
        rest = _inside(scaled - chosen)
        if kind == EMPIRICAL:
            duration = values[first + chosen]
        elif kind == LOG_KERNEL_DENSITY:
            duration = values[first + chosen] * math.exp(a * normal_quantile(rest))
        else:  # a sample, and the mass of its kernel that is not negative
            at = first + 2 * chosen
            duration = _truncated_normal(rest, values[at], a, values[at + 1])
    if levels > 0:
        duration *= factor
    speed = parameters[SPEED]
    return duration / speed if speed != 1.0 else duration


@subroutine
def _truncated_normal(uniform: Any, mu: Any, sd: Any, mass: Any) -> Any:
    return max(mu - sd * normal_quantile(min((1.0 - uniform) * mass, _GREATEST)), 0.0)


@subroutine
def _inside(uniform: Any) -> Any:
    return min(max(uniform, _LEAST), _GREATEST)


@subroutine
def gamma_quantile(values: Any, first: Any, count: Any, u: Any) -> Any:
    """Return the quantile at `u` of a gamma of mean 1, from its table `values[first:][:count]`."""
    intervals = count // 8
    position = (normal_quantile(u) - LEAST_SCORE) * (intervals / (GREATEST_SCORE - LEAST_SCORE))
    interval = min(max(int(position), 0), intervals - 1)
    t = 2.0 * (position - interval) - 1.0
    at = first + 8 * interval
    low = (values[at + 3] * t + values[at + 2]) * t * t + (values[at + 1] * t + values[at])
    high = (values[at + 7] * t + values[at + 6]) * t * t + (values[at + 5] * t + values[at + 4])
    return math.exp(high * (t * t) * (t * t) + low)


_GOLDEN = np.uint64(0x9E3779B97F4A7C15)  # 2^64 / golden ratio, odd
_FIRST_FACTOR, _SECOND_FACTOR = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)


@compiled
def uniform(key: Any, index: Any) -> Any:
    """Return number `index` (0, 1, ...) of the stream `key`: a multiple of 2^-53 in (0, 1).

    SplitMix64, counted instead of stepped: Steele, Lea, Flood, "Fast splittable pseudorandom number
    generators", OOPSLA 2014, figure 15 (with the constants of its reference code). A 0 becomes
    2^-54, as `distribution.inside` makes it.
    """
    bits = np.uint64(key) + (np.uint64(index) + np.uint64(1)) * _GOLDEN
    bits = (bits ^ (bits >> np.uint64(30))) * _FIRST_FACTOR
    bits = (bits ^ (bits >> np.uint64(27))) * _SECOND_FACTOR
    bits = bits ^ (bits >> np.uint64(31))
    return max(np.float64(bits >> np.uint64(11)) * 2.0**-53, _LEAST)


@compiled
def normal_quantile(p: Any) -> Any:
    """Return z with Phi(z) = `p`, for `p` in (0, 1), to about 16 digits.

    Wichura, "Algorithm AS 241: the percentage points of the normal distribution", Applied
    Statistics 37, 1988, routine PPND16: rational functions of `p` in the middle and of
    sqrt(-log(tail)) in the tails.
    """
    q = p - 0.5
    if abs(q) <= 0.425:
        r = 0.180625 - q * q
        above = (
            ((((((2.5090809287301226727e3 * r + 3.3430575583588128105e4) * r
            + 6.7265770927008700853e4) * r + 4.5921953931549871457e4) * r
            + 1.3731693765509461125e4) * r + 1.9715909503065514427e3) * r
            + 1.3314166789178437745e2) * r + 3.3871328727963666080e0
        )  # fmt: skip
        below = (
            ((((((5.2264952788528545610e3 * r + 2.8729085735721942674e4) * r
            + 3.9307895800092710610e4) * r + 2.1213794301586595867e4) * r
            + 5.3941960214247511077e3) * r + 6.8718700749205790830e2) * r
            + 4.2313330701600911252e1) * r + 1.0
        )  # fmt: skip
        return q * above / below
    r = math.sqrt(-math.log(p if q < 0 else 1.0 - p))
    if r <= 5.0:
        r -= 1.6
        above = (
            ((((((7.74545014278341407640e-4 * r + 2.27238449892691845833e-2) * r
            + 2.41780725177450611770e-1) * r + 1.27045825245236838258e0) * r
            + 3.64784832476320460504e0) * r + 5.76949722146069140550e0) * r
            + 4.63033784615654529590e0) * r + 1.42343711074968357734e0
        )  # fmt: skip
        below = (
            ((((((1.05075007164441684324e-9 * r + 5.47593808499534494600e-4) * r
            + 1.51986665636164571966e-2) * r + 1.48103976427480074590e-1) * r
            + 6.89767334985100004550e-1) * r + 1.67638483018380384940e0) * r
            + 2.05319162663775882187e0) * r + 1.0
        )  # fmt: skip
    else:
        r -= 5.0
        above = (
            ((((((2.01033439929228813265e-7 * r + 2.71155556874348757815e-5) * r
            + 1.24266094738807843860e-3) * r + 2.65321895265761230930e-2) * r
            + 2.96560571828504891230e-1) * r + 1.78482653991729133580e0) * r
            + 5.46378491116411436990e0) * r + 6.65790464350110377720e0
        )  # fmt: skip
        below = (
            ((((((2.04426310338993978564e-15 * r + 1.42151175831644588870e-7) * r
            + 1.84631831751005468180e-5) * r + 7.86869131145613259100e-4) * r
            + 1.48753612908506148525e-2) * r + 1.36929880922735805310e-1) * r
            + 5.99832206555887937690e-1) * r + 1.0
        )  # fmt: skip
    return -above / below if q < 0 else above / below
