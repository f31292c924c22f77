"""Perturbation: a random number is added to each component."""

from __future__ import annotations

from dataclasses import dataclass
from math import isfinite
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.faults.model import DataFault, all_or
from paracosm.timing.distribution import Parameter, inside
from paracosm.units import format_number, parse_number

__all__ = ["UniformPerturbation"]

_SIGNED = Parameter(lambda value: parse_number(value, signed=True), format_number)


@dataclass(frozen=True)
class UniformPerturbation(DataFault):
    """x_i <- x_i + r_i with r_i uniform in (low, high), drawn for each component.

    Source: Coleman and Sosonkina, "Simulation Framework for Asynchronous Iterative Methods",
    eq. 22, where low = -epsilon and high = epsilon; their figure 11 has epsilon = 100, "which may
    be reflective of an exponent or sign bit flip".

    Raises:
        InputError: a bound that is not finite, or low not below high.
    """

    low: float
    high: float
    name: ClassVar[str] = "uniform"
    parameters: ClassVar[dict[str, Parameter]] = {"low": _SIGNED, "high": _SIGNED}

    def __post_init__(self) -> None:
        if not (isfinite(self.low) and isfinite(self.high)):
            raise InputError(
                f"uniform: low and high must be finite, not {self.low:g} and {self.high:g}"
            )
        if not self.low < self.high:
            raise InputError(f"uniform: low ({self.low:g}) must be below high ({self.high:g})")

    def corrupt(
        self, values: NDArray[np.float64], rows: NDArray[np.int64] | None, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Add one draw to each value; see `DataFault.corrupt`."""
        rows = all_or(rows, values)
        uniform = inside(rng.random(len(rows)))
        # Not low + (high - low) u: the difference of two large bounds may overflow.
        added = self.low * (1 - uniform) + self.high * uniform
        with np.errstate(over="ignore", invalid="ignore"):
            values[rows] += added
        return rows
