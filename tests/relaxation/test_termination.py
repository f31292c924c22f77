"""When an iteration ends, who notices, and what it then says."""

from __future__ import annotations

from math import ceil, inf
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse.linalg import spsolve

from paracosm.relaxation import RelaxationResult, relax
from paracosm.relaxation.problems import load_problem

PROBLEM = load_problem("laplace2d:8", seed=5)
SOLUTION = spsolve(PROBLEM.A.tocsc(), PROBLEM.b)
GIVEN: dict[str, Any] = {
    "processors": 8,
    "time": "normal(10, 2)",
    "max_sweeps": 5000,
    "seed": 1,
}


def run(**more: Any) -> RelaxationResult:
    return relax(PROBLEM, **{**GIVEN, **more})


def residual(result: RelaxationResult, norm: float = 2) -> float:
    return float(np.linalg.norm(PROBLEM.b - PROBLEM.A @ result.x, norm))


@pytest.mark.parametrize("norm", [2, inf])
@pytest.mark.parametrize("relative", [False, True])
@pytest.mark.parametrize("read", ["start", "completion"])
def test_the_first_instant_within_the_tolerance(norm: float, relative: bool, read: str) -> None:
    start = np.linalg.norm(PROBLEM.b, norm)
    limit = 1e-5 * (start if relative else 1)
    given = {"norm": norm, "relative": relative, "read": read, "tolerance": 1e-5}
    result = run(**given)
    assert result.status == "converged"
    assert result.tolerance == pytest.approx(limit, rel=1e-15)
    assert result.initial_residual == pytest.approx(start, rel=1e-15)
    assert residual(result, norm) <= limit
    assert result.residual == pytest.approx(residual(result, norm), rel=1e-12)
    # An instant earlier it was not.
    before = run(**given, max_time=np.nextafter(result.virtual_time, 0))
    assert before.status == "stopped"
    assert before.updates.sum() == result.updates.sum() - 1
    assert residual(before, norm) > limit
    assert before.residual == pytest.approx(residual(before, norm), rel=1e-12)


@pytest.mark.parametrize("norm", [2, inf])
def test_error_tolerance(norm: float) -> None:
    given = {"solution": SOLUTION, "error_tolerance": 1e-5, "tolerance": None, "norm": norm}
    result = run(**given)
    assert result.status == "converged"
    error = np.linalg.norm(result.x - SOLUTION, norm)
    assert error <= 1e-5
    assert result.error == pytest.approx(error, rel=1e-9)
    before = run(**given, max_time=np.nextafter(result.virtual_time, 0))
    assert before.status == "stopped"
    assert np.linalg.norm(before.x - SOLUTION, norm) > 1e-5


def test_either_tolerance_is_enough() -> None:
    by_error = run(solution=SOLUTION, error_tolerance=1e-2, tolerance=1e-9)
    assert by_error.status == "converged"
    assert by_error.residual > 1e-9
    by_residual = run(solution=SOLUTION, error_tolerance=1e-9, tolerance=1e-2)
    assert by_residual.status == "converged"
    assert by_residual.error > 1e-9


def test_maximum_time_is_the_time_at_the_end() -> None:
    result = run(max_time=123.4)
    assert (result.status, result.virtual_time) == ("stopped", 123.4)
    assert result.last_update.max() <= 123.4
    assert "123.4" in result.reason


def test_an_instant_at_the_maximum_time_still_counts() -> None:
    assert run(time=10, max_time=50).updates.tolist() == [5] * 8


def test_maximum_sweeps() -> None:
    result = run(max_sweeps=7.5)
    assert result.status == "stopped"
    # At the first instant with so many, whose block is 8 of 64 rows.
    assert 7.5 * 64 <= result.relaxations < 7.5 * 64 + 8
    assert result.sweeps[-1] == result.relaxations / 64


def test_a_first_iterate_that_is_the_solution() -> None:
    result = relax(PROBLEM.A, PROBLEM.b, SOLUTION, **GIVEN)
    assert (result.status, result.virtual_time, result.relaxations) == ("converged", 0.0, 0)
    assert "already" in result.reason


def test_scipys_solution_at_the_end() -> None:
    least = 8 * np.sin(np.pi / 18) ** 2  # eigenvalue of the 8 x 8 Laplacian
    for tolerance in (1e-3, 1e-6, 1e-11):
        result = run(tolerance=tolerance)
        assert np.linalg.norm(result.x - SOLUTION) <= tolerance / least * (1 + 1e-9)


def test_the_history_is_the_residual_as_it_falls() -> None:
    result = run(tolerance=1e-8)
    assert result.times[0] == 0
    assert result.residuals[0] == pytest.approx(np.linalg.norm(PROBLEM.b))
    assert result.times[-1] == result.virtual_time
    assert result.residuals[-1] == pytest.approx(result.residual, rel=1e-6)
    assert (np.diff(result.times) >= 0).all()
    assert (np.diff(result.sweeps) > 0).all()
    for k in (10, 100, 400):
        same = run(max_time=result.times[k])
        assert same.sweeps[-1] == result.sweeps[k]
        assert same.residual == pytest.approx(result.residuals[k], rel=1e-10)


def test_a_long_history_is_thinned_evenly() -> None:
    result = run(tolerance=None, max_sweeps=3000)
    assert 1000 < len(result.residuals) <= 4097
    steps = np.diff(result.sweeps)[:-1]
    assert steps.max() < 2.1 * steps.min()


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(
        ["processor(time=7s)", "processor(time=normal(30, 10))", "local", "local(9)", "tree(2)"]
    )
    | st.sampled_from(["snapshot", "snapshot(9)"]),
    st.sampled_from(["start", "completion"]),
    st.sampled_from(["normal(10, 2)", "10s", "lognormal(10, 1)"]),
    st.sampled_from([1e-2, 1e-6, 1e-11]),
    st.integers(0, 1000),
)
def test_nobody_notices_before_it_is_so(
    by: str, read: str, time: str, tolerance: float, seed: int
) -> None:
    given = {"read": read, "time": time, "tolerance": tolerance, "seed": seed}
    ideal, noticed = run(**given), run(**given, detect=by)
    assert noticed.status == "converged"
    assert noticed.virtual_time >= ideal.virtual_time
    assert noticed.virtual_time < 1.5 * ideal.virtual_time + 400
    assert residual(noticed) <= tolerance
    # Until then, all is the same: to look costs nothing.
    until = run(**given, max_time=ideal.virtual_time, detect=by)
    assert until.updates.tolist() == ideal.updates.tolist()
    np.testing.assert_allclose(until.x, ideal.x, rtol=1e-12)


def test_a_residual_processor_by_hand() -> None:
    """It reads at 0, 7, 14, ...; and knows the norm 7 s later (Algorithm 3)."""
    ideal = run(time=10)
    noticed = run(time=10, detect="processor(time=7s)")
    assert noticed.virtual_time == ceil(ideal.virtual_time / 7) * 7 + 7
    # At an instant with updates, it reads what they wrote.
    together = run(time=10, detect="processor(time=10s)")
    assert together.virtual_time == ideal.virtual_time + 10


def test_a_residual_processor_works_as_long_as_the_others_unless_told() -> None:
    assert run(time=10, detect="processor").virtual_time == run(time=10).virtual_time + 10


@pytest.mark.parametrize("every", [1, 4])
def test_a_tree_of_residuals_by_hand(every: int) -> None:
    """In step, a sum has residuals of one update that counts ago from 1 and 2, of two from 3 to 6,
    and of three from 7.
    """
    noticed = run(time=10, detect=f"tree(every={every})")
    x, squares = PROBLEM.x0, []
    for _ in range(1000):
        r = PROBLEM.b - PROBLEM.A @ x
        squares.append(np.sum(r.reshape(8, 8) ** 2, axis=1))
        x = x + r / 4
    ago = every * np.array([0, 1, 1, 2, 2, 2, 2, 3])
    sums = {t: sum(squares[s][who] for who, s in enumerate(t - ago)) for t in range(12, 1000)}
    begun = next(t for t, total in sums.items() if t % every == 0 and total <= 1e-12)
    assert noticed.virtual_time == begun * 10 + 10
    assert noticed.messages == 0


def test_sums_of_residuals_are_messages() -> None:
    given = {"time": 10, "latency": "1ms", "tolerance": None, "max_time": 100.0}
    ideal, noticed = run(**given), run(**given, detect="tree(every=2)")
    # Ten updates of each of the seven that have a parent; every other one sends 8 bytes.
    assert noticed.messages - ideal.messages == noticed.detection_messages == 7 * 5
    assert noticed.bytes_sent - ideal.bytes_sent == 7 * 5 * 8
    assert noticed.x.tobytes() == ideal.x.tobytes()


@pytest.mark.parametrize("norm", [2, inf])
@pytest.mark.parametrize("by", ["processor(time=7s)", "local(9)", "tree(2)", "snapshot"])
def test_when_an_ideal_observer_would_have_stopped(by: str, norm: float) -> None:
    ideal = run(norm=norm)
    assert run(norm=norm, detect=by).first_within == ideal.virtual_time
    assert np.isnan(ideal.first_within)


@pytest.mark.parametrize("every", [1, 4])
def test_local_residuals_by_hand(every: int) -> None:
    """Each reads its rows' residual at the start of every k-th update, adds it at its end."""
    ideal = run(time=10)
    noticed = run(time=10, detect=f"local(every={every})")
    updates = ceil(ideal.virtual_time / 10 / every) * every
    assert noticed.virtual_time == updates * 10 + 10


def test_a_false_detection_is_confirmed_to_be_one() -> None:
    """The residual processor reads a small residual; before it says so, a fault strikes."""
    read_at = ceil(run().virtual_time / 100) * 100
    given = {"detect": "processor(time=100s)"}
    result = run(**given, fault=f"uniform(-1, 1) at {read_at + 55}s")
    assert result.false_detections == 1
    assert result.status == "converged"
    assert result.virtual_time > read_at + 100
    assert residual(result) <= 1e-6
    assert run(**given).false_detections == 0


def test_stale_local_residuals_are_false_detections() -> None:
    """A fault strikes when nearly all have contributed; the last one has read what was before."""
    given = {"detect": "local(every=5)"}
    noticed = run(**given)
    result = run(**given, fault=f"uniform(-1, 1) at {noticed.virtual_time - 0.5}s")
    assert result.false_detections > noticed.false_detections
    assert result.status == "converged"
    assert result.virtual_time > noticed.virtual_time
    assert residual(result) <= 1e-6
