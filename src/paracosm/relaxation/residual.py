"""The residual of a run: computed anew, compared with what is to be reached."""

from __future__ import annotations

from math import inf, isfinite, nan

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.relaxation.kernel.blocks import fresh_residual
from paracosm.relaxation.kernel.observe import norm_of, set_limits
from paracosm.relaxation.kernel.scalars import (
    ERROR_AGAIN,
    LARGEST,
    SAMPLES,
    SQUARE,
)
from paracosm.relaxation.spec import GROWTH
from paracosm.relaxation.state import Run

__all__ = ["compute_residual", "error_norm", "growth_rate", "norm", "set_largest", "true_norm"]


def norm(run: Run) -> float:
    """Return the norm of the residual as the loop knows it."""
    a = run.arrays
    return float(norm_of(a.rules, a.iterate.residual, a.gauges[SQUARE]))


def compute_residual(run: Run) -> None:
    """Compute the residual anew: b - A x, or G(x) - x."""
    a = run.arrays
    if run.functions.map is None:
        square = float(fresh_residual(a.matrix, a.iterate))
    else:
        rows, out = np.arange(run.spec.problem.n), np.empty(run.spec.problem.n)
        given = run.functions.map(a.iterate.x, rows, out)
        if given is not None and np.shape(given) != out.shape:
            raise InputError(f"map: values of shape {np.shape(given)} for {out.size} rows")
        a.iterate.residual[:] = (out if given is None else np.asarray(given)) - a.iterate.x
        square = float(np.sum(a.iterate.residual**2))
    set_limits(a.gauges, square)
    a.gauges[ERROR_AGAIN] = inf  # sum it anew, too


def true_norm(run: Run) -> float:
    """Return the norm of b - A x with A and b as they were given, whatever faults made of them."""
    a, problem = run.arrays, run.spec.problem
    if run.functions.map is not None:
        compute_residual(run)
        residual = a.iterate.residual
    else:
        with np.errstate(all="ignore"):
            residual = problem.b - problem.A @ a.iterate.x
    return _norm(residual, a.rules.infinity)


def error_norm(run: Run) -> float:
    """Return the norm of x - solution; NaN where the solution is not known."""
    solution = run.spec.problem.solution
    if solution is None:
        return nan
    a = run.arrays
    return _norm(a.iterate.x - solution, a.rules.infinity)


def _norm(values: NDArray[np.float64], infinity: bool) -> float:
    with np.errstate(all="ignore"):
        return float(np.linalg.norm(values, np.inf if infinity else 2))


def set_largest(run: Run, square: float) -> None:
    """Say from which residual on the iteration counts as diverged, given a square that is not."""
    if isfinite(square):
        run.arrays.gauges[LARGEST] = max(square, 1e-300) * GROWTH**2


def growth_rate(run: Run) -> float:
    """Return the factor by which the residual grew a sweep: least squares over the last half."""
    a = run.arrays
    rows = a.history.rows[: a.counters[SAMPLES]]
    rows = rows[len(rows) // 2 :]
    rows = rows[np.isfinite(rows[:, 2]) & (rows[:, 2] > 0)]
    if len(rows) < 2 or rows[-1, 1] == rows[0, 1]:
        return nan
    slope = np.polyfit(rows[:, 1] / run.spec.problem.n, np.log(rows[:, 2]), 1)[0]
    return float(np.exp(slope))
