"""Bounds on the spectral radius of a nonnegative matrix, tightened until they meet.

For a nonnegative matrix B and any vector v > 0

    min_i (B v)_i / v_i  <=  rho(B)  <=  max_i (B v)_i / v_i         (Collatz 1942, Wielandt 1950)

so that a good v proves its own answer, to rounding.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from paracosm.arrays import Codes, Floats, Ints

TIGHT = 1e-9  # relative width of the bounds at which they count as the value
ROUNDING = 1e-13
# Of sparse LU: above, its time and memory are hard to foresee.
_LARGEST_FACTORED, _MOST_FACTORED = 10_000, 500_000  # rows, entries


@dataclass(frozen=True)
class Bounds:
    """What is known of rho(B)."""

    lower: float  # true to rounding, as `upper`
    upper: float
    dominant: bool  # in every irreducible block no row sum exceeds 1, not all are 1 (Taussky 1949)
    estimate: float | None = None  # by an eigenvalue solver, within the bounds


class Budget:
    """Operations that may still be spent: numbers read, by which the machine's load moves nothing.

    One core reads some 5e8 a second.
    """

    def __init__(self, operations: float) -> None:
        self.left = operations

    def spend(self, operations: float) -> None:
        self.left -= operations


@np.errstate(over="ignore", invalid="ignore")  # of entries near the largest double
def bound_radius(B: Any, guess: Floats | None, scale: Floats | None, budget: Budget) -> Bounds:
    """Bound rho(B) of a nonnegative CSR array: the largest over its irreducible blocks."""
    from scipy.sparse.csgraph import connected_components

    number, label = connected_components(B, connection="strong")
    lone = float(B.diagonal().max(initial=0.0))  # rho of a block of one row; elsewhere below rho
    start = np.zeros(1, dtype=np.int64)
    if number > 1:
        sizes = np.bincount(label)
        kept = np.flatnonzero(sizes[label] > 1)
        kept = kept[np.argsort(label[kept], kind="stable")]
        if kept.size == 0:
            return Bounds(lone, lone, lone < 1 - ROUNDING)
        B = _blocks_alone(B, label, kept)
        guess = guess if guess is None else guess[kept]
        scale = scale if scale is None else scale[kept]
        start = np.flatnonzero(np.diff(label[kept], prepend=-1))
    blocks = _Blocks(B, start, scale, budget)
    least, most = blocks.least(blocks.rows), blocks.most(blocks.rows)
    if not np.isfinite(blocks.rows).all():  # no vector has finite ratios in such a row
        return Bounds(max(lone, float(blocks.lower.max())), math.inf, False)
    dominant = lone < 1 - ROUNDING and np.all((most <= 1 + ROUNDING) & (least < 1 - 1e-9))
    bounds = blocks.improve(guess)
    lower, upper = max(lone, bounds.lower), max(lone, bounds.upper)
    estimate = None if bounds.estimate is None else max(lone, bounds.estimate)
    return Bounds(lower, upper, bool(dominant), estimate)


def _blocks_alone(B: Any, label: Codes, kept: Ints) -> Any:
    """Return B on the rows `kept`, without the entries that join different blocks."""
    from scipy.sparse import csr_array

    B = B[kept][:, kept].tocoo()
    row, column = B.coords
    inner = label[kept][row] == label[kept][column]
    return csr_array((B.data[inner], (row[inner], column[inner])), shape=B.shape)


class _Blocks:
    """A nonnegative block-diagonal matrix of irreducible blocks; block k begins at `start[k]`."""

    def __init__(self, B: Any, start: Ints, scale: Floats | None, budget: Budget) -> None:
        self.B = B
        self.budget = budget
        self.scale = scale
        self.start = start
        self.size = np.diff(start, append=B.shape[0])
        self.rows = np.asarray(B.sum(axis=1)).ravel()
        columns = np.asarray(B.sum(axis=0)).ravel()
        self.lower = np.maximum(self.least(self.rows), self.least(columns))
        self.upper = np.minimum(self.most(self.rows), self.most(columns))

    def least(self, values: Floats) -> Floats:
        return np.minimum.reduceat(values, self.start)

    def most(self, values: Floats) -> Floats:
        return np.maximum.reduceat(values, self.start)

    def over_rows(self, values: Floats) -> Floats:
        return np.repeat(values, self.size)

    def improve(self, guess: Floats | None) -> Bounds:
        """Tighten the bounds of every block until they meet or the budget is spent."""
        n = self.B.shape[0]
        v = self.tighten(np.ones(n) if guess is None else guess)
        factored = n <= _LARGEST_FACTORED and self.B.nnz <= _MOST_FACTORED
        steps, kept = 0, 3 / 4 * self.budget.left  # for what is not a power of B
        while self.open(kept) and (steps < 10 or not factored):
            v = self.tighten(self.B @ v + v)  # B + I, since B alone may be periodic
            steps += 1
        estimate = None
        if self.open() and factored:
            self.noda(v)
        if self.open() and n <= LARGEST_DENSE:
            estimate = float(np.abs(np.linalg.eigvals(self.B.toarray())).max())
        elif self.open():
            estimate, v = self.eigenvalue(v)
            v = self.tighten(v)
        while self.open() and estimate is None:
            v = self.tighten(self.B @ v + v)
        lower, upper = float(self.lower.max()), float(self.upper.max())
        if estimate is not None:
            estimate = min(max(estimate, lower), upper)
        return Bounds(lower, upper, False, estimate)

    def open(self, kept: float = 0.0) -> bool:
        """Whether bounds are apart, and more than `kept` of the budget is left."""
        lower, upper = self.lower.max(), self.upper.max()
        return bool(upper - lower > TIGHT * upper) and self.budget.left > kept

    def tighten(self, v: Floats) -> Floats:
        """Apply Collatz's and Wielandt's bounds to v, made positive and scaled; return it."""
        self.budget.spend(2 * self.B.nnz + 12 * v.size)  # with the product that made v
        v = np.abs(v)
        largest = self.most(v)
        v /= self.over_rows(np.where(largest > 0, largest, 1.0))  # a vector may miss a whole block
        v = np.maximum(v, 1e-280)
        ratio = (self.B @ v) / v
        self.lower = np.maximum(self.lower, self.least(ratio))
        self.upper = np.minimum(self.upper, self.most(ratio))
        return v

    def noda(self, v: Floats) -> None:
        """Noda, Numer. Math. 17 (1971): inverse iteration whose shift is the upper bound.

        (upper I - B) is an M-matrix, so that the solution stays positive; convergence is quadratic.
        """
        from scipy.sparse import diags_array
        from scipy.sparse.linalg import splu

        for _ in range(40):
            if not self.open():
                return
            apart = self.upper - self.lower
            # A shift that equals rho would make the matrix singular.
            shift = self.upper + np.maximum(1e-3 * apart, 1e-13 * self.upper)
            shifted = (diags_array(self.over_rows(shift)) - self.B).tocsc()
            try:
                factors = splu(
                    shifted,
                    permc_spec="MMD_AT_PLUS_A",
                    diag_pivot_thresh=0.0,  # an M-matrix needs no pivoting
                    options={"SymmetricMode": True},
                )
                solution = factors.solve(v)
            except RuntimeError:  # singular to rounding: the bounds are as good as they get
                return
            if not np.all(np.isfinite(solution)):
                return
            self.budget.spend(50 * factors.nnz)
            v = self.tighten(solution)
            if (self.upper - self.lower).max() > 0.99 * apart.max():
                return  # rounding has stopped it

    def eigenvalue(self, v: Floats) -> tuple[float | None, Floats]:
        """Return the largest eigenvalue, None if the budget is spent, and its vector if known.

        A symmetric matrix has no eigenvalue below what Lanczos has found, which is a bound.
        """
        symmetric = symmetrised(self.B, self.scale)
        if symmetric is not None:
            assert self.scale is not None
            _, largest, converged = lanczos(symmetric, v * self.scale, self.budget)
            # Of one block only, but from here on only the largest bound is asked for.
            self.lower = np.maximum(self.lower, largest * (1 - ROUNDING))
            return largest if converged else None, v
        found = arnoldi(self.B, "LR", 1, v, self.budget)
        if found is None:
            return None, v
        values, vectors = found
        at = int(values.real.argmax())
        return float(values[at].real), vectors[:, at].real


LARGEST_DENSE = 100  # rows, for eigenvalues by LAPACK


def signed_radius(C: Any, scale: Floats | None, budget: Budget) -> float | None:
    """Return rho(C), or None where it would take long, or entries have overflown."""
    n = C.shape[0]
    if not np.isfinite(C.data).all():
        return None
    if n <= LARGEST_DENSE:
        return float(np.abs(np.linalg.eigvals(C.toarray())).max())
    v = np.random.default_rng(0).uniform(0.5, 1.5, n)
    symmetric = symmetrised(C, scale)
    if symmetric is not None:
        smallest, largest, converged = lanczos(symmetric, v, budget)
        return max(-smallest, largest) if converged else None
    values = arnoldi(C, "LM", 4, v, budget)
    return None if values is None else float(np.abs(values[0]).max())


def symmetrised(C: Any, scale: Floats | None) -> Any | None:
    """Return diag(scale) C diag(scale)^-1 if that is symmetric."""
    from scipy.sparse import diags_array

    if scale is None:
        return None
    scaled = (diags_array(scale) @ C @ diags_array(1 / scale)).tocsr()
    symmetric = abs(scaled - scaled.T).max() <= 1e-12 * abs(scaled).max()
    return scaled if symmetric else None


def lanczos(S: Any, v: Floats, budget: Budget) -> tuple[float, float, bool]:
    """Return the extreme eigenvalues of the symmetric S, and whether they have settled.

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
        budget.spend(S.nnz + 8 * v.size)
        over = off[-1] <= 1e-14 * max(map(abs, diagonal)) or steps == v.size
        if steps >= check or over or budget.left <= 0:
            check = steps + 25 + steps // 8
            budget.spend(1000 * steps)
            earlier = -smallest, largest
            smallest, largest = (
                float(eigvalsh_tridiagonal(diagonal, off[:-1], select="i", select_range=(k, k))[0])
                for k in (0, steps - 1)
            )
            moved = max(-smallest - earlier[0], largest - earlier[1])
            if over or moved <= 1e-12 * max(-smallest, largest):
                return smallest, largest, True
            if budget.left <= 0:
                return smallest, largest, False
        q, before = w / off[-1], q


def arnoldi(
    C: Any, which: Literal["LR", "LM"], number: int, v: Floats, budget: Budget
) -> tuple[Any, Any] | None:
    """Return eigenvalues of C and their vectors by ARPACK, or None if the budget is spent."""
    from scipy.sparse.linalg import ArpackError, LinearOperator, eigs

    def multiply(x: Floats) -> Floats:
        budget.spend(C.nnz + 4 * size * x.size)
        if budget.left <= 0:
            raise _SpentError
        return np.asarray(C @ x)

    size = min(60, C.shape[0])
    operator = LinearOperator(C.shape, matvec=multiply, dtype=np.float64)
    try:
        values, vectors = eigs(operator, k=number, which=which, v0=v, ncv=size, maxiter=10_000)
    except (_SpentError, ArpackError):
        return None
    return values, vectors


class _SpentError(Exception):
    """The budget is spent."""


def _dot(a: Floats, b: Floats) -> float:
    # Not BLAS, whose threads wait for each other when the machine has other work.
    return float(np.einsum("i,i->", a, b))
