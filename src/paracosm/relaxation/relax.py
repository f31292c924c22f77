"""Relaxation x = G(x) on simulated processors: the functions that Python users call."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.errors import InputError
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.methods import Method, method_divides, parse_method
from paracosm.relaxation.solve import solve
from paracosm.relaxation.spec import spec_of
from paracosm.validation import validated

if TYPE_CHECKING:
    from numpy.typing import ArrayLike, NDArray

    from paracosm.relaxation.problems import Problem
    from paracosm.relaxation.result import RelaxationResult

__all__ = ["relax", "relax_map"]

Function = Callable[..., Any]


def relax(
    A: Any,
    b: ArrayLike | None = None,
    x0: ArrayLike | None = None,
    *,
    solution: ArrayLike | None = None,
    seed: int = 0,
    progress: Function | None = None,
    **fields: Any,
) -> RelaxationResult:
    """Solve A x = b by relaxation on processors that do not wait for each other.

    All other arguments are the fields of `RelaxConfig`, which are the flags of `paracosm relax`:
    method, read, processors, pattern, synchronous, barrier, time, speeds, scale_factor, memory, the
    fields of links, cluster, latency_jitter, order, what_if, tolerance, norm, relative,
    error_tolerance, max_time, max_sweeps, detect, fault, checkpoint, matrix_free, timeline.

    The three functions of Coleman, Jensen and Sosonkina (section 4) are `method`, `pattern` and
    `time`; each is a name, an object of this package, or a function of your own. One compiled with
    `numba.njit` runs at the full speed of the simulator, a plain one is called from it:

    - `method`: `(x, rows, A, b, out)` writes the new values of `rows`, shape (k,), to `out`, shape
      (k,). `A` has the arrays `indptr`, `indices` and `data` of its rows.
    - `pattern`: `(processor, update, u)` returns the rows of a processor's next update; u is a
      random number, uniform in (0, 1). Also a Pattern, or a list of blocks of rows.
    - `time`: `(processor, update, u)` returns seconds.

    `cluster` may be a `Cluster`, whose i-th worker is processor i.

    Args:
        A: SciPy sparse or dense matrix of shape (n, n), or a Problem.
        b: right-hand side, shape (n,); by default as the Problem has it, or uniform random.
        x0: first iterate, shape (n,); zeros by default.
        solution: the solution, shape (n,), where it is known.
        seed: decides everything that is random.
        progress: called some ten times a second; see `simulate.Progress`.

    Raises:
        InputError: for what cannot be; one line.
    """
    problem = _problem(A, b, x0, solution, fields.get("method", "jacobi"))
    config = validated(RelaxConfig, {"problem": problem, **fields}, "relax")
    return solve(spec_of(config, seed), progress)


def relax_map(
    G: Function,
    x0: ArrayLike,
    *,
    solution: ArrayLike | None = None,
    seed: int = 0,
    progress: Function | None = None,
    **fields: Any,
) -> RelaxationResult:
    """Iterate x = G(x), any map, on processors that do not wait for each other.

    Args:
        G: `(x, rows, out)` writes G's components `rows`, shape (k,), at x, shape (n,), to `out`,
            shape (k,); compiled by `numba.njit`, or plain Python.
        x0: first iterate, shape (n,).

    The residual is G(x) - x. While the iteration runs, that of each component is known from its
    last update; convergence is confirmed with G computed anew for all. The other arguments are
    those of `relax`, without a method, in shared memory.

    Raises:
        InputError: for what cannot be; one line.
    """
    from scipy.sparse import csr_array

    from paracosm.relaxation.problems import Problem

    first = _vector("x0", x0)
    n = first.size
    known = None if solution is None else _vector("solution", solution)
    if known is not None and known.size != n:
        raise InputError(f"solution: {known.size} numbers for {n} components")
    problem = Problem("map", csr_array((n, n)), np.zeros(n), first, known, map=G)
    config = validated(RelaxConfig, {"problem": problem, **fields}, "relax_map")
    return solve(spec_of(config, seed), progress)


def _vector(name: str, values: Any) -> NDArray[np.float64]:
    try:
        vector = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError(f"{name} has to be a vector of numbers") from None
    if vector.ndim != 1 or vector.size == 0 or not np.isfinite(vector).all():
        raise InputError(f"{name} has to be a vector of finite numbers")
    return vector


def _problem(A: Any, b: Any, x0: Any, solution: Any, method: Any) -> Problem:
    from paracosm.relaxation.problems import Problem, problem_from

    if not isinstance(A, Problem):
        divides = isinstance(method, str | Method) and method_divides(parse_method(method))
        return problem_from(A, b, x0, solution=solution, divides_by_diagonal=divides)
    changes = {"b": b, "x0": x0, "solution": solution}
    given = {key: value for key, value in changes.items() if value is not None}
    if not given:
        return A
    return problem_from(
        A.A, given.get("b", A.b), given.get("x0", A.x0), solution=solution, name=A.name
    )
