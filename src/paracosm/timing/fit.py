"""Fit a distribution of a given family to measured durations, by maximum likelihood."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from paracosm.arrays import Bools, Floats, refuse_masked
from paracosm.errors import InputError, unknown
from paracosm.timing.density import cumulative, leave_one_out_log_density, log_density
from paracosm.timing.distribution import Distribution
from paracosm.timing.families import (
    Constant,
    Empirical,
    Exponential,
    Gamma,
    KernelDensity,
    LogKernelDensity,
    Lognormal,
    Normal,
    Uniform,
    Weibull,
    robust_bandwidth,
)
from paracosm.units import format_duration

Samples = Sequence[float] | NDArray[np.floating]

_POSITIVE = ("lognormal", "gamma", "weibull", "log_kernel_density")
_CONTINUOUS = ("uniform", "normal", "exponential", "kernel_density", *_POSITIVE)
_STRANGERS = 0.01  # the share of samples that the score allows to come from somewhere else


@dataclass(frozen=True)
class Fit:
    """A fitted distribution, and how well it fits."""

    distribution: Distribution
    family: str  # "lognormal", ...
    # mean log(density), 1/s; a kernel density leaves each sample out of its own
    log_likelihood: float
    score: float  # the same for unseen samples, estimated; the higher the better
    ks: float  # the Kolmogorov-Smirnov distance


def best_fit(samples: Samples, families: Sequence[str] = _CONTINUOUS) -> Fit:
    """Return the fit of highest `score` to the `samples` (seconds); a constant if all are equal.

    Raises:
        InputError: as `compare_fits`.
    """
    values = checked_durations(samples)
    if values.min() == values.max():
        return Fit(Constant(float(values[0])), "constant", math.inf, math.inf, 0.0)
    return compare_fits(values, families)[0]


def compare_fits(samples: Samples, families: Sequence[str] = _CONTINUOUS) -> list[Fit]:
    """Return the fits of the `families` to the `samples` (seconds), the best first.

    If a sample is 0, families whose density is 0 or infinite there are left out.

    The score of a family with k parameters is Akaike's, (log-likelihood - k) / n. A kernel density
    leaves each sample out of its own density. Both estimate the mean log(density) of new samples
    (Stone, "An asymptotic equivalence of choice of model by cross-validation and Akaike's
    criterion", 1977). One sample in a hundred may be an outlier, anywhere from 0 to the largest:
    otherwise a few outliers decide, far from all kernels but their own. Likelihood and score are of
    at most `MOST_KERNELS` samples, drawn with a fixed seed.

    Raises:
        InputError: as `fit`; a family without a density; no family is left.
    """
    values = checked_durations(samples)
    for family in families:
        if family not in _CONTINUOUS:
            raise unknown("family with a density", family, _CONTINUOUS)
    able = [family for family in families if family not in _POSITIVE or values.min() > 0]
    if not able:
        names = ", ".join(families) or "no family"
        raise InputError(f"samples[{np.argmin(values)}] is 0, which {names} never is; use normal")
    return sorted((_judged(values, family) for family in able), key=lambda each: -each.score)


def _judged(values: Floats, family: str) -> Fit:
    distribution = fit(values, family)
    some = values
    if values.size > MOST_KERNELS:  # the same ones for every family
        some = np.random.default_rng(0).choice(values, MOST_KERNELS, replace=False)
    if isinstance(distribution, KernelDensity | LogKernelDensity):
        through_some = replace(distribution, samples=tuple(some.tolist()))
        logarithms, parameters = leave_one_out_log_density(through_some), 0
    else:
        logarithms = log_density(distribution, some)
        parameters = len(distribution.parameters)
    background = math.log(_STRANGERS / values.max())
    unseen = np.mean(np.logaddexp(math.log1p(-_STRANGERS) + logarithms, background))
    return Fit(
        distribution,
        family,
        log_likelihood=float(np.mean(logarithms)),
        score=float(unseen - parameters / values.size),
        ks=_kolmogorov_smirnov(values, distribution),
    )


def _kolmogorov_smirnov(values: Floats, distribution: Distribution) -> float:
    """Return the largest distance, to within 0.001 if there are over 1,000 samples."""
    ordered = np.sort(values)
    ranks = np.unique(np.linspace(0, values.size - 1, min(values.size, 1001)).astype(int))
    at = ordered[ranks]
    fitted = cumulative(distribution, at)
    until = np.searchsorted(ordered, at, side="right") / values.size
    before = np.searchsorted(ordered, at, side="left") / values.size
    return float(max(np.max(until - fitted), np.max(fitted - before)))


MOST_KERNELS = 4096  # of a fitted kernel density
_NO_MASS_BELOW_0 = 9.0  # standard deviations; Phi(-9) is 1e-19


def fit(samples: Samples, family: str) -> Distribution:
    """Return the distribution of the `family` that fits the `samples` (seconds) best.

    Uniform, normal (truncated at 0), lognormal, exponential, gamma and weibull are fitted by
    maximum likelihood; a constant is the mean. An empirical distribution keeps every sample. A
    kernel density keeps at most `MOST_KERNELS`, or as many even quantiles; its bandwidth is
    `robust_bandwidth` of all samples (of their logarithms), or of the distinct ones if more than
    half are equal.

    Raises:
        InputError: no samples; one that is negative, infinite or NaN, or 0 where the family has no
            0 (with its position); all equal, for a family with a spread; an unknown family.
    """
    if family not in _FITS:
        raise unknown("family", family, _FITS)
    values = checked_durations(samples)
    if family not in ("constant", "empirical") and values.min() == values.max():
        raise _no_spread(values, family)
    return _FITS[family](values)


def checked_durations(samples: Samples) -> Floats:
    """Return the samples as an array of shape (n,), n > 0; refuse the first that is no duration."""
    refuse_masked(samples, "samples")
    try:
        values = np.asarray(samples, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("samples must be numbers of seconds") from None
    if values.ndim != 1:
        raise InputError(f"samples must be one list of seconds, not of shape {values.shape}")
    if values.size == 0:
        raise InputError("there are no samples to fit")
    _refuse(values, ~(np.isfinite(values) & (values >= 0)), "not a duration in seconds")
    return values


def _refuse(values: Floats, wrong: Bools, why: str) -> None:
    """Raise the error for the first of `values` that is `wrong`."""
    if wrong.any():
        position = int(np.argmax(wrong))
        raise InputError(f"samples[{position}] is {values[position]:g}, {why}")


def _no_spread(values: Floats, family: str) -> InputError:
    return InputError(
        f"{family}: all {values.size} samples are {format_duration(float(values[0]))}, "
        "which leaves no spread to fit; use constant"
    )


def _logarithms(values: Floats, family: str) -> Floats:
    _refuse(values, values == 0, f"which a {family} never is; use normal or kernel_density")
    logarithms = np.log(values)
    if logarithms.min() == logarithms.max():  # of samples that differ in their last digits
        raise _no_spread(values, family)
    return logarithms


def _fit_normal(values: Floats) -> Normal:
    """Return the truncated normal whose mean and mean square are the samples'.

    For a member of an exponential family that is maximum likelihood. With z = mu / sd and
    m = phi(z) / Phi(z), they are sd (z + m) and sd^2 (1 + z^2 + z m); see Johnson, Kotz,
    Balakrishnan, "Continuous Univariate Distributions", volume 1, section 13.10.1. Their ratio
    determines z; samples with more spread than a half-normal's get mu = 0, the nearest possible.
    """
    from scipy.optimize import brentq
    from scipy.special import log_ndtr

    mean, sd = float(values.mean()), float(values.std())
    if mean > _NO_MASS_BELOW_0 * sd:
        return Normal(mean, sd)

    def excess(z: float) -> float:
        m = math.exp(-(z**2) / 2 - log_ndtr(z)) / math.sqrt(2 * math.pi)
        return (1 + z**2 + z * m) / (z + m) ** 2 - (1 + (sd / mean) ** 2)

    z = brentq(excess, 0.0, _NO_MASS_BELOW_0 + 1, xtol=1e-14) if excess(0.0) > 0 else 0.0
    if z == 0.0:
        return Normal(0.0, math.sqrt(float(np.mean(values**2))))
    m = math.exp(-(z**2) / 2 - log_ndtr(z)) / math.sqrt(2 * math.pi)
    return Normal(z * mean / (z + m), mean / (z + m))


def _fit_lognormal(values: Floats) -> Lognormal:
    logarithms = _logarithms(values, "lognormal")
    return Lognormal(math.exp(logarithms.mean()), float(logarithms.std()))


def _fit_gamma(values: Floats) -> Gamma:
    """Solve log(shape) - digamma(shape) = log(mean x) - mean(log x).

    Johnson, Kotz, Balakrishnan, volume 1, section 17.7.2.
    """
    from scipy.optimize import brentq
    from scipy.special import digamma

    logarithms = _logarithms(values, "gamma")
    mean = float(values.mean())
    off = (values - mean) / mean
    # log(x / mean), without the cancellation of nearly equal samples.
    relative = np.where(off < -0.5, logarithms - math.log(mean), np.log1p(np.maximum(off, -0.5)))
    right = float(np.mean(off - relative))
    if right <= 0:
        raise _no_spread(values, "gamma")

    def excess(log_shape: float) -> float:
        shape = math.exp(log_shape)
        if shape > 1e6:  # the first terms of digamma's expansion, for the same reason
            return 1 / (2 * shape) + 1 / (12 * shape**2) - right
        return float(log_shape - digamma(shape)) - right

    # 1 / (2 shape) < log(shape) - digamma(shape) < 1 / shape.
    low, high = math.log(0.5 / right) - 0.01, math.log(1 / right) + 0.01
    return Gamma(mean, math.exp(brentq(excess, low, high, xtol=1e-14)))


def _fit_weibull(values: Floats) -> Weibull:
    """Solve sum(x^k log x) / sum(x^k) - 1 / k = mean(log x) for the shape k.

    Johnson, Kotz, Balakrishnan, volume 1, section 21.4.1.
    """
    from scipy.optimize import brentq

    logarithms = _logarithms(values, "weibull")
    largest = logarithms.max()
    below = logarithms - largest  # so that no power overflows
    mean = below.mean()

    def excess(shape: float) -> float:
        powers = np.exp(shape * below)
        return float(powers @ below / powers.sum() - 1 / shape - mean)

    low = high = math.pi / math.sqrt(6) / float(logarithms.std())  # the method of moments
    while excess(low) > 0:
        low /= 2
    while excess(high) < 0:
        high *= 2
    shape = brentq(excess, low, high, rtol=1e-13) if low < high else low
    scale = math.exp(largest + math.log(np.mean(np.exp(shape * below))) / shape)
    return Weibull(scale * math.gamma(1 + 1 / shape), shape)


def _fit_log_kernels(values: Floats) -> LogKernelDensity:
    logarithms = _logarithms(values, "log_kernel_density")
    return LogKernelDensity(_even_quantiles(values), _bandwidth(logarithms))


def _bandwidth(values: Floats) -> float:
    return robust_bandwidth(values) or robust_bandwidth(np.unique(values))


def _even_quantiles(values: Floats) -> tuple[float, ...]:
    """Return the values, or the middles of `MOST_KERNELS` equally populated ranges of them."""
    if values.size > MOST_KERNELS:
        ranks = ((np.arange(MOST_KERNELS) + 0.5) * values.size / MOST_KERNELS).astype(np.intp)
        values = np.partition(values, ranks)[ranks]
    return tuple(values.tolist())


_FITS: dict[str, Callable[[Floats], Distribution]] = {
    "constant": lambda values: Constant(float(values.mean())),
    "uniform": lambda values: Uniform(float(values.min()), float(values.max())),
    "normal": _fit_normal,
    "lognormal": _fit_lognormal,
    "exponential": lambda values: Exponential(float(values.mean())),
    "gamma": _fit_gamma,
    "weibull": _fit_weibull,
    "empirical": lambda values: Empirical(tuple(values.tolist())),
    "kernel_density": lambda values: KernelDensity(_even_quantiles(values), _bandwidth(values)),
    "log_kernel_density": _fit_log_kernels,
}
