"""The matrix C of a relaxation method, and its spectral radius."""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError, unknown
from paracosm.relaxation.problems.stencil import Stencil
from paracosm.relaxation.spectrum.radius import SpectralRadius, spectral_radius

__all__ = ["METHODS", "Method", "iteration_matrix", "iteration_radius", "jacobi_spectral_radius"]

Array = NDArray[np.float64]

Method = Literal["jacobi", "gauss-seidel", "sor", "richardson", "second-order-richardson"]
METHODS: tuple[Method, ...] = (
    "jacobi",
    "gauss-seidel",
    "sor",
    "richardson",
    "second-order-richardson",
)


def jacobi_spectral_radius(A: Any, omega: float = 1.0, budget: float = 1.0) -> SpectralRadius:
    """Return rho(|C|) of Jacobi's C = -D^-1 (L + U) (eq. 21), weighted by `omega`."""
    return iteration_radius(A, "jacobi", omega=omega, budget=budget)


def iteration_radius(
    A: Any,
    method: Method = "jacobi",
    *,
    omega: float = 1.0,
    beta: float = 0.0,
    stencil: Stencil | None = None,
    budget: float = 1.0,
) -> SpectralRadius:
    """Return rho(|C|) of the map that `method` applies to each component; see `iteration_matrix`.

    Args:
        A: SciPy CSR array, shape (n, n).
        method: which map.
        omega: its relaxation weight; for the Richardson methods the factor of the residual.
        beta: the momentum of second-order Richardson.
        stencil: the same matrix as a stencil, whose eigenvector may be known.
        budget: seconds after which bounds are given instead of a value, roughly.

    Raises:
        InputError: an unknown method, or a zero on the diagonal where it divides by it.
    """
    C = iteration_matrix(A, method, omega, beta)
    # All points being alike, |C| has the eigenvectors of |A|'s off-diagonal part.
    guess = None if stencil is None else _grid_vector(stencil)
    if method == "second-order-richardson":
        scale = None
        guess = None if guess is None else _with_previous(guess, C)
    elif method == "richardson":
        scale = np.ones(A.shape[0])
    else:
        scale = np.sqrt(np.abs(A.diagonal()))
    return spectral_radius(C, guess=guess, scale=scale, budget=budget)


def iteration_matrix(A: Any, method: Method, omega: float = 1.0, beta: float = 0.0) -> Any:
    """Return the C in x_i <- (C x + d)_i, as a SciPy CSR array.

        jacobi, gauss-seidel, sor   I - omega D^-1 A
        richardson                  I - omega A
        second-order-richardson     [[(1 + beta) I - omega A, -beta I], [I, 0]], acting on
                                    each component together with its previous value

    Gauss-Seidel and SOR apply the same map to one component as (weighted) Jacobi and differ only in
    what they read when, which is a schedule; so Theorem 1 asks for the same matrix.

    Raises:
        InputError: an unknown method, or a zero on the diagonal where it divides by it.
    """
    from scipy.sparse import block_array, csr_array, eye_array

    if method not in METHODS:
        raise unknown("method", method, METHODS)
    n = A.shape[0]
    identity = eye_array(n, format="csr")
    if method == "richardson":
        return (identity - omega * A).tocsr()
    if method == "second-order-richardson":
        first = (1 + beta) * identity - omega * A
        return block_array([[first, -beta * identity], [identity, None]], format="csr")
    diagonal = A.diagonal()
    if not diagonal.all():
        row = int(np.flatnonzero(diagonal == 0)[0]) + 1
        raise InputError(f"{method} divides by the diagonal, which is zero in row {row}")
    rows = np.repeat(np.arange(n, dtype=A.indices.dtype), np.diff(A.indptr))
    data = A.data * (-omega / diagonal)[rows]
    data[rows == A.indices] = 1 - omega
    return csr_array((data, A.indices, A.indptr), shape=A.shape)


def _grid_vector(stencil: Stencil) -> Array | None:
    """Return the eigenvector of a stencil's nonnegative off-diagonal part, where it is a product.

    Along an axis with the coefficients a before and c after a point it is sqrt(a / c)^i
    sin(pi i / (size + 1)), i from 1 (e.g. Smith, "Numerical Solution of Partial Differential
    Equations", 1985, for tridiagonal Toeplitz matrices).
    """
    coefficients = {
        tuple(offset): abs(float(value))
        for offset, value in zip(stencil.offsets.tolist(), stencil.coefficients, strict=True)
    }
    axes = len(stencil.shape)
    logarithm = np.zeros(stencil.shape)
    for axis, size in enumerate(stencil.shape):
        step = [int(axis == other) for other in range(axes)]
        after = coefficients.get(tuple(step), 0.0)
        before = coefficients.get(tuple(-one for one in step), 0.0)
        if before == 0.0 or after == 0.0:
            return None
        number = np.arange(1, size + 1)
        along = np.log(np.sin(np.pi * number / (size + 1)))
        along += (number - size / 2) * (math.log(before / after) / 2)
        logarithm += along.reshape([size if other == axis else 1 for other in range(axes)])
    logarithm -= logarithm.max()
    return None if logarithm.min() < -600 else np.exp(logarithm).ravel()


def _with_previous(vector: Array, C: Any) -> Array:
    """Extend an eigenvector of second-order Richardson's first block to both blocks.

    If M v = rho v, then [[M, beta I], [I, 0]] has the vector (v, v / s), s² = rho s + beta.
    """
    n = vector.size
    middle = int(vector.argmax())
    rho = float((abs(C[[middle]][:, :n]) @ vector)[0]) / vector[middle]
    beta = abs(float(C[middle, n + middle]))
    return np.concatenate([vector, vector / ((rho + math.sqrt(rho**2 + 4 * beta)) / 2)])
