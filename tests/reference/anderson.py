"""Anderson's mixture on blocks that take turns, in plain NumPy with a least-squares solver."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]


def mixed(values: list[Array], steps: list[Array]) -> Array:
    """Return the next value of a fixed-point iteration from the last ones, the newest last.

    Walker and Ni, SIAM J. Numer. Anal. 49(4), 2011, algorithm AA, with differences: all values and
    steps f(x) = g(x) - x are of shape (n,).
    """
    value, step = values[-1], steps[-1]
    if len(values) == 1:
        return value + step
    dx, df = (np.diff(np.stack(each, axis=1), axis=1) for each in (values, steps))
    weights = np.linalg.lstsq(df, step, rcond=None)[0]
    return np.asarray(value + step - (dx + df) @ weights)


def relax_in_turn(
    A: Any, b: Array, x: Array, turns: list[Array], window: int, every: int, omega: float = 1.0
) -> Array:
    """Relax the block of each turn from what has been written before; return the iterate."""
    x, A = x.copy(), A.toarray()
    memory: dict[int, tuple[list[Array], list[Array]]] = {}
    counts: dict[int, int] = {}
    for rows in turns:
        who = int(rows[0])
        values, steps = memory.setdefault(who, ([], []))
        values.append(x[rows])
        steps.append(omega * (b - A @ x)[rows] / A.diagonal()[rows])
        del values[: -window - 1], steps[: -window - 1]
        counts[who] = counts.get(who, 0) + 1
        due = counts[who] % every == 0
        x[rows] = mixed(values, steps) if due else values[-1] + steps[-1]
    return x


def least_residual(A: Array, b: Array, x: Array, steps: int) -> Array:
    """Return the x_k of GMRES: of x + span{r, A r, ..., A^(k-1) r} the one of least |b - A x|."""
    basis = [(b - A @ x) / np.linalg.norm(b - A @ x)]
    for _ in range(steps - 1):
        basis.append(A @ basis[-1])
        basis[-1] /= np.linalg.norm(basis[-1])
    krylov = np.linalg.qr(np.stack(basis, axis=1))[0]
    return np.asarray(x + krylov @ np.linalg.lstsq(A @ krylov, b - A @ x, rcond=None)[0])
