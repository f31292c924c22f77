"""Extreme eigenvalues of large sparse matrices, within a deadline."""

from __future__ import annotations

import math
from time import perf_counter
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["arnoldi", "lanczos", "signed_radius", "symmetrised"]

Array = NDArray[np.float64]

LARGEST_DENSE = 100  # rows, for eigenvalues by LAPACK


def signed_radius(C: Any, scale: Array | None, deadline: float) -> float | None:
    """Return rho(C), or None where it would take long."""
    n = C.shape[0]
    if n <= LARGEST_DENSE:
        return float(np.abs(np.linalg.eigvals(C.toarray())).max())
    v = np.random.default_rng(0).uniform(0.5, 1.5, n)
    symmetric = symmetrised(C, scale)
    if symmetric is not None:
        smallest, largest, converged = lanczos(symmetric, v, deadline)
        return max(-smallest, largest) if converged else None
    found = arnoldi(C, "LM", 4, v, deadline)
    return None if found is None else float(np.abs(found[0]).max())


def symmetrised(C: Any, scale: Array | None) -> Any | None:
    """Return diag(scale) C diag(scale)^-1 if that is symmetric."""
    from scipy.sparse import diags_array

    if scale is None:
        return None
    scaled = (diags_array(scale) @ C @ diags_array(1 / scale)).tocsr()
    symmetric = abs(scaled - scaled.T).max() <= 1e-12 * abs(scaled).max()
    return scaled if symmetric else None


def lanczos(S: Any, v: Array, deadline: float) -> tuple[float, float, bool]:
    """Return the extreme eigenvalues of the symmetric S, and whether they have settled in time.

    Plain Lanczos (Paige 1972): lost orthogonality repeats eigenvalues and spoils none.
    """
    from scipy.linalg import eigvalsh_tridiagonal

    diagonal: list[float] = []
    off: list[float] = []
    q, before = v / math.sqrt(_dot(v, v)), np.zeros_like(v)
    smallest, largest, check = np.inf, -np.inf, 25
    while True:
        w = S @ q - (off[-1] * before if off else 0.0)
        diagonal.append(_dot(w, q))
        w -= diagonal[-1] * q
        off.append(math.sqrt(_dot(w, w)))
        steps = len(diagonal)
        over = off[-1] <= 1e-14 * max(map(abs, diagonal)) or steps == v.size
        if steps >= check or over or perf_counter() > deadline:
            check = steps + 25 + steps // 8
            earlier = -smallest, largest
            smallest, largest = (
                float(eigvalsh_tridiagonal(diagonal, off[:-1], select="i", select_range=(k, k))[0])
                for k in (0, steps - 1)
            )
            moved = max(-smallest - earlier[0], largest - earlier[1])
            if over or moved <= 1e-12 * max(-smallest, largest):
                return smallest, largest, True
            if perf_counter() > deadline:
                return smallest, largest, False
        q, before = w / off[-1], q


def arnoldi(
    C: Any, which: Literal["LR", "LM"], number: int, v: Array, deadline: float
) -> tuple[Any, Any] | None:
    """Return `number` eigenvalues of C and their vectors by ARPACK, or None where time is up."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigs

    def multiply(x: Array) -> Array:
        if perf_counter() > deadline:
            raise TimeoutError
        return np.asarray(C @ x)

    operator = LinearOperator(C.shape, matvec=multiply, dtype=np.float64)
    size = min(60, C.shape[0])
    try:
        values, vectors = eigs(operator, k=number, which=which, v0=v, ncv=size, maxiter=10_000)
    except (TimeoutError, ArpackError):
        return None
    return values, vectors


def _dot(a: Array, b: Array) -> float:
    # Not BLAS, whose threads wait for each other when the machine has other work.
    return float(np.einsum("i,i->", a, b))
