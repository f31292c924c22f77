"""A constant-coefficient stencil on a box of grid points: a matrix that need not be stored."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array

__all__ = ["Stencil"]


@dataclass(frozen=True, eq=False)
class Stencil:
    """The same linear combination of neighbours at every point of a box, and 0 outside it.

    Points are numbered row-major: the last axis (x) varies fastest. Boundary values are part of the
    right-hand side.

    Args:
        shape: points along each axis, (ny, nx) or (nz, ny, nx).
        offsets: of each neighbour, the point itself included; shape (k, len(shape)), in ascending
            order, so that the columns of every row of the matrix ascend.
        coefficients: of each neighbour, shape (k,).
    """

    shape: tuple[int, ...]
    offsets: NDArray[np.int64]
    coefficients: NDArray[np.float64]

    @property
    def points(self) -> int:
        """The number of grid points, that is of unknowns."""
        return math.prod(self.shape)

    def apply(self, x: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return A @ x without the matrix; `x` and the result have shape (points,)."""
        grid = x.reshape(self.shape)
        result = np.zeros(self.shape)
        for offset, coefficient in zip(self.offsets.tolist(), self.coefficients, strict=True):
            # Point p reads p + offset: the points that have such a neighbour, and the neighbours.
            reads = tuple(
                slice(max(0, step), size + min(0, step))
                for step, size in zip(offset, self.shape, strict=True)
            )
            points = tuple(
                slice(max(0, -step), size + min(0, -step))
                for step, size in zip(offset, self.shape, strict=True)
            )
            result[points] += coefficient * grid[reads]
        return result.ravel()

    def matrix(self) -> csr_array:
        """Return A, shape (points, points): sorted indices, int32 where they fit."""
        from scipy.sparse import csr_array

        n, k = self.points, len(self.coefficients)
        index = np.int32 if n * k < 2**31 else np.int64
        inside = np.empty((*self.shape, k), dtype=bool)
        steps = np.empty(k, dtype=np.int64)
        for number, offset in enumerate(self.offsets.tolist()):
            ok = np.ones((1,) * len(self.shape), dtype=bool)
            step = 0
            for axis, size in enumerate(self.shape):
                position = np.arange(size) + offset[axis]
                along = [1] * len(self.shape)
                along[axis] = size
                ok = ok & ((position >= 0) & (position < size)).reshape(along)
                step = step * size + offset[axis]
            inside[..., number] = ok
            steps[number] = step
        mask = inside.reshape(n, k)
        columns = (np.arange(n, dtype=index)[:, None] + steps.astype(index))[mask]
        values = np.broadcast_to(self.coefficients, (n, k))[mask]
        pointer = np.zeros(n + 1, dtype=index)
        np.cumsum(mask.sum(axis=1), out=pointer[1:])
        matrix = csr_array((values, columns, pointer), shape=(n, n))
        matrix.has_sorted_indices = True
        matrix.has_canonical_format = True
        return matrix
