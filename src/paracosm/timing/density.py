"""The probability density of a distribution, and the cumulative one."""

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paracosm.arrays import Floats, refuse_masked
from paracosm.errors import InputError
from paracosm.timing.distribution import Distribution, Scaled, Slowdown
from paracosm.timing.families import (
    Exponential,
    Gamma,
    KernelDensity,
    LogKernelDensity,
    Lognormal,
    Normal,
    Uniform,
    Weibull,
)

_ROOT_TWO_PI = math.sqrt(2 * math.pi)
_BLOCK = 2**19  # numbers in one table of points by kernels, so that it stays in cache


def density(distribution: Distribution, x: ArrayLike) -> Floats:
    """Return the probability density at the durations `x` (seconds), in 1/s, in the shape of `x`.

    Raises:
        InputError: the distribution has single values of positive probability (a constant, an
            empirical or recorded one, one without spread), so no density.
    """
    return np.exp(log_density(distribution, x))


def log_density(distribution: Distribution, x: ArrayLike) -> Floats:
    """Return the logarithm of `density`, which is accurate far into the tails."""
    points = _points(x)
    _check_spread(distribution)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):
        logarithm = _log_density(distribution, np.maximum(points, 0.0))
    return np.where((points < 0) | (points == np.inf), -np.inf, logarithm)


def cumulative(distribution: Distribution, x: ArrayLike) -> Floats:
    """Return the probability of a duration of at most `x` (seconds), in the shape of `x`."""
    points = _points(x)
    _check_spread(distribution)
    with np.errstate(divide="ignore", over="ignore"):
        probability = _cumulative(distribution, np.maximum(points, 0.0))
    return np.where(points < 0, 0.0, probability)


def _points(x: ArrayLike) -> Floats:
    refuse_masked(x, "durations")
    try:
        return np.asarray(x, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        raise InputError("durations must be numbers of seconds") from None


def _check_spread(distribution: Distribution) -> None:
    match distribution:
        case Scaled(base=base):
            return _check_spread(base)
        case Slowdown(base=base, factor=factor, probability=probability):
            if factor > 0 or probability == 0:
                return _check_spread(base)
            has_density = False
        case Uniform(low, high):
            has_density = high > low
        case Normal(sd=spread) | Exponential(mu=spread) | Gamma(mu=spread) | Weibull(mu=spread):
            has_density = spread > 0
        case Lognormal(median, sigma):
            has_density = median > 0 and sigma > 0
        case KernelDensity() | LogKernelDensity():
            has_density = distribution._width > 0
        case _:
            has_density = False
    if not has_density:
        raise InputError(
            f"a {distribution.name} has single values of positive probability, so no density"
        )
    return None


def _log_density(distribution: Distribution, x: Floats) -> Floats:
    from scipy.special import gammaln, log_ndtr, xlogy

    match distribution:
        case Scaled(base, speed):
            return math.log(speed) + _log_density(base, x * speed)
        case Slowdown(base, factor, probability):
            usual = np.log1p(-probability) + _log_density(base, x)
            if probability == 0:
                return np.asarray(usual)
            slow = math.log(probability / factor) + _log_density(base, x / factor)
            return np.asarray(np.logaddexp(usual, slow))
        case Uniform(low, high):
            return np.where((low <= x) & (x <= high), -math.log(high - low), -np.inf)
        case Normal(mu, sd):
            z = (x - mu) / sd
            return np.asarray(-(z**2) / 2 - math.log(sd * _ROOT_TWO_PI) - log_ndtr(mu / sd))
        case Lognormal(median, sigma):
            z = np.log(x / median) / sigma
            return np.where(
                x > 0, -(z**2) / 2 - np.log(x) - math.log(sigma * _ROOT_TWO_PI), -np.inf
            )
        case Exponential(mu):
            return np.asarray(-x / mu - math.log(mu))
        case Gamma(mu, shape):
            scale = mu / shape
            t = x / scale
            return np.asarray(xlogy(shape - 1, t) - t - gammaln(shape) - math.log(scale))
        case Weibull(mu, shape):
            scale = mu / math.gamma(1 + 1 / shape)
            t = x / scale
            return np.asarray(math.log(shape / scale) + xlogy(shape - 1, t) - t**shape)
        case KernelDensity() | LogKernelDensity():
            return _kernel_log_density(distribution, x)
    raise AssertionError(distribution)


def leave_one_out_log_density(distribution: KernelDensity | LogKernelDensity) -> Floats:
    """Return the log-density at each sample under the kernels of all the others, shape (n,)."""
    samples = distribution._array
    return _kernel_log_density(distribution, samples, own=np.arange(samples.size))


def _kernel_log_density(
    distribution: KernelDensity | LogKernelDensity, x: Floats, own: NDArray[np.intp] | None = None
) -> Floats:
    """Return the log-density at `x`; with `own`, without one kernel at each point, its number."""
    from scipy.special import log_ndtr

    width = distribution._width
    samples = distribution._array
    logarithmic = isinstance(distribution, LogKernelDensity)
    centers = np.log(samples) if logarithmic else samples
    weights = np.zeros_like(samples) if logarithmic else -log_ndtr(samples / width)
    # A log-density of -inf at 0, without a logarithm of it.
    points = np.log(np.maximum(x.ravel(), np.finfo(float).tiny)) if logarithmic else x.ravel()
    result = np.empty(points.size)
    for block in _blocks(points.size, centers.size):
        exponents = ((points[block, None] - centers) * (math.sqrt(0.5) / width)) ** 2
        np.subtract(weights, exponents, out=exponents)
        if own is not None:
            exponents[np.arange(len(exponents)), own[block]] = -np.inf
        largest = exponents.max(axis=1)
        np.exp(exponents - largest[:, None], out=exponents)
        result[block] = largest + np.log(exponents.sum(axis=1))
    kernels = centers.size if own is None else centers.size - 1
    result -= math.log(kernels * width * _ROOT_TWO_PI)
    if logarithmic:
        result = np.where(x.ravel() > 0, result - points, -np.inf)
    return result.reshape(x.shape)


def _blocks(points: int, kernels: int) -> Iterator[slice]:
    """Yield blocks of points whose table by `kernels` is of a bounded size."""
    size = max(1, _BLOCK // kernels)
    return (slice(first, first + size) for first in range(0, points, size))


def _cumulative(distribution: Distribution, x: Floats) -> Floats:
    from scipy.special import gammainc, ndtr

    match distribution:
        case Scaled(base, speed):
            return _cumulative(base, x * speed)
        case Slowdown(base, factor, probability):
            usual = _cumulative(base, x)
            if probability == 0:
                return usual
            return (1 - probability) * usual + probability * _cumulative(base, x / factor)
        case Uniform(low, high):
            return np.clip((x - low) / (high - low), 0.0, 1.0)
        case Normal(mu, sd):
            return np.asarray((ndtr((x - mu) / sd) - ndtr(-mu / sd)) / ndtr(mu / sd))
        case Lognormal(median, sigma):
            return np.asarray(ndtr(np.log(x / median) / sigma))
        case Exponential(mu):
            return np.asarray(-np.expm1(-x / mu))
        case Gamma(mu, shape):
            return np.asarray(gammainc(shape, x * (shape / mu)))
        case Weibull(mu, shape):
            scale = mu / math.gamma(1 + 1 / shape)
            return np.asarray(-np.expm1(-((x / scale) ** shape)))
        case KernelDensity() | LogKernelDensity():
            return _kernel_cumulative(distribution, x)
    raise AssertionError(distribution)


def _kernel_cumulative(distribution: KernelDensity | LogKernelDensity, x: Floats) -> Floats:
    from scipy.special import ndtr

    width = distribution._width
    samples = distribution._array
    logarithmic = isinstance(distribution, LogKernelDensity)
    centers = np.log(samples) if logarithmic else samples
    points = np.log(x.ravel()) if logarithmic else x.ravel()
    below = np.zeros_like(samples) if logarithmic else ndtr(-samples / width)
    result = np.empty(points.size)
    for block in _blocks(points.size, centers.size):
        shares = (ndtr((points[block, None] - centers) / width) - below) / (1 - below)
        result[block] = shares.mean(axis=1)
    return result.reshape(x.shape)
