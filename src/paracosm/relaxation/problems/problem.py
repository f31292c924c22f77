"""A linear system to be solved by relaxation: matrix, right-hand side, first iterate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from paracosm.relaxation.problems.stencil import Stencil

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Problem"]

Array = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Problem:
    """A x = b, with `n` unknowns, and where the iteration starts.

    Args:
        name: "laplace2d:100", "494_bus.mtx".
        A: shape (n, n), float64, indices sorted, no duplicates and no stored zeros, int32 indices
            where they fit.
        b: the right-hand side, shape (n,).
        x0: the first iterate, shape (n,).
        solution: x, where it is known, shape (n,).
        stencil: the same matrix as a stencil, for grid problems.
        rhs, start: how `b` and `x0` were made, for the record.
        map: `(x, rows, out)`, which writes G's components `rows` at x to `out`: a fixed point
            x = G(x) is looked for in place of a solution; `A` is empty.
    """

    name: str
    A: csr_array
    b: Array
    x0: Array
    solution: Array | None = None
    stencil: Stencil | None = None
    rhs: str = "given"
    start: str = "given"
    map: Callable[..., Any] | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def n(self) -> int:
        """The number of unknowns."""
        return self.b.size
