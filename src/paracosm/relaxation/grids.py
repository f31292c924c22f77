"""Model problems on regular grids, as stencils: Laplacians, convection-diffusion, a hot plate."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from scipy.sparse import csr_array


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


def laplacian(shape: tuple[int, ...]) -> Stencil:
    """Return minus the Laplacian, times h²: the 5-point (2-D) or 7-point (3-D) stencil.

    4 or 6 at the point itself and -1 at its neighbours along each axis (paper, sections 4.1, 5.1).
    """
    axes = len(shape)
    neighbours = {
        tuple(sign * (axis == other) for other in range(axes)): -1.0
        for axis in range(axes)
        for sign in (-1, 1)
    }
    return _stencil(shape, {(0,) * axes: 2.0 * axes} | neighbours)


def laplacian_9_point(shape: tuple[int, ...]) -> Stencil:
    """Return the 9-point stencil of minus the Laplacian, times 3h²: bilinear finite elements.

    8 at the point itself and -1 at each of the eight points around it; 30 x 30 is the matrix
    gr_30_30 of the Harwell-Boeing collection.
    """
    around = dict.fromkeys(product((-1, 0, 1), repeat=2), -1.0)
    return _stencil(shape, around | {(0, 0): 8.0})


def convection_diffusion(
    shape: tuple[int, ...],
    peclet: float,
    angle: float,
    scheme: Literal["central", "upwind"],
) -> Stencil:
    """Return the stencil of -eps Laplace(u) + w . grad(u), times h²/eps, w constant.

    Elman, Silvester, Wathen, "Finite Elements and Fast Iterative Solvers", chapter 6 (mesh Peclet
    number) and any text on finite differences for the two schemes:

        central: 4 at the point, -(1 + P) upstream and -(1 - P) downstream along each axis
        upwind:  4 + 2 Px + 2 Py at the point, -(1 + 2P) upstream and -1 downstream

    Args:
        shape: (ny, nx).
        peclet: the mesh Peclet number |w| h / (2 eps), 0 or more. Above 1 the central scheme is no
            longer an M-matrix.
        angle: of w, in degrees from the direction of growing x to that of growing y, 0 to 90.
        scheme: how the first derivatives are discretised.
    """
    radians = math.radians(angle)
    # Rows of the grid are y, columns x; cos(90 degrees) is not quite 0 in floating point.
    flow = [round(peclet * part(radians), 15) for part in (math.sin, math.cos)]
    points: dict[tuple[int, ...], float] = {(0, 0): 4.0}
    for axis, along in enumerate(flow):
        upstream, downstream = (
            tuple(sign * (axis == other) for other in range(2)) for sign in (-1, 1)
        )
        if scheme == "central":
            points |= {upstream: -(1 + along), downstream: -(1 - along)}
        else:
            points |= {upstream: -(1 + 2 * along), downstream: -1.0}
            points[0, 0] += 2 * along
    return _stencil(shape, points)


def heat_boundary(
    shape: tuple[int, ...], top: float, left: float, right: float, bottom: float
) -> NDArray[np.float64]:
    """Return what fixed temperatures around a plate add to the right-hand side; shape (ny * nx,).

    Each point next to an edge has that edge's temperature as a neighbour. The corners are nobody's
    neighbour, so that the zeros that table 2 has there do not enter.
    """
    b = np.zeros(shape)
    b[0, :] += top
    b[-1, :] += bottom
    b[:, 0] += left
    b[:, -1] += right
    return b.ravel()


def _stencil(shape: tuple[int, ...], points: dict[tuple[int, ...], float]) -> Stencil:
    ordered = sorted((offset, value) for offset, value in points.items() if value != 0.0)
    offsets = np.array([offset for offset, _ in ordered], dtype=np.int64)
    return Stencil(shape, offsets, np.array([value for _, value in ordered]))
