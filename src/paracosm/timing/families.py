"""The parametric families. The first parameter is a typical duration, the second one a spread."""

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from itertools import cycle, islice, repeat
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from paracosm.arrays import Floats
from paracosm.errors import InputError
from paracosm.timing.distribution import DURATION, FLAG, NUMBER, Distribution, Parameter, inside

# Of a logarithm. Beyond, means overflow; long before, one draw in six is 20,000 times the median.
LARGEST_SIGMA = 10.0
_LEAST_WEIBULL_SHAPE = 0.01  # for the same reason


class _Family(Distribution):
    """A parametric family, whose parameters are all finite and 0 or more."""

    def __post_init__(self) -> None:
        for parameter, field in zip(self.parameters, fields(cast(Any, self)), strict=True):
            self._check(field.name, parameter)


@dataclass(frozen=True)
class Constant(_Family):
    """Always `value`: the twin that lets a test compute the answer by hand."""

    value: float
    name: ClassVar[str] = "constant"
    parameters: ClassVar[dict[str, Parameter]] = {"value": DURATION}

    def from_uniform(self, uniform: Floats) -> Floats:
        return np.full_like(uniform, self.value)

    def draws(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield the value without end, without touching `rng`."""
        return repeat(self.value)

    def mean(self) -> float:
        return self.value


@dataclass(frozen=True)
class Uniform(_Family):
    """Equally likely anywhere from `low` to `high`."""

    low: float
    high: float
    name: ClassVar[str] = "uniform"
    parameters: ClassVar[dict[str, Parameter]] = {"low": DURATION, "high": DURATION}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.high < self.low:
            raise InputError(f"uniform: high must be at least low ({self.low}), not {self.high}")

    def from_uniform(self, uniform: Floats) -> Floats:
        return self.low + (self.high - self.low) * uniform

    def mean(self) -> float:
        return self.low + (self.high - self.low) / 2


@dataclass(frozen=True)
class Normal(_Family):
    """A normal of mean `mu` and standard deviation `sd`, truncated at 0.

    `mu` and `sd` are those before truncation, which raises the mean to `mean()`.
    """

    mu: float
    sd: float
    name: ClassVar[str] = "normal"
    parameters: ClassVar[dict[str, Parameter]] = {"mean": DURATION, "sd": DURATION}

    def from_uniform(self, uniform: Floats) -> Floats:
        return truncated_normal(uniform, self.mu, self.sd)

    def mean(self) -> float:
        return float(truncated_normal_mean(self.mu, self.sd))


@dataclass(frozen=True)
class Lognormal(_Family):
    """`median * exp(sigma * Z)`, Z standard normal: a small `sigma` is the relative spread."""

    median: float
    sigma: float
    name: ClassVar[str] = "lognormal"
    parameters: ClassVar[dict[str, Parameter]] = {"median": DURATION, "sigma": NUMBER}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("sigma", most=LARGEST_SIGMA)

    def from_uniform(self, uniform: Floats) -> Floats:
        from scipy.special import ndtri

        return np.asarray(self.median * np.exp(self.sigma * ndtri(uniform)))

    def mean(self) -> float:
        return self.median * math.exp(self.sigma**2 / 2)


@dataclass(frozen=True)
class Exponential(_Family):
    """Memoryless, of mean `mu`."""

    mu: float
    name: ClassVar[str] = "exponential"
    parameters: ClassVar[dict[str, Parameter]] = {"mean": DURATION}

    def from_uniform(self, uniform: Floats) -> Floats:
        return -self.mu * np.log1p(-uniform)

    def mean(self) -> float:
        return self.mu


@dataclass(frozen=True)
class Gamma(_Family):
    """Gamma of mean `mu`: `shape` exponential stages in a row; relative spread 1/sqrt(shape)."""

    mu: float
    shape: float
    name: ClassVar[str] = "gamma"
    parameters: ClassVar[dict[str, Parameter]] = {"mean": DURATION, "shape": NUMBER}

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check("shape", positive=True)

    def from_uniform(self, uniform: Floats) -> Floats:
        from scipy.special import gammaincinv

        return np.asarray(gammaincinv(self.shape, uniform) * (self.mu / self.shape))

    def mean(self) -> float:
        return self.mu


@dataclass(frozen=True)
class Weibull(_Family):
    """Weibull of mean `mu`: a heavy tail for `shape` < 1, exponential at 1, a light one above."""

    mu: float
    shape: float
    name: ClassVar[str] = "weibull"
    parameters: ClassVar[dict[str, Parameter]] = {"mean": DURATION, "shape": NUMBER}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.shape < _LEAST_WEIBULL_SHAPE:
            raise InputError(f"weibull: shape must be at least 0.01, not {self.shape}")

    def from_uniform(self, uniform: Floats) -> Floats:
        scale = self.mu / math.gamma(1 + 1 / self.shape)
        return np.asarray(scale * (-np.log1p(-uniform)) ** (1 / self.shape))

    def mean(self) -> float:
        return self.mu


def truncated_normal(uniform: Floats, mu: float | Floats, sd: float) -> Floats:
    """Return draws of a normal (`mu` >= 0, `sd`) above 0, by its upper tail, which keeps digits."""
    from scipy.special import ndtr, ndtri

    if sd == 0:
        return np.zeros_like(uniform) + mu
    draws = mu - sd * ndtri((1 - uniform) * ndtr(mu / sd))
    return np.asarray(np.maximum(draws, 0.0))


def truncated_normal_mean(mu: float | Floats, sd: float) -> Floats:
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


@dataclass(frozen=True)
class SampleDistribution(Distribution):
    """The common part of distributions by their `samples`, in seconds.

    Their text is `name(20ms, 21ms, ...)`, followed by non-default options. A string may name a file
    instead, `name(file.json)`; it is read when the string is parsed.
    """

    samples: tuple[float, ...]

    def __post_init__(self) -> None:
        try:
            given = tuple(self.samples)
        except TypeError:
            raise InputError(f"{self.name}: samples are a list, not {self.samples!r}") from None
        if not given:
            raise InputError(f"{self.name}: at least one duration is needed")
        samples = tuple(self._checked("every duration", sample) for sample in given)
        object.__setattr__(self, "samples", samples)

    def mean(self) -> float:
        return math.fsum(self.samples) / len(self.samples)

    def written(self, quantity: Parameter) -> str:
        arguments = [quantity.format(sample) for sample in self.samples]
        for key, kind in self.parameters.items():
            if value := getattr(self, key):  # not None or False, which say nothing
                form = quantity if kind is DURATION else kind
                arguments.append(f"{key}={form.format(value)}")
        return f"{self.name}({', '.join(arguments)})"

    @cached_property
    def _array(self) -> Floats:
        return np.asarray(self.samples)


@dataclass(frozen=True)
class Empirical(SampleDistribution):
    """One of the `samples`, each equally likely."""

    name: ClassVar[str] = "empirical"
    parameters: ClassVar[dict[str, Parameter]] = {}

    def from_uniform(self, uniform: Floats) -> Floats:
        index, _ = _split(uniform, len(self.samples))
        return self._array[index]


@dataclass(frozen=True)
class KernelDensity(SampleDistribution):
    """One of the `samples` plus Gaussian noise, truncated at 0: a smooth density through them all.

    `bandwidth` is the standard deviation of the noise, in seconds; by default `robust_bandwidth`.
    """

    bandwidth: float | None = None
    name: ClassVar[str] = "kernel_density"
    parameters: ClassVar[dict[str, Parameter]] = {"bandwidth": DURATION}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.bandwidth is not None:
            self._check("bandwidth", positive=True)

    def from_uniform(self, uniform: Floats) -> Floats:
        index, rest = _split(uniform, len(self.samples))
        return truncated_normal(rest, self._array[index], self._width)

    def mean(self) -> float:
        return math.fsum(truncated_normal_mean(self._array, self._width)) / len(self.samples)

    @cached_property
    def _width(self) -> float:
        return robust_bandwidth(self._array) if self.bandwidth is None else self.bandwidth


@dataclass(frozen=True)
class LogKernelDensity(SampleDistribution):
    """One of the `samples` times `exp(bandwidth * Z)`: the kernel density for long tails.

    It is Gaussian on the logarithms, so always positive; `bandwidth` is close to a relative spread,
    by default the `robust_bandwidth` of the logarithms.
    """

    bandwidth: float | None = None
    name: ClassVar[str] = "log_kernel_density"
    parameters: ClassVar[dict[str, Parameter]] = {"bandwidth": NUMBER}

    def __post_init__(self) -> None:
        super().__post_init__()
        if min(self.samples) == 0:
            raise InputError(f"{self.name}: a duration of 0 has no logarithm; use kernel_density")
        if self.bandwidth is not None:
            self._check("bandwidth", positive=True, most=LARGEST_SIGMA)

    def from_uniform(self, uniform: Floats) -> Floats:
        from scipy.special import ndtri

        index, rest = _split(uniform, len(self.samples))
        return np.asarray(self._array[index] * np.exp(self._width * ndtri(rest)))

    def mean(self) -> float:
        return super().mean() * math.exp(self._width**2 / 2)

    @cached_property
    def _width(self) -> float:
        if self.bandwidth is not None:
            return self.bandwidth
        return robust_bandwidth(np.log(self._array))


def robust_bandwidth(values: Floats) -> float:
    """Return `0.9 * 1.4826 * MAD * n^(-1/5)`, Silverman's rule with a spread that ignores tails.

    Source: Silverman, "Density Estimation for Statistics and Data Analysis", 1986, eq. 3.31. A long
    tail inflates its standard deviation, which oversmooths the density, but not the median absolute
    deviation (MAD). The result is 0, no smoothing, if over half of the values are equal.
    """
    deviation = float(np.median(np.abs(values - np.median(values))))
    return 0.9 * 1.4826 * deviation / math.pow(len(values), 0.2)


def _split(uniform: Floats, count: int) -> tuple[NDArray[np.intp], Floats]:
    scaled = uniform * count
    index = np.minimum(scaled.astype(np.intp), count - 1)
    return index, inside(scaled - index)


@dataclass(frozen=True)
class Recorded(SampleDistribution):
    """The `samples` themselves, in order; then an error, or with `cycle` the first one again.

    A replay has a position, so it is read through `sampler`: each sampler starts at the beginning.
    """

    cycle: bool = False
    name: ClassVar[str] = "recorded"
    in_order: ClassVar[bool] = True
    parameters: ClassVar[dict[str, Parameter]] = {"cycle": FLAG}

    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None) -> Any:
        """Return the first values of the recording, in the shape `size`.

        Raises:
            TypeError: no `size`: single draws in order come from `sampler`.
            InputError: the recording has fewer values, and does not cycle.
        """
        if size is None:
            raise TypeError("a recording has a place: take single draws from sampler(rng)")
        count = int(np.prod(size))
        return np.fromiter(islice(self.draws(rng), count), float, count).reshape(size)

    def draws(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield the recording from its beginning; `rng` is not used."""
        if self.cycle:
            yield from cycle(self.samples)
        yield from self.samples
        raise InputError(
            f"the recording is exhausted after {len(self.samples)} durations; "
            "record a longer run, or let it start again with cycle=true"
        )

    def from_uniform(self, uniform: Floats) -> Floats:
        raise TypeError("a recording has a place: take its draws from sampler(rng)")


FAMILIES: dict[str, type[Distribution]] = {
    cls.name: cls
    for cls in (
        *(Constant, Uniform, Normal, Lognormal, Gamma, Exponential, Weibull),
        *(Empirical, KernelDensity, LogKernelDensity, Recorded),
    )
}
