"""What a distribution of durations is: a map from one uniform number to one duration.

Every draw consumes exactly one uniform number of the generator. Arrays, blocks fetched ahead and
single draws therefore read the same stream in the same way and give the same values; two
distributions fed by equal generators see common random numbers, which makes comparisons sharper.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from array import array
from collections.abc import Callable, Iterator
from dataclasses import fields
from math import inf
from typing import Any, ClassVar, NamedTuple, cast, overload

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.units import format_duration, format_number, parse_duration, parse_number

Array = NDArray[np.float64]

# A sampler starts small, since tens of thousands may exist, and grows while it is used.
_FIRST_BLOCK, _LARGEST_BLOCK = 4, 256


def inside(uniform: Array) -> Array:
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


DURATION = Parameter(parse_duration, lambda value: format_duration(value, exact=True))
NUMBER = Parameter(parse_number, format_number)
FLAG = Parameter(_parse_flag, lambda value: str(value).lower())


class Distribution(ABC):
    """A distribution of durations, in seconds, never negative.

    Subclasses are frozen dataclasses. `name` and `parameters` (one per field, in order) say how
    they are written: `str(distribution)` is `name(argument, ...)` and parses back to an equal one.
    """

    name: ClassVar[str]
    parameters: ClassVar[dict[str, Parameter]]

    @abstractmethod
    def from_uniform(self, uniform: Array) -> Array:
        """Return a draw for each of the numbers `uniform` in (0, 1)."""

    @abstractmethod
    def mean(self) -> float:
        """Return the exact mean, in seconds."""

    @overload
    def sample(self, rng: np.random.Generator) -> float: ...
    @overload
    def sample(self, rng: np.random.Generator, size: int | tuple[int, ...]) -> Array: ...

    def sample(
        self, rng: np.random.Generator, size: int | tuple[int, ...] | None = None
    ) -> float | Array:
        """Return one draw, or an array of draws of shape `size`."""
        if size is None:
            return float(self.sample(rng, 1)[0])
        return self.from_uniform(inside(rng.random(size)))

    def sampler(self, rng: np.random.Generator) -> Callable[[], float]:
        """Return a function that gives the next draw each time it is called.

        The draws are those of `sample(rng)`, one after the other, but are fetched in blocks: `rng`
        must be the sampler's own.
        """
        return self.draws(rng).__next__

    def draws(self, rng: np.random.Generator) -> Iterator[float]:
        """Yield draws for ever; see `sampler`."""
        size = _FIRST_BLOCK
        while True:
            # An array of doubles holds 8 bytes a value, a list of floats four times that.
            yield from array("d", self.sample(rng, size).tobytes())
            size = min(2 * size, _LARGEST_BLOCK)

    def scaled(self, speed: float) -> Distribution:
        """Return the durations on a node of the relative `speed`: divided by it."""
        from paracosm.timing.composed import Scaled

        return self if speed == 1 else Scaled(self, speed)

    def __str__(self) -> str:
        values = (getattr(self, field.name) for field in fields(cast(Any, self)))
        arguments = (
            kind.format(value) for kind, value in zip(self.parameters.values(), values, strict=True)
        )
        return f"{self.name}({', '.join(arguments)})"

    def _check(
        self, parameter: str, value: float, *, positive: bool = False, most: float = inf
    ) -> None:
        """Raise the error for a `value` that is infinite, negative (or 0), or above `most`."""
        if not (0 < value < inf or (value == 0 and not positive)):
            rule = "above 0" if positive else "0 or more"
            raise InputError(f"{self.name}: {parameter} must be finite and {rule}, not {value}")
        if value > most:
            raise InputError(f"{self.name}: {parameter} must be at most {most:g}, not {value}")
