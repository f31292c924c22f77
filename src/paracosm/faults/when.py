"""When a fault strikes: once, at a given or random instant, or again and again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf, isfinite

import numpy as np

from paracosm.errors import InputError
from paracosm.timing.distribution import inside
from paracosm.units import format_duration

__all__ = ["At", "AtRandom", "Every", "When"]


@dataclass(frozen=True)
class At:
    """Once, at `time` seconds of virtual time."""

    time: float

    def __post_init__(self) -> None:
        if not 0 <= self.time < inf:
            raise InputError(f"at: a time must be finite and 0 or more, not {self.time}")

    def times(self, horizon: float | None, rng: np.random.Generator) -> Iterator[float]:
        """Yield the time."""
        yield self.time

    def __str__(self) -> str:
        return f"at {format_duration(self.time, exact=True)}"


@dataclass(frozen=True)
class AtRandom:
    """Once, uniformly between `low` and `high` seconds; without them, over the fault-free run time.

    The latter is the paper's "random iteration number before convergence" (section 6.1).
    """

    low: float = 0.0
    high: float | None = None

    def __post_init__(self) -> None:
        if self.high is None:
            if self.low:
                raise InputError("at random: an earliest time needs a latest one")
        elif not (isfinite(self.low) and isfinite(self.high) and self.low >= 0):
            raise InputError("at random: times must be finite and 0 or more")
        elif not self.low < self.high:
            raise InputError(
                f"at random: the earliest time ({self.low:g} s) must be below the latest "
                f"({self.high:g} s)"
            )

    def times(self, horizon: float | None, rng: np.random.Generator) -> Iterator[float]:
        """Yield one time below `high`, or below the `horizon` (seconds) where there is none.

        Raises:
            InputError: if the horizon is needed and is not a finite number above 0.
        """
        high = self.high
        if high is None:
            if horizon is None or not 0 < horizon < inf:
                raise InputError(
                    "at random: the fault-free run time is not known here; "
                    'give bounds, such as "at random(0s, 100s)"'
                )
            high = horizon
        yield self.low + (high - self.low) * float(inside(rng.random(1))[0])

    def __str__(self) -> str:
        if self.high is None:
            return "at random"
        low, high = (format_duration(time, exact=True) for time in (self.low, self.high))
        return f"at random({low}, {high})"


@dataclass(frozen=True)
class Every:
    """A Poisson process: intervals are exponential, with the mean `mean` seconds, without end."""

    mean: float

    def __post_init__(self) -> None:
        if not 0 < self.mean < inf:
            raise InputError(
                f"every: the mean interval must be above 0 and finite, not {self.mean}"
            )

    def times(self, horizon: float | None, rng: np.random.Generator) -> Iterator[float]:
        """Yield times for ever, ascending."""
        time = 0.0
        while True:
            time += float(rng.exponential(self.mean))
            yield time

    def __str__(self) -> str:
        return f"every {format_duration(self.mean, exact=True)}"


When = At | AtRandom | Every
