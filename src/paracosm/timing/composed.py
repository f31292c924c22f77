"""Distributions made from another one: a node's speed, a random slow-down."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from paracosm.errors import InputError
from paracosm.timing.distribution import NUMBER, Array, Distribution, Parameter, inside
from paracosm.timing.samples import Recorded

__all__ = ["Scaled", "Slowdown"]


def _parse(value: Any) -> Distribution:
    from paracosm.timing.parse import parse_distribution  # which builds the classes below

    return parse_distribution(value)


_DISTRIBUTION = Parameter(_parse, str)


@dataclass(frozen=True)
class Scaled(Distribution):
    """The durations of `base` on a node of relative `speed`: divided by it.

    A straggler, a node that is always slow, is a node of speed below 1.
    """

    base: Distribution
    speed: float
    name: ClassVar[str] = "scaled"
    parameters: ClassVar[dict[str, Parameter]] = {"base": _DISTRIBUTION, "speed": NUMBER}

    def __post_init__(self) -> None:
        self._check("speed", self.speed, positive=True)

    def from_uniform(self, uniform: Array) -> Array:
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
        "base": _DISTRIBUTION,
        "factor": NUMBER,
        "probability": NUMBER,
    }

    def __post_init__(self) -> None:
        self._check("factor", self.factor)
        self._check("probability", self.probability, most=1.0)
        base = self.base
        while isinstance(base, Scaled):
            base = base.base
        if isinstance(base, Recorded):
            raise InputError("slowdown: a recording is replayed as it is; use empirical(...)")

    def from_uniform(self, uniform: Array) -> Array:
        # One uniform number decides both: which side of `probability` it falls on, and where there.
        p = self.probability
        slow = uniform < p
        rescaled = np.where(slow, uniform, uniform - p) / np.where(slow, p, 1 - p)
        return self.base.from_uniform(inside(rescaled)) * np.where(slow, self.factor, 1.0)

    def mean(self) -> float:
        return self.base.mean() * (1 + self.probability * (self.factor - 1))
