"""Methods against their textbook forms, in NumPy and SciPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from anderson import least_residual, relax_in_turn
from numpy.typing import NDArray
from scipy.linalg import block_diag
from scipy.sparse import csr_array
from scipy.sparse.linalg import spsolve_triangular

from paracosm.relaxation import RelaxationResult, relax
from paracosm.relaxation.partition import contiguous, pattern_from_blocks
from paracosm.relaxation.problems import load_problem

Array = NDArray[np.float64]
LAPLACIAN = load_problem("laplace2d:7x9", start="random", seed=1)


def unsymmetric() -> tuple[csr_array, Array, Array]:
    rng = np.random.default_rng(8)
    A = np.where(rng.random((40, 40)) < 0.2, rng.normal(size=(40, 40)), 0.0)
    np.fill_diagonal(A, 0)
    np.fill_diagonal(A, 1.3 * abs(A).sum(axis=1) * rng.choice([-1, 1], 40))
    return csr_array(A), rng.normal(size=40), rng.normal(size=40)


SYSTEMS = [(LAPLACIAN.A, LAPLACIAN.b, LAPLACIAN.x0), unsymmetric()]
SWEEPS = 25


def stationary(A: Any, b: Array, x: Array, solve: Any) -> Array:
    """x <- x + M^-1 (b - A x), so many times."""
    for _ in range(SWEEPS):
        x = x + solve(b - A @ x)
    return x


def swept(A: Any, b: Array, x0: Array, update: str, **more: Any) -> RelaxationResult:
    given = {"tolerance": None, "max_sweeps": SWEEPS, "time": 1, **more}
    if "pattern" not in more:
        given["processors"] = 1
    result = relax(A, b, x0, method=update, **given)
    assert result.sweeps[-1] == SWEEPS
    return result


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(("update", "omega"), [("jacobi", 1.0), ("jacobi(omega=0.7)", 0.7)])
@pytest.mark.parametrize("read", ["start", "completion"])
def test_jacobi(system: tuple[Any, Array, Array], update: str, omega: float, read: str) -> None:
    A, b, x0 = system
    expected = stationary(A, b, x0, lambda r: omega * r / A.diagonal())
    found = swept(A, b, x0, update, read=read)
    np.testing.assert_allclose(found.x, expected, rtol=1e-12, atol=1e-13)
    fresh = np.linalg.norm(b - A @ expected)
    assert found.residual == pytest.approx(fresh, rel=1e-9)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize(
    ("update", "read", "omega"),
    [
        ("gauss-seidel", "start", 1.0),
        ("jacobi", "gauss-seidel", 1.0),
        ("sor(1.4)", "start", 1.4),
        ("sor(0.6)", "completion", 0.6),
    ],
)
def test_gauss_seidel_and_sor(
    system: tuple[Any, Array, Array], update: str, read: str, omega: float
) -> None:
    """M = D / omega + L, solved by SciPy."""
    A, b, x0 = system
    M = np.tril(A.toarray(), -1) + np.diag(A.diagonal() / omega)
    expected = stationary(A, b, x0, lambda r: spsolve_triangular(csr_array(M), r, lower=True))
    found = swept(A, b, x0, update, read=read)
    np.testing.assert_allclose(found.x, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("system", SYSTEMS)
def test_gauss_seidel_goes_through_the_rows_in_the_order_of_the_block(
    system: tuple[Any, Array, Array],
) -> None:
    A, b, x0 = system
    order = np.random.default_rng(3).permutation(b.size)
    expected = x0.copy()
    for _ in range(SWEEPS):
        for row in order:
            expected[row] += (b[row] - A[[row]] @ expected)[0] / A[row, row]
    found = swept(A, b, x0, "gauss-seidel", pattern=[order])
    np.testing.assert_allclose(found.x, expected, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize("system", SYSTEMS)
def test_richardson(system: tuple[Any, Array, Array]) -> None:
    A, b, x0 = system
    given = swept(A, b, x0, "richardson(0.05)")
    expected = stationary(A, b, x0, lambda r: 0.05 * r)
    np.testing.assert_allclose(given.x, expected, rtol=1e-12, atol=1e-13)
    default = swept(A, b, x0, "richardson")
    omega = 1 / np.abs(A.toarray()).sum(axis=1).max()
    expected = stationary(A, b, x0, lambda r: omega * r)
    np.testing.assert_allclose(default.x, expected, rtol=1e-12, atol=1e-13)


def test_second_order_richardson() -> None:
    A, b, x0 = SYSTEMS[0]
    x, previous = x0, x0
    for _ in range(SWEEPS):
        x, previous = x + 0.2 * (b - A @ x) + 0.4 * (x - previous), x
    found = swept(A, b, x0, "second-order-richardson(0.2, 0.4)")
    np.testing.assert_allclose(found.x, x, rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("window", "every"), [(1, 1), (3, 1), (4, 3), (2, 5)])
@pytest.mark.parametrize("system", SYSTEMS)
def test_anderson_mixes_each_block_by_itself(
    system: tuple[Any, Array, Array], window: int, every: int
) -> None:
    """Three blocks of unequal speed, which read and write at once, in the order of their times."""
    A, b, x0 = system
    blocks = np.array_split(np.arange(b.size), [b.size // 4, b.size // 2])
    times = [1.0, 1.31, 0.47]
    found = relax(
        A, b, x0, method=f"anderson({window}, {every}, omega=0.9)", pattern=list(blocks),
        time=times, read="completion", tolerance=None, max_time=9,
    )  # fmt: skip
    ends = sorted(
        (number * time, who)
        for who, time in enumerate(times)
        for number in range(1, found.updates[who] + 1)
    )
    turns = [blocks[who] for _, who in ends]
    expected = relax_in_turn(A, b, x0, turns, window, every, 0.9)
    np.testing.assert_allclose(found.x, expected, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize("system", SYSTEMS)
def test_anderson_in_one_block_is_a_jacobi_step_from_the_iterate_of_gmres(
    system: tuple[Any, Array, Array],
) -> None:
    """Walker and Ni 2011, theorem 2.2, for the system D^-1 A x = D^-1 b."""
    A, b, x0 = system
    scaled, right = A.toarray() / A.diagonal()[:, None], b / A.diagonal()
    for sweeps in (1, 2, 5, 9):
        found = relax(
            A, b, x0, method="anderson(window=20)", processors=1, time=1, tolerance=None,
            max_sweeps=sweeps + 1,
        )  # fmt: skip
        best = least_residual(scaled, right, x0, sweeps)
        np.testing.assert_allclose(found.x, best + right - scaled @ best, rtol=1e-6, atol=1e-7)


def test_anderson_with_nothing_to_mix_is_jacobi() -> None:
    given = {"processors": 6, "time": "normal(10, 3)", "max_sweeps": 40}
    jacobi, mixed = (relax(LAPLACIAN, method=each, **given) for each in ("jacobi", "anderson(0)"))
    assert jacobi.x.tobytes() == mixed.x.tobytes()
    assert mixed.updates.tolist() == jacobi.updates.tolist()


def test_anderson_solves_in_fewer_sweeps_with_few_processors_and_in_more_with_many() -> None:
    """A mixture takes what others wrote for an error of its own step; many write much."""
    problem, given = load_problem("laplace2d:10", seed=6), {"time": "normal(10, 3)"}
    sweeps = {
        (method, p): float(relax(problem, method=method, processors=p, **given).sweeps[-1])
        for method in ("jacobi", "anderson")
        for p in (1, 10)
    }
    assert sweeps["anderson", 1] < 0.6 * sweeps["jacobi", 1]
    assert sweeps["anderson", 10] > 1.5 * sweeps["jacobi", 10]


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("omega", [1.0, 0.8])
def test_block_jacobi(system: tuple[Any, Array, Array], omega: float) -> None:
    """All processors in step: M is the blocks on the diagonal, solved densely."""
    A, b, x0 = system
    pattern = contiguous(b.size, 5)
    dense = A.toarray()
    M = block_diag(*(dense[np.ix_(rows, rows)] for rows in map(pattern.block, range(5))))
    expected = stationary(A, b, x0, lambda r: omega * np.linalg.solve(M, r))
    found = swept(A, b, x0, f"block-jacobi({omega})", pattern=pattern, synchronous=True)
    np.testing.assert_allclose(found.x, expected, rtol=1e-11, atol=1e-13)


def test_block_jacobi_on_scattered_overlapping_blocks() -> None:
    A, b, x0 = SYSTEMS[1]
    rng = np.random.default_rng(5)
    deal = np.array_split(rng.permutation(40), 4)
    blocks = [np.union1d(rows, rng.integers(0, 40, 3))[::-1] for rows in deal]
    expected = x0.copy()
    for _ in range(10):  # one after the other, each reads what the one before wrote
        for rows in blocks:
            step = np.linalg.solve(A.toarray()[np.ix_(rows, rows)], (b - A @ expected)[rows])
            expected[rows] += step
    found = relax(
        A, b, x0, method="block-jacobi", pattern=blocks, time=10, read="completion",
        tolerance=None, max_time=100,
    )  # fmt: skip
    assert found.updates.tolist() == [10] * 4
    np.testing.assert_allclose(found.x, expected, rtol=1e-11, atol=1e-13)


def test_one_block_is_solved_at_once() -> None:
    A, b, x0 = SYSTEMS[1]
    found = relax(A, b, x0, method="block-jacobi", time=3, processors=1)
    assert found.status == "converged"
    assert (found.updates.tolist(), found.virtual_time) == ([1], 3.0)
    np.testing.assert_allclose(found.x, np.linalg.solve(A.toarray(), b), rtol=1e-12)


def test_gauss_seidel_in_blocks_that_are_in_step() -> None:
    """M is the lower triangle of the blocks on the diagonal."""
    A, b, x0 = SYSTEMS[0]
    pattern = contiguous(b.size, 4)
    dense = A.toarray()
    M = block_diag(*(np.tril(dense[np.ix_(rows, rows)]) for rows in map(pattern.block, range(4))))
    expected = stationary(A, b, x0, lambda r: np.linalg.solve(M, r))
    found = swept(A, b, x0, "gauss-seidel", pattern=pattern, synchronous=True)
    np.testing.assert_allclose(found.x, expected, rtol=1e-12, atol=1e-13)


def test_a_coordinate_is_relaxed_as_by_jacobi() -> None:
    A, b, x0 = SYSTEMS[1]
    chosen = set()
    for seed in range(60):
        found = relax(
            A, b, x0, method="coordinate", time=1, processors=1, tolerance=None, max_time=1,
            seed=seed,
        )  # fmt: skip
        (row,) = np.flatnonzero(found.x != x0)
        assert found.x[row] == pytest.approx(x0[row] + (b - A @ x0)[row] / A[row, row])
        chosen.add(int(row))
    assert 20 < len(chosen) <= 40  # 31 are expected of 40


@pytest.mark.parametrize(
    "spec", ["laplace2d:9x11", "laplace2d9:8", "laplace3d:4x5x6", "convection-diffusion:8,angle=30"]
)
@pytest.mark.parametrize(
    "update", ["jacobi(omega=0.9)", "second-order-richardson(0.05, 0.3)", "anderson"]
)
def test_without_a_matrix_the_same(spec: str, update: str) -> None:
    problem = load_problem(spec, start="random", seed=2)
    given = {"method": update, "processors": 6, "time": "normal(10, 2)", "max_sweeps": 60}
    matrix, stencil = (relax(problem, matrix_free=free, **given) for free in (False, True))
    assert matrix.updates.tolist() == stencil.updates.tolist()
    np.testing.assert_allclose(stencil.x, matrix.x, rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(stencil.residuals, matrix.residuals, rtol=1e-9, atol=1e-13)


@pytest.mark.parametrize("pattern", ["contiguous", "cyclic", "graph(method=bisection)"])
@pytest.mark.parametrize("update", ["jacobi", "gauss-seidel", "block-jacobi"])
def test_constant_times_and_read_at_start_are_in_step_to_the_bit(pattern: str, update: str) -> None:
    problem = load_problem("laplace2d:10", seed=6)
    given = {"pattern": pattern, "processors": 10, "method": update}
    free = relax(problem, time=10, **given)
    in_step = relax(problem, time=10, synchronous=True, **given)
    assert free.x.tobytes() == in_step.x.tobytes()
    assert free.residuals.tobytes() == in_step.residuals.tobytes()
    assert free.times.tobytes() == in_step.times.tobytes()
    assert free.residual == in_step.residual
    # Who waits for the slowest computes the same, whatever the durations are.
    waiting = relax(problem, time="normal(10, 3)", synchronous=True, **given)
    assert waiting.x.tobytes() == free.x.tobytes()
    assert waiting.virtual_time > free.virtual_time


def test_in_step_time_is_that_of_the_slowest_and_of_the_barrier() -> None:
    problem = load_problem("laplace2d:10", seed=6)
    times = [1.0, 2.0, 5.0, 3.0]
    found = relax(problem, time=times, synchronous=True, barrier=0.5, max_sweeps=20, tolerance=None)
    assert found.virtual_time == 20 * 5.5
    # One with a duration of its own each time: 5 s or 1 s, by turns.
    recorded = ["recorded(5s, 1s, cycle=true)", "recorded(1s, 2s, cycle=true)"]
    found = relax(problem, time=recorded, synchronous=True, max_sweeps=20, tolerance=None)
    assert found.virtual_time == 10 * (5 + 2)


def test_overlapping_rows_are_updated_by_all_who_have_them() -> None:
    A, b, x0 = SYSTEMS[0]
    blocks = [np.arange(0, 40), np.arange(30, 63)]
    found = relax(A, b, x0, pattern=pattern_from_blocks(blocks, 63), time=1, tolerance=None,
                  max_time=1)  # fmt: skip
    assert found.relaxations == 40 + 33
    np.testing.assert_allclose(found.x, x0 + (b - A @ x0) / A.diagonal(), rtol=1e-13)
