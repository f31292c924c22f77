"""Choose between families of distributions for measured durations."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError, unknown
from paracosm.timing.distribution import Array, Distribution
from paracosm.timing.families import Constant
from paracosm.timing.fit import MOST_KERNELS, checked_durations, fit
from paracosm.timing.fit_density import cumulative, left_out_log_density, log_density
from paracosm.timing.samples import KernelDensity, LogKernelDensity

__all__ = ["Fit", "best_fit", "compare_fits"]

_POSITIVE = ("lognormal", "gamma", "weibull", "log_kernel_density")
_CONTINUOUS = ("uniform", "normal", "exponential", "kernel_density", *_POSITIVE)
_STRANGERS = 0.01  # the share of samples that the score allows to come from somewhere else


@dataclass(frozen=True)
class Fit:
    """A fitted distribution, and how well it fits.

    Attributes:
        distribution: what was fitted.
        family: its name, such as "lognormal".
        log_likelihood: mean of log(density) over the samples, the density in 1/s; a kernel density
            leaves each sample out of its own.
        score: the same for samples that the fit has not seen, estimated; the higher the better.
        ks: the Kolmogorov-Smirnov distance, the largest between the cumulative distributions.
    """

    distribution: Distribution
    family: str
    log_likelihood: float
    score: float
    ks: float


def best_fit(
    samples: Sequence[float] | NDArray[np.floating], families: Sequence[str] = _CONTINUOUS
) -> Fit:
    """Return the fit of highest `score` to the `samples` (seconds); a constant if all are equal.

    Raises:
        InputError: as `compare_fits`.
    """
    values = checked_durations(samples)
    if values.min() == values.max():
        return Fit(Constant(float(values[0])), "constant", math.inf, math.inf, 0.0)
    return compare_fits(values, families)[0]


def compare_fits(
    samples: Sequence[float] | NDArray[np.floating], families: Sequence[str] = _CONTINUOUS
) -> list[Fit]:
    """Return the fits of the `families` to the `samples` (seconds), the best first.

    A family that has no 0 is left out where a sample is 0.

    The score of a family with k parameters is Akaike's, (log-likelihood - k) / n. A kernel density
    leaves each sample out of its own density. Both estimate the mean log(density) of new samples
    (Stone, "An asymptotic equivalence of choice of model by cross-validation and Akaike's
    criterion", 1977). One sample in a hundred is allowed to come from somewhere else, anywhere from
    0 to the largest: else a few outliers decide, far from all kernels but their own. Likelihood and
    score are of at most `MOST_KERNELS` samples, drawn with a fixed seed.

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


def _judged(values: Array, family: str) -> Fit:
    distribution = fit(values, family)
    some = values
    if values.size > MOST_KERNELS:  # the same ones for every family
        some = np.random.default_rng(0).choice(values, MOST_KERNELS, replace=False)
    if isinstance(distribution, KernelDensity | LogKernelDensity):
        through_some = replace(distribution, samples=tuple(some.tolist()))
        logarithms, parameters = left_out_log_density(through_some), 0
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


def _kolmogorov_smirnov(values: Array, distribution: Distribution) -> float:
    """Return the largest distance, to within 0.001 where there are over 1,000 samples."""
    ordered = np.sort(values)
    ranks = np.unique(np.linspace(0, values.size - 1, min(values.size, 1001)).astype(int))
    at = ordered[ranks]
    fitted = cumulative(distribution, at)
    until = np.searchsorted(ordered, at, side="right") / values.size
    before = np.searchsorted(ordered, at, side="left") / values.size
    return float(max(np.max(until - fitted), np.max(fitted - before)))
