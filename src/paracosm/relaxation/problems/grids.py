"""Model problems on regular grids, as stencils: Laplacians, convection-diffusion, a hot plate."""

from __future__ import annotations

import math
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from paracosm.relaxation.problems.stencil import Stencil

__all__ = ["convection_diffusion", "heat_boundary", "laplacian", "laplacian_9_point"]


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
