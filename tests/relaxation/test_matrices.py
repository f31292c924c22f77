"""Real matrices: what rho(|C|) promises is kept (Theorem 1), and bcsstk16 diverges."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from statistics import mean

import numpy as np
import pytest
from scipy.sparse.linalg import spsolve

from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.problems import Problem, load_matrix
from paracosm.relaxation.run import relax, run_relaxation
from paracosm.relaxation.spectrum import iteration_radius

MATRICES = Path(__file__).parents[1] / "data" / "matrices"
TIME = "normal(10, 1)"

# Sweeps to a relative residual of 1e-6 where the solution is 1 everywhere: all in step; 10
# processors (LFAT5: 7) that read at the start; at completion. Measured independently.
SWEEPS = {
    "gr_30_30.mtx.gz": (1393, 1574, 1231),
    "mesh1e1.mtx": (56, 34, 15),
    "tomography.mtx.gz": (370, 74, 18),
    "fs_183_1.mtx": (59, 80, 34),
    "pde900.mtx.gz": (351, 384, 320),
    "LFAT5.mtx": (508, 391, 135),
}
FAST = ("gr_30_30.mtx.gz", "mesh1e1.mtx", "tomography.mtx.gz", "fs_183_1.mtx")


def problem(file: str) -> Problem:
    return load_matrix(MATRICES / file, rhs="ones-solution")


@pytest.mark.parametrize("file", SWEEPS)
def test_sweeps(file: str) -> None:
    given = {"processors": 7 if file == "LFAT5.mtx" else 10, "relative": True}
    in_step, at_start, at_completion = SWEEPS[file]
    system = problem(file)
    synchronous = relax(system, time=1, synchronous=True, **given)
    assert (synchronous.status, synchronous.sweeps[-1]) == ("converged", in_step)
    for read, expected in (("start", at_start), ("completion", at_completion)):
        runs = [relax(system, time=TIME, read=read, seed=seed, **given) for seed in range(5)]
        assert all(run.status == "converged" for run in runs)
        # In small blocks the order of the first few updates counts.
        found = mean(float(run.sweeps[-1]) for run in runs)
        assert found == pytest.approx(expected, rel=0.06, abs=1)


@cache
def smallest(file: str) -> float:
    """Return the smallest singular value."""
    return float(np.linalg.svd(problem(file).A.toarray(), compute_uv=False)[-1])


# Uneven durations, and one processor that is five times slower and irregular.
UNEVEN = ["normal(10, 3)"] * 9 + ["lognormal(50, 1)"]
PATTERNS = ("contiguous", "cyclic", "random", "graph(method=bisection)")


def test_of_which_matrices_it_is_promised() -> None:
    below_one = {
        path.name
        for path in MATRICES.glob("*.mtx*")
        if iteration_radius(problem(path.name).A).below_one
    }
    assert below_one == {*FAST, "494_bus.mtx"}


@pytest.mark.parametrize("file", FAST)
@pytest.mark.parametrize("pattern", PATTERNS)
def test_where_rho_is_below_1_every_schedule_converges(file: str, pattern: str) -> None:
    system = problem(file)
    result = relax(system, time=UNEVEN, pattern=pattern, processors=10, relative=True, seed=4)
    assert result.status == "converged"
    fresh = np.linalg.norm(system.b - system.A @ result.x)
    assert fresh <= 1e-6 * np.linalg.norm(system.b)
    assert result.residual == pytest.approx(fresh, rel=1e-12)
    solution = spsolve(system.A.tocsc(), system.b)
    assert np.linalg.norm(result.x - solution) <= 1.001 * fresh / smallest(file) + 1e-9


@pytest.mark.parametrize("pattern", PATTERNS)
def test_where_rho_is_nearly_1_it_falls(pattern: str) -> None:
    """494_bus: rho(|C|) is 0.99997, and to converge takes millions of sweeps."""
    system = problem("494_bus.mtx")
    given = {"time": UNEVEN, "pattern": pattern, "processors": 10, "seed": 4}
    result = relax(system, max_sweeps=10_000, tolerance=None, **given)
    assert result.residual < 2e-3 * result.initial_residual
    half = result.sweeps > 5000
    assert result.errors[half].max() < result.errors[~half].min()


def growth_of_jacobi(system: Problem) -> float:
    """Return the factor of the residual a sweep, by sweeps of textbook Jacobi."""
    x, norms = system.x0, []
    for _ in range(34):
        r = system.b - system.A @ x
        norms.append(np.linalg.norm(r))
        x = x + r / system.A.diagonal()
    return float((norms[-1] / norms[17]) ** (1 / (len(norms) - 18)))


def test_bcsstk16_diverges_and_says_so() -> None:
    system = problem("bcsstk16.mtx.gz")
    given = {"processors": 10, "relative": True, "max_sweeps": 300}
    in_step = relax(system, time=1, synchronous=True, **given)
    assert in_step.status == "diverged"
    assert in_step.growth_rate == pytest.approx(growth_of_jacobi(system), rel=0.02)
    for read in ("start", "completion"):
        result = relax(system, time=TIME, read=read, **given)
        assert result.status == "diverged"
        assert 1.5 < result.growth_rate < 2.9
        assert "diverged" in result.reason
        assert f"{result.growth_rate:.4g}" in result.reason
        assert len(result.residuals) > 100  # what was measured is kept
        assert result.residuals[-1] > 1e10 * result.initial_residual
    # In Gauss-Seidel order it falls: the matrix is symmetric and positive definite.
    for processors in (1, 10):
        falling = relax(
            system, time=TIME, read="gauss-seidel", processors=processors, max_sweeps=100
        )
        assert falling.residual < 0.01 * falling.initial_residual


def test_the_summary_of_a_diverging_run() -> None:
    config = RelaxConfig(matrix=MATRICES / "bcsstk16.mtx.gz", processors=10)
    said: list[str] = []
    run = run_relaxation(config, announce=said.append)
    assert run.summary["status"] == "diverged"
    assert run.summary["growth_rate"] > 1
    assert run.summary["spectral_radius"]["lower"] > 1
    assert said == [run.summary["spectral_radius"]["sentence"]]
