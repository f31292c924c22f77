"""The parametric families. The first parameter is a typical duration, the second one a spread."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import repeat
from typing import ClassVar

import numpy as np

from paracosm.errors import InputError
from paracosm.timing.distribution import DURATION, NUMBER, Array, Distribution, Parameter

__all__ = [
    "LARGEST_SIGMA",
    "Constant",
    "Exponential",
    "Gamma",
    "Lognormal",
    "Normal",
    "Uniform",
    "Weibull",
    "truncated_normal",
    "truncated_normal_mean",
]

# Of a logarithm. Beyond, means overflow; long before, one draw in six is 20,000 times the median.
LARGEST_SIGMA = 10.0
_LEAST_WEIBULL_SHAPE = 0.01  # for the same reason


@dataclass(frozen=True)
class Constant(Distribution):
    """Always `value`: the twin that lets a test compute the answer by hand."""

    value: float
    name: ClassVar[str] = "constant"
    parameters: ClassVar[dict[str, Parameter]] = {"value": DURATION}

    def __post_init__(self) -> None:
        self._check("value", self.value)

    def from_uniform(self, uniform: Array) -> Array:
        return np.full_like(uniform, self.value)

    def draws(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield the value for ever, without touching `rng`."""
        return repeat(self.value)

    def mean(self) -> float:
        return self.value


@dataclass(frozen=True)
class Uniform(Distribution):
    """Equally likely anywhere from `low` to `high`."""

    low: float
    high: float
    name: ClassVar[str] = "uniform"
    parameters: ClassVar[dict[str, Parameter]] = {"low": DURATION, "high": DURATION}

    def __post_init__(self) -> None:
        self._check("low", self.low)
        self._check("high", self.high)
        if self.high < self.low:
            raise InputError(f"uniform: high must be at least low ({self.low}), not {self.high}")

    def from_uniform(self, uniform: Array) -> Array:
        return self.low + (self.high - self.low) * uniform

    def mean(self) -> float:
        return self.low + (self.high - self.low) / 2


@dataclass(frozen=True)
class Normal(Distribution):
    """A normal of mean `mu` and standard deviation `sd`, truncated at 0.

    `mu` and `sd` are those before truncation, which raises the mean; `mean()` says to how much.
    """

    mu: float
    sd: float
    name: ClassVar[str] = "normal"
    parameters: ClassVar[dict[str, Parameter]] = {"mean": DURATION, "sd": DURATION}

    def __post_init__(self) -> None:
        self._check("mean", self.mu)
        self._check("sd", self.sd)

    def from_uniform(self, uniform: Array) -> Array:
        return truncated_normal(uniform, self.mu, self.sd)

    def mean(self) -> float:
        return float(truncated_normal_mean(self.mu, self.sd))


@dataclass(frozen=True)
class Lognormal(Distribution):
    """`median * exp(sigma * Z)`, Z standard normal: a small `sigma` is the relative spread."""

    median: float
    sigma: float
    name: ClassVar[str] = "lognormal"
    parameters: ClassVar[dict[str, Parameter]] = {"median": DURATION, "sigma": NUMBER}

    def __post_init__(self) -> None:
        self._check("median", self.median)
        self._check("sigma", self.sigma, most=LARGEST_SIGMA)

    def from_uniform(self, uniform: Array) -> Array:
        from scipy.special import ndtri

        return np.asarray(self.median * np.exp(self.sigma * ndtri(uniform)))

    def mean(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2)


@dataclass(frozen=True)
class Exponential(Distribution):
    """Memoryless, of mean `mu`."""

    mu: float
    name: ClassVar[str] = "exponential"
    parameters: ClassVar[dict[str, Parameter]] = {"mean": DURATION}

    def __post_init__(self) -> None:
        self._check("mean", self.mu)

    def from_uniform(self, uniform: Array) -> Array:
        return -self.mu * np.log1p(-uniform)

    def mean(self) -> float:
        return self.mu


@dataclass(frozen=True)
class Gamma(Distribution):
    """Gamma of mean `mu`: `shape` exponential stages in a row; relative spread 1/sqrt(shape)."""

    mu: float
    shape: float
    name: ClassVar[str] = "gamma"
    parameters: ClassVar[dict[str, Parameter]] = {"mean": DURATION, "shape": NUMBER}

    def __post_init__(self) -> None:
        self._check("mean", self.mu)
        self._check("shape", self.shape, positive=True)

    def from_uniform(self, uniform: Array) -> Array:
        from scipy.special import gammaincinv

        return np.asarray(gammaincinv(self.shape, uniform) * (self.mu / self.shape))

    def mean(self) -> float:
        return self.mu


@dataclass(frozen=True)
class Weibull(Distribution):
    """Weibull of mean `mu`: a heavy tail for `shape` < 1, exponential at 1, a light one above."""

    mu: float
    shape: float
    name: ClassVar[str] = "weibull"
    parameters: ClassVar[dict[str, Parameter]] = {"mean": DURATION, "shape": NUMBER}

    def __post_init__(self) -> None:
        self._check("mean", self.mu)
        self._check("shape", self.shape)
        if self.shape < _LEAST_WEIBULL_SHAPE:
            raise InputError(f"weibull: shape must be at least 0.01, not {self.shape}")

    def from_uniform(self, uniform: Array) -> Array:
        scale = self.mu / math.gamma(1 + 1 / self.shape)
        return np.asarray(scale * (-np.log1p(-uniform)) ** (1 / self.shape))

    def mean(self) -> float:
        return self.mu


def truncated_normal(uniform: Array, mu: float | Array, sd: float) -> Array:
    """Return draws of a normal (`mu` >= 0, `sd`), given that it is at least 0, by inversion.

    The upper tail is inverted, `mu - sd * Phi^-1((1 - u) * Phi(mu / sd))`, because that is where
    the digits are needed.
    """
    from scipy.special import ndtr, ndtri

    if sd == 0:
        return np.zeros_like(uniform) + mu
    draws = mu - sd * ndtri((1 - uniform) * ndtr(mu / sd))
    return np.asarray(np.maximum(draws, 0.0))


def truncated_normal_mean(mu: float | Array, sd: float) -> Array:
    """Return the mean of a normal (`mu` >= 0, `sd`), given that it is at least 0.

    It is `mu + sd * phi(mu / sd) / Phi(mu / sd)`; see Johnson, Kotz, Balakrishnan, "Continuous
    Univariate Distributions", volume 1, section 13.10.1.
    """
    from scipy.special import ndtr

    center = np.asarray(mu, dtype=float)
    if sd == 0:
        return center
    z = center / sd
    density = np.exp(-(z**2) / 2) / math.sqrt(2 * math.pi)
    return np.asarray(center + sd * density / ndtr(z))
