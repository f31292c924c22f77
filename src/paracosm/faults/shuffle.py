"""Shuffle: the components are all right, but in the wrong places."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from paracosm.faults.model import DataFault, all_or

__all__ = ["Shuffle"]


@dataclass(frozen=True)
class Shuffle(DataFault):
    """The components are permuted at random: the norm of the vector stays as it was.

    Source: Elliott, Hoemmen and Mueller, "A Numerical Soft Fault Model for Iterative Linear
    Solvers", HPDC 2015.
    """

    name: ClassVar[str] = "shuffle"
    least_components: ClassVar[int] = 2

    def corrupt(
        self, values: NDArray[np.float64], rows: NDArray[np.int64] | None, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Permute the values at `rows` among themselves; see `DataFault.corrupt`."""
        rows = all_or(rows, values)
        values[rows] = values[rng.permutation(rows)]
        return rows
