"""Distributions given by measured samples: resampled, smoothed, or replayed in order."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import cycle, islice
from typing import ClassVar, overload

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.timing.distribution import (
    DURATION,
    FLAG,
    NUMBER,
    Array,
    Distribution,
    Parameter,
    inside,
)
from paracosm.timing.families import LARGEST_SIGMA, truncated_normal, truncated_normal_mean

__all__ = ["Empirical", "KernelDensity", "LogKernelDensity", "Recorded", "SampleDistribution"]


@dataclass(frozen=True)
class SampleDistribution(Distribution):
    """What the classes below have in common: their `samples`, in seconds.

    They are written as `name(20ms, 21ms, ...)`, followed by the options that were given. A string
    may name a file instead, `name(file.json)`; it is read when the string is parsed.
    """

    samples: tuple[float, ...]

    def __post_init__(self) -> None:
        if not self.samples:
            raise InputError(f"{self.name}: at least one duration is needed")
        for sample in self.samples:
            self._check("every duration", sample)

    def mean(self) -> float:
        return math.fsum(self.samples) / len(self.samples)

    def __str__(self) -> str:
        arguments = [DURATION.format(sample) for sample in self.samples]
        for key, kind in self.parameters.items():
            if value := getattr(self, key):  # not None or False, which say nothing
                arguments.append(f"{key}={kind.format(value)}")
        return f"{self.name}({', '.join(arguments)})"

    @cached_property
    def _array(self) -> Array:
        return np.asarray(self.samples)


@dataclass(frozen=True)
class Empirical(SampleDistribution):
    """One of the `samples`, each equally likely."""

    name: ClassVar[str] = "empirical"
    parameters: ClassVar[dict[str, Parameter]] = {}

    def from_uniform(self, uniform: Array) -> Array:
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
            self._check("bandwidth", self.bandwidth, positive=True)

    def from_uniform(self, uniform: Array) -> Array:
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
            self._check("bandwidth", self.bandwidth, positive=True, most=LARGEST_SIGMA)

    def from_uniform(self, uniform: Array) -> Array:
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


def robust_bandwidth(values: Array) -> float:
    """Return `0.9 * 1.4826 * MAD * n^(-1/5)`, Silverman's rule with a spread that ignores tails.

    Source: Silverman, "Density Estimation for Statistics and Data Analysis", 1986, eq. 3.31. Its
    standard deviation is blown up by a long tail, and the density smeared; the median absolute
    deviation (MAD) is not. The result is 0, no smoothing, where over half of the values are equal.
    """
    deviation = float(np.median(np.abs(values - np.median(values))))
    return 0.9 * 1.4826 * deviation / math.pow(len(values), 0.2)


def _split(uniform: Array, count: int) -> tuple[NDArray[np.intp], Array]:
    """Return an index below `count` and a fresh uniform number, both from one `uniform`."""
    scaled = uniform * count
    index = np.minimum(scaled.astype(np.intp), count - 1)
    return index, inside(scaled - index)


@dataclass(frozen=True)
class Recorded(SampleDistribution):
    """The `samples` themselves, in order; then an error, or with `cycle` the first one again.

    A replay has a place, so it is read through `sampler`: each sampler starts at the beginning.
    """

    cycle: bool = False
    name: ClassVar[str] = "recorded"
    parameters: ClassVar[dict[str, Parameter]] = {"cycle": FLAG}

    @overload
    def sample(self, rng: np.random.Generator) -> float: ...
    @overload
    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array: ...

    def sample(
        self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None
    ) -> float | Array:
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

    def from_uniform(self, uniform: Array) -> Array:
        raise TypeError("a recording has a place: take its draws from sampler(rng)")
