"""The matrix C of a relaxation method, and its spectral radius."""

import math
import weakref
from collections import deque
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np

from paracosm.arrays import Floats
from paracosm.errors import InputError, unknown
from paracosm.relaxation.methods import (
    Anderson,
    BlockJacobi,
    Coordinate,
    Jacobi,
    Method,
    Richardson,
    SecondOrderRichardson,
    method_gain,
)
from paracosm.relaxation.problems import Stencil
from paracosm.relaxation.spec import RunSpec
from paracosm.relaxation.spectral_bounds import (
    ROUNDING,
    TIGHT,
    Bounds,
    Budget,
    bound_radius,
    signed_radius,
)

Name = Literal["jacobi", "gauss-seidel", "sor", "richardson", "second-order-richardson"]
NAMES: tuple[Name, ...] = get_args(Name)

BUDGET = 5e8  # numbers read: about a second


def iteration_radius(
    A: Any,
    method: Name = "jacobi",
    *,
    omega: float = 1.0,
    beta: float = 0.0,
    stencil: Stencil | None = None,
    budget: float = BUDGET,
) -> "SpectralRadius":
    """Return rho(|C|) of the map that `method` applies to each component; see `iteration_matrix`.

    `stencil` is the same matrix as a stencil, whose eigenvector may be known; once `budget`
    numbers have been read, bounds are given instead of a value.
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


def iteration_matrix(A: Any, method: Name, omega: float = 1.0, beta: float = 0.0) -> Any:
    """Return the C in x_i <- (C x + d)_i, as a SciPy CSR array.

        jacobi, gauss-seidel, sor   I - omega D^-1 A
        richardson                  I - omega A
        second-order-richardson     [[(1 + beta) I - omega A, -beta I], [I, 0]], acting on
                                    each component together with its previous value

    Gauss-Seidel and SOR apply the same map to one component as (weighted) Jacobi and differ only in
    what they read when, which is a schedule; so Theorem 1 asks for the same matrix.
    """
    from scipy.sparse import block_array, csr_array, eye_array

    if method not in NAMES:
        raise unknown("method", method, NAMES)
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
    with np.errstate(over="ignore"):
        data = -omega * (A.data / diagonal[rows])  # whose ratio may be a number where 1 / d is none
    data[rows == A.indices] = 1 - omega
    return csr_array((data, A.indices, A.indptr), shape=A.shape)


def _grid_vector(stencil: Stencil) -> Floats | None:
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


def _with_previous(vector: Floats, C: Any) -> Floats:
    """Extend the vector v of M to (v, v / s) of [[M, beta I], [I, 0]], s² = rho s + beta."""
    n = vector.size
    middle = int(vector.argmax())
    rho = float((abs(C[[middle]][:, :n]) @ vector)[0]) / vector[middle]
    beta = abs(float(C[middle, n + middle]))
    return np.concatenate([vector, vector / ((rho + math.sqrt(rho**2 + 4 * beta)) / 2)])


_DECIDED = 1e-6  # how far from 1 a solver's eigenvalue must be when bounds do not decide


@dataclass(frozen=True)
class SpectralRadius:
    """rho(|C|), as far as it is known, and what it means for asynchronous convergence."""

    value: float | None  # None where it is only bounded
    lower: float  # bounds, true to rounding
    upper: float
    # whether rho(|C|) < 1, by the bounds or else by the value; None if undecided
    below_one: bool | None
    # rho(C), which decides synchronous convergence; None where it was not computed
    signed: float | None
    sentence: str  # the meaning in plain words


def spectral_radius(
    C: Any, *, guess: Floats | None = None, scale: Floats | None = None, budget: float = BUDGET
) -> SpectralRadius:
    """Return rho(|C|), rho(C) where it is cheap, and what they mean, for any sparse square C.

    Args:
        C: SciPy CSR array, shape (n, n); for PageRank, the damping times the transition matrix.
        guess: a positive vector near the eigenvector of |C|, shape (n,); never needed.
        scale: s for which diag(s) C diag(s)^-1 may be symmetric, shape (n,); never needed.
        budget: numbers that may be read before bounds are given instead of values, some 5e8 a
            second.
    """
    left = Budget(budget)
    bounds = bound_radius(abs(C), guess, scale, left)
    value = _value(bounds)
    nonnegative = C.nnz == 0 or C.data.min() >= 0.0
    signed = value if nonnegative else signed_radius(C, scale, left)
    below_one = _below_one(value, bounds)
    sentence = _sentence(value, bounds, below_one, signed)
    return SpectralRadius(value, bounds.lower, bounds.upper, below_one, signed, sentence)


def _value(bounds: Bounds) -> float | None:
    if bounds.upper == math.inf:
        return None
    if bounds.upper - bounds.lower <= TIGHT * bounds.upper:
        return (bounds.lower + bounds.upper) / 2
    return bounds.estimate


def _below_one(value: float | None, bounds: Bounds) -> bool | None:
    if bounds.dominant or bounds.upper < 1 - ROUNDING:
        return True
    if bounds.lower >= 1 - ROUNDING:
        return False
    return value < 1 if value is not None and abs(value - 1) > _DECIDED else None


def _sentence(
    value: float | None, bounds: Bounds, below_one: bool | None, signed: float | None
) -> str:
    if value is not None:
        known = f"rho(|C|) = {_digits(value)}"
    elif bounds.lower == math.inf:
        known = "rho(|C|) is larger than floating-point numbers"
    elif bounds.upper == math.inf:
        known = f"rho(|C|) is at least {_digits(bounds.lower)}"
    else:
        known = f"rho(|C|) is between {_digits(bounds.lower)} and {_digits(bounds.upper)}"
    if below_one:
        if value is None:
            reason = " by diagonal dominance" if bounds.upper >= 1 - ROUNDING else ""
            known += f" and below 1{reason}"
        else:
            known += " < 1"
        return f"{known}: every asynchronous schedule converges (Theorem 1)"
    if signed is None:
        synchronous = ""
    elif signed < 1:
        synchronous = f"; synchronous updates converge: rho(C) = {_digits(signed)}"
    else:
        synchronous = f"; synchronous updates do not converge: rho(C) = {_digits(signed)}"
    if below_one is None:
        return f"{known}: whether Theorem 1 applies is not decided{synchronous}"
    above = " >= 1" if value is not None else ", not below 1"
    return (
        f"{known}{above}: Theorem 1 does not apply; there are schedules that do not converge, but "
        f"others may, since its condition is sufficient, not necessary{synchronous}"
    )


def _digits(value: float) -> str:
    """Write four decimals, or as many as tell a value from 1."""
    for digits in range(4, 13):
        text = f"{value:.{digits}f}"
        if float(text) != 1 or value == 1:
            return text
    return "1"


def spectrum_of(spec: RunSpec) -> SpectralRadius | None:
    """Return rho(|C|) of the run's iteration matrix, computed or bounded; None where there is none:
    for a map, an update function of the user's, and Anderson's mixture, which is no linear map.
    """
    method, problem = spec.method, spec.problem
    if method is None or isinstance(method, Anderson):
        return None
    asked = _with_known_matrix(method, spec)
    for A, known, radius in _KNOWN:
        if A() is problem.A and known == asked:
            return radius
    name, omega, beta = asked
    radius = iteration_radius(problem.A, name, omega=omega, beta=beta, stencil=problem.stencil)
    _KNOWN.append((weakref.ref(problem.A), asked, radius))
    return radius


# A run, its baseline and the run without changes have the same matrix.
_KNOWN: deque[tuple[Any, tuple[Any, float, float], SpectralRadius]] = deque(maxlen=4)


def proves_convergence(spec: RunSpec) -> bool:
    """Say whether the spectral radius proves that a run converges, whatever its residual does.

    With rho(|C|) < 1 no update, however old the values that it reads, makes the error larger in a
    weighted maximum norm (Theorem 1); with rho(C) < 1, synchronous sweeps of the method converge.
    """
    radius = spectrum_of(spec)
    if radius is None:
        return False
    if radius.below_one:
        return True
    return _sweeps_in_step(spec) and radius.signed is not None and radius.signed < 1 - _DECIDED


def _sweeps_in_step(spec: RunSpec) -> bool:
    """Whether every sweep of a run is x <- C x + d of the whole vector."""
    config = spec.config
    return (
        config.synchronous
        and config.memory == "shared"
        and spec.read == "start"
        and isinstance(spec.method, Jacobi | Richardson | SecondOrderRichardson)
        and len(spec.patterns) == 1
        and spec.choose is None
        and spec.pattern.blocks == spec.processors
        and not config.fault
        and config.checkpoint is None
    )


def _with_known_matrix(method: Method, spec: RunSpec) -> tuple[Any, float, float]:
    """Return the method whose matrix decides: Jacobi for local solves.

    Where rho(|C|) of Jacobi is below 1, A is an H-matrix, and that of exact local solves is no
    larger (e.g. Frommer, Szyld, J. Comput. Appl. Math. 123, 2000).
    """
    if isinstance(method, Richardson | SecondOrderRichardson):
        omega = float(method_gain(method, spec.problem.A)[0])
        beta = method.beta if isinstance(method, SecondOrderRichardson) else 0.0
        return method.name, omega, beta
    assert method.omega is not None
    as_jacobi = isinstance(method, Coordinate | BlockJacobi)
    return "jacobi" if as_jacobi else method.name, method.omega, 0.0
