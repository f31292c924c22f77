"""Distributions of durations: maps from one uniform number to one duration.

Every draw consumes exactly one uniform number of the generator. Arrays, blocks fetched ahead and
single draws therefore read the same stream in the same way and give the same values; two
distributions fed by equal generators see common random numbers, which sharpens comparisons.
"""

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from math import inf
from typing import Any, ClassVar, NamedTuple, cast, overload

import numpy as np

from paracosm.arrays import Floats
from paracosm.errors import InputError
from paracosm.quantities import limited_duration
from paracosm.units import format_duration, format_number, parse_number, real

# A sampler starts small, since tens of thousands may exist, and grows while it is used.
_FIRST_BLOCK, _LARGEST_BLOCK = 4, 256


def inside(uniform: Floats) -> Floats:
    """Return `uniform` kept off 0 and 1, where the quantiles of unbounded tails are infinite."""
    return np.clip(uniform, 2.0**-54, 1 - 2.0**-53)


class Parameter(NamedTuple):
    """How an argument of a distribution is read from a string and written back exactly."""

    parse: Callable[[Any], Any]
    format: Callable[[Any], str]


def _parse_flag(value: object) -> bool:
    if str(value).lower() not in ("true", "false"):
        raise InputError(f"write true or false, not {value}")
    return str(value).lower() == "true"


DURATION = Parameter(limited_duration, lambda value: format_duration(value, exact=True))
NUMBER = Parameter(parse_number, format_number)
FLAG = Parameter(_parse_flag, lambda value: str(value).lower())


class Distribution(ABC):
    """A distribution of durations, in seconds, never negative.

    Subclasses are frozen dataclasses. `name` and `parameters` (one per field, in order) define
    their text: `str(distribution)` is `name(argument, ...)` and parses back to an equal one.
    """

    name: ClassVar[str]
    in_order: ClassVar[bool] = False  # draws are a recording's, one after the other
    parameters: ClassVar[dict[str, Parameter]]

    @abstractmethod
    def from_uniform(self, uniform: Floats) -> Floats:
        """Return a draw for each of the numbers `uniform` in (0, 1)."""

    @abstractmethod
    def mean(self) -> float:
        """Return the exact mean, in seconds."""

    @overload
    def sample(self, rng: np.random.Generator) -> float: ...
    @overload
    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Floats: ...

    def sample(
        self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None
    ) -> float | Floats:
        """Return one draw, or an array of draws of shape `size`."""
        if size is None:
            return float(self.sample(rng, 1)[0])
        return self.from_uniform(inside(rng.random(size)))

    def sampler(self, rng: np.random.Generator) -> Callable[[], float]:
        """Return a function that returns the next draw on each call.

        The draws are those of `sample(rng)`, one after the other, but are fetched in blocks: `rng`
        must be the sampler's own.
        """
        return self.draws(rng).__next__

    def draws(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield draws without end; see `sampler`."""
        size = _FIRST_BLOCK
        while True:
            # An array of doubles holds 8 bytes a value, a list of floats four times that.
            yield from array("d", self.sample(rng, size).tobytes())
            size = min(2 * size, _LARGEST_BLOCK)

    def scaled(self, speed: float) -> "Distribution":
        """Return the durations on a node of the relative `speed`: divided by it."""
        return self if speed == 1 else Scaled(self, speed)

    def __str__(self) -> str:
        return self.written(DURATION)

    def written(self, quantity: Parameter) -> str:
        """Return the text of the distribution of another quantity than durations."""
        values = (getattr(self, field.name) for field in fields(cast(Any, self)))
        arguments = (
            _written(kind, value, quantity)
            for kind, value in zip(self.parameters.values(), values, strict=True)
        )
        return f"{self.name}({', '.join(arguments)})"

    def _check(
        self,
        field: str,
        parameter: str | None = None,
        *,
        positive: bool = False,
        most: float = inf,
    ) -> None:
        """Refuse a field out of its range, and keep its number as a float; see `real`."""
        value = getattr(self, field)
        number = self._checked(parameter or field, value, positive=positive, most=most)
        object.__setattr__(self, field, number)

    def _checked(
        self, parameter: str, value: object, *, positive: bool = False, most: float = inf
    ) -> float:
        number = real(value)
        if not (0 < number < inf or (number == 0 and not positive)):
            rule = "above 0" if positive else "0 or more"
            raise InputError(f"{self.name}: {parameter} must be finite and {rule}, not {value}")
        if number > most:
            raise InputError(f"{self.name}: {parameter} must be at most {most:g}, not {value}")
        return number


def _written(kind: Parameter, value: Any, quantity: Parameter) -> str:
    if isinstance(value, Distribution):
        return value.written(quantity)
    return (quantity if kind is DURATION else kind).format(value)


DISTRIBUTION = Parameter(lambda value: value, str)  # `parse_distribution` reads it


def _check_base(scaled: Any) -> None:
    if not isinstance(scaled.base, Distribution):
        raise InputError(f"{scaled.name}: base must be a distribution, not {scaled.base!r}")


@dataclass(frozen=True)
class Scaled(Distribution):
    """The durations of `base` on a node of relative `speed`: divided by it.

    A straggler, a node that is always slow, is a node of speed below 1.
    """

    base: Distribution
    speed: float
    name: ClassVar[str] = "scaled"
    parameters: ClassVar[dict[str, Parameter]] = {"base": DISTRIBUTION, "speed": NUMBER}

    def __post_init__(self) -> None:
        _check_base(self)
        self._check("speed", positive=True)

    def from_uniform(self, uniform: Floats) -> Floats:
        return self.base.from_uniform(uniform) / self.speed

    def draws(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield the draws of `base`, divided: a recording keeps its place."""
        speed = self.speed
        return (draw / speed for draw in self.base.draws(rng))

    def mean(self) -> float:
        return self.base.mean() / self.speed


@dataclass(frozen=True)
class Slowdown(Distribution):
    """The durations of `base`, each `factor` times as long with the given `probability`."""

    base: Distribution
    factor: float
    probability: float
    name: ClassVar[str] = "slowdown"
    parameters: ClassVar[dict[str, Parameter]] = {
        "base": DISTRIBUTION,
        "factor": NUMBER,
        "probability": NUMBER,
    }

    def __post_init__(self) -> None:
        _check_base(self)
        self._check("factor")
        self._check("probability", most=1.0)
        base = self.base
        while isinstance(base, Scaled):
            base = base.base
        if base.in_order:
            raise InputError("slowdown: a recording cannot be scaled; use empirical(...)")

    def from_uniform(self, uniform: Floats) -> Floats:
        # One uniform number decides both: which side of `probability` it falls on, and where there.
        p = self.probability
        slow = uniform < p
        rescaled = np.where(slow, uniform, uniform - p) / np.where(slow, p, 1 - p)
        return self.base.from_uniform(inside(rescaled)) * np.where(slow, self.factor, 1.0)

    def mean(self) -> float:
        return self.base.mean() * (1 + self.probability * (self.factor - 1))
