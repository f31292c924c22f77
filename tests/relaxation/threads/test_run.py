"""Real threads: the right iterates, the right stamps, and never left running."""

from __future__ import annotations

import signal
import threading
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.sparse import csr_array
from scipy.sparse.linalg import spsolve

from paracosm.errors import InputError
from paracosm.relaxation.problems import Problem, load_problem
from paracosm.relaxation.threads.run import VARIANTS, Limits, Run, run_threads

SMALL = "laplace2d:6"
FEW = Limits(seconds=30.0, recorded=2000)
NEVER = 1e-300


def jacobi(problem: Problem, sweeps: int) -> NDArray[np.float64]:
    """Textbook Jacobi: x <- D^-1 (b - (L + U) x), all components at once."""
    A = problem.A.toarray()
    diagonal = np.diag(A)
    x = problem.x0
    for _ in range(sweeps):
        x = (problem.b - (A - np.diag(diagonal)) @ x) / diagonal
    return x


@pytest.mark.parametrize("variant", VARIANTS)
def test_one_thread_makes_textbook_jacobi_sweeps(variant: str) -> None:
    problem = load_problem(SMALL, seed=3)
    run = run_threads(problem, variant, 1, NEVER, limits=replace(FEW, iterations=7))
    assert (run.status, run.totals[0].iterations) == ("stopped", 7)
    np.testing.assert_allclose(run.x, jacobi(problem, 7), rtol=1e-12, atol=1e-15)


@pytest.mark.parametrize("timed", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_threads_solve_the_system(variant: str, timed: bool) -> None:
    problem = load_problem(SMALL, seed=1)
    run = run_threads(problem, variant, 3, 1e-10, timed=timed, limits=FEW)
    assert run.status == "converged"
    np.testing.assert_allclose(run.x, spsolve(problem.A.tocsc(), problem.b), atol=1e-8)
    assert run.residual == np.linalg.norm(problem.b - problem.A @ run.x)
    assert 0 < run.time <= run.joined
    assert all(thread.iterations > 0 for thread in run.totals)
    assert (run.recording is not None) == timed


@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.slow)])
def test_bands_stop_only_where_the_residual_is_small(seed: int) -> None:
    # More threads than cores: those without one leave the others at rest against old edges.
    problem = load_problem(SMALL, seed=seed)
    run = run_threads(problem, "stencil", 6, 1e-10, timed=False, limits=FEW)
    assert run.status == "converged"
    assert run.residual <= 1e-10 * (1 + 1e-3)


@pytest.mark.parametrize("variant", ["race", "safe"])
def test_threads_solve_what_is_no_grid(variant: str) -> None:
    rng = np.random.default_rng(5)
    dense = rng.uniform(-1, 1, (20, 20)) * (rng.random((20, 20)) < 0.3)
    np.fill_diagonal(dense, 1 + np.abs(dense).sum(axis=1))
    problem = Problem("dominant", csr_array(dense), rng.random(20), rng.random(20))
    run = run_threads(problem, variant, 2, 1e-10, limits=FEW)
    np.testing.assert_allclose(run.x, np.linalg.solve(dense, problem.b), atol=1e-9)


@pytest.mark.parametrize("variant", VARIANTS)
def test_stamps_follow_each_other_without_a_gap(variant: str) -> None:
    run = run_threads(load_problem("laplace2d:20"), variant, 2, 0.3, limits=Limits(seconds=30.0))
    recording = run.recording
    assert recording is not None
    assert recording.complete
    for thread, stamps in zip(run.totals, recording.workers, strict=True):
        assert len(stamps) == thread.iterations
        assert np.all(np.diff(stamps, axis=1) >= 0)
        assert stamps[0, 0] == 0
        assert np.array_equal(stamps[1:, 0], stamps[:-1, 3])
        spans = 1e-9 * np.diff(stamps, axis=1)
        np.testing.assert_allclose(thread.sums[0, :3], spans.sum(axis=0), rtol=1e-9)
        np.testing.assert_allclose(thread.sums[1, :3], (spans**2).sum(axis=0), rtol=1e-9)


def test_what_does_not_fit_is_counted_but_not_recorded() -> None:
    limits = Limits(iterations=50, seconds=30.0, recorded=10)
    run = run_threads(load_problem(SMALL), "race", 1, NEVER, limits=limits)
    assert run.recording is not None
    assert not run.recording.complete
    assert (len(run.recording.workers[0]), run.recording.iterations) == (10, (50,))
    recorded = 1e-9 * float(run.recording.workers[0][-1, 3])
    assert run.totals[0].sums[0, 3] > recorded


def test_checks_go_on_after_the_detecting_one_when_asked() -> None:
    # The thread that checks can run on while the one that relaxes waits for a core.
    many = replace(FEW, recorded=1 << 20)
    run = run_threads(load_problem(SMALL), "safe", 1, 1e-6, lingering=4, limits=many)
    recording = run.recording
    assert recording is not None
    assert run.checks == recording.detecting + 5
    assert recording.norms[recording.detecting] <= 1e-6
    assert np.all(recording.norms[: recording.detecting] > 1e-6)


@pytest.mark.parametrize("variant", VARIANTS)
def test_the_time_limit_stops_a_run(variant: str) -> None:
    problem = load_problem("laplace2d:200")
    run = run_threads(problem, variant, 2, NEVER, limits=Limits(seconds=0.05))
    assert run.status == "stopped"
    assert run.time == run.joined < 20


@pytest.mark.parametrize("variant", ["race", "safe"])
def test_a_diverging_iteration_is_stopped(variant: str) -> None:
    problem = Problem("diverging", csr_array([[1.0, 2.0], [2.0, 1.0]]), np.ones(2), np.zeros(2))
    run = run_threads(problem, variant, 1, 1e-6, limits=Limits(seconds=30.0))
    assert run.status == "diverged"


@pytest.mark.parametrize("variant", VARIANTS)
def test_an_interrupt_leaves_no_thread_behind(variant: str) -> None:
    def interrupt(_number: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = threading.active_count()
    problem = load_problem("laplace2d:200")
    run_threads(problem, variant, 2, 1e3)  # compiled beforehand
    old = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    try:
        with pytest.raises(KeyboardInterrupt):
            run_threads(problem, variant, 2, NEVER, limits=FEW)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert threading.active_count() == before


def refused(problem: Problem, variant: str, threads: int) -> str:
    with pytest.raises(InputError) as error:
        run_threads(problem, variant, threads, 1e-6)
    return str(error.value)


def test_bad_input_is_refused() -> None:
    small = load_problem(SMALL)
    assert 'did you mean "safe"' in refused(small, "save", 1)
    assert "from 1 to 36" in refused(small, "race", 37)
    assert "from 1 to 6" in refused(small, "stencil", 7)
    assert "threads" in refused(small, "race", 0)
    assert "5-point" in refused(load_problem("laplace2d9:6"), "stencil", 1)
    zero = Problem("zero", csr_array([[1.0, 0.5], [0.5, 0.0]]), np.ones(2), np.zeros(2))
    assert "row 1" in refused(zero, "race", 1)


def test_a_run_says_what_it_was() -> None:
    run: Run = run_threads(load_problem(SMALL), "safe", 2, 1e-6, limits=FEW)
    problem = load_problem(SMALL)
    fresh = np.linalg.norm(problem.b - problem.A @ run.x)
    assert (run.variant, run.threads, run.timed) == ("safe", 2, True)
    assert run.residual == pytest.approx(fresh, rel=1e-9)
