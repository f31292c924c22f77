"""Maps x = G(x) that are not linear solvers: PageRank, value iteration, a nonlinear contraction."""

from __future__ import annotations

from math import inf
from typing import Any

import numba
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import linprog

from paracosm.errors import InputError
from paracosm.relaxation import RelaxationResult, relax, relax_map
from paracosm.relaxation.problems import load_problem

GIVEN: dict[str, Any] = {"time": "normal(10, 3)", "seed": 4, "max_sweeps": 10_000}
READS = pytest.mark.parametrize("read", ["start", "completion"])


def applied(G: Any, x: NDArray[np.float64]) -> NDArray[np.float64]:
    out = np.empty_like(x)
    given = G(x, np.arange(x.size), out)
    return out if given is None else given


def check(result: RelaxationResult, G: Any, tolerance: float, norm: float = 2) -> None:
    assert result.status == "converged"
    distance = float(np.linalg.norm(applied(G, result.x) - result.x, norm))
    assert distance <= tolerance
    assert result.residual == pytest.approx(distance, rel=1e-9)


def contraction(x: Any, rows: Any, out: Any) -> None:
    """x_i <- 0.4 cos(x_(i-1)) + 0.3 sin(x_(i+1)) + i / n, in a circle."""
    n = x.size
    for k in range(rows.size):
        i = rows[k]
        out[k] = 0.4 * np.cos(x[i - 1]) + 0.3 * np.sin(x[(i + 1) % n]) + i / n


@READS
@pytest.mark.parametrize("G", [contraction, numba.njit(contraction)], ids=["plain", "compiled"])
def test_a_nonlinear_contraction(G: Any, read: str) -> None:
    x = np.zeros(12)
    for _ in range(200):  # Banach's fixed point
        x = applied(contraction, x)
    for pattern in ("contiguous", "cyclic", "random", "overlapping(rows=1)"):
        result = relax_map(
            G, np.ones(12), processors=5, pattern=pattern, read=read, tolerance=1e-10, **GIVEN
        )
        check(result, contraction, 1e-10)
        np.testing.assert_allclose(result.x, x, atol=1e-9)


@READS
def test_plain_and_compiled_maps_are_the_same(read: str) -> None:
    runs = [
        relax_map(G, np.ones(12), processors=5, read=read, **GIVEN)
        for G in (contraction, numba.njit(contraction))
    ]
    assert runs[0].updates.tolist() == runs[1].updates.tolist()
    np.testing.assert_allclose(runs[0].x, runs[1].x, rtol=1e-14)
    np.testing.assert_allclose(runs[0].residuals, runs[1].residuals, rtol=1e-9)


def test_one_processor_iterates_the_map() -> None:
    x = np.ones(12)
    for _ in range(9):
        x = applied(contraction, x)
    result = relax_map(contraction, np.ones(12), time=2, tolerance=None, max_time=18)
    np.testing.assert_allclose(result.x, x, rtol=1e-14)
    in_step = relax_map(
        contraction, np.ones(12), processors=4, time=2, synchronous=True, tolerance=None,
        max_time=18,
    )  # fmt: skip
    np.testing.assert_allclose(in_step.x, x, rtol=1e-14)


@READS
def test_pagerank(read: str) -> None:
    """x = d P x + (1 - d) / n, dangling pages linked to all, against dense linear algebra."""
    rng = np.random.default_rng(3)
    n, d = 40, 0.85
    links = rng.random((n, n)) < 0.08
    np.fill_diagonal(links, False)
    links[:, 7] = False  # page 7 links to nobody
    P = np.where(links.any(axis=0), links / np.maximum(links.sum(axis=0), 1), 1 / n)
    expected = np.linalg.solve(np.eye(n) - d * P, np.full(n, (1 - d) / n))
    assert expected.sum() == pytest.approx(1)

    def G(x: Any, rows: Any, out: Any) -> None:  # noqa: N802
        out[:] = d * P[rows] @ x + (1 - d) / n

    result = relax_map(
        G, np.full(n, 1 / n), processors=8, read=read, tolerance=1e-12, solution=expected, **GIVEN
    )
    check(result, G, 1e-12)
    np.testing.assert_allclose(result.x, expected, atol=1e-11)
    assert result.error == pytest.approx(np.linalg.norm(result.x - expected), rel=1e-6)
    # As a linear system it takes the same way.
    linear = relax(
        np.eye(n) - d * P, np.full(n, (1 - d) / n), np.full(n, 1 / n), method="richardson(1)",
        processors=8, read=read, tolerance=1e-12, **GIVEN,
    )  # fmt: skip
    np.testing.assert_allclose(linear.x, expected, atol=1e-11)


@READS
@pytest.mark.parametrize("norm", [2, inf])
def test_value_iteration(read: str, norm: float) -> None:
    """V(s) = max over a of R(s, a) + gamma sum P(s' | s, a) V(s'), against linear programming."""
    rng = np.random.default_rng(5)
    states, actions, gamma = 15, 4, 0.9
    P = rng.random((states, actions, states)) ** 8
    P /= P.sum(axis=2, keepdims=True)
    R = rng.normal(size=(states, actions))

    def G(x: Any, rows: Any, out: Any) -> Any:  # noqa: N802
        return (R[rows] + gamma * P[rows] @ x).max(axis=1)

    # Puterman, "Markov Decision Processes", section 6.9: minimise sum V, V >= R_a + gamma P_a V.
    constraints = gamma * P.reshape(-1, states) - np.repeat(np.eye(states), actions, axis=0)
    program = linprog(np.ones(states), constraints, -R.ravel(), bounds=(None, None))
    result = relax_map(
        G, np.zeros(states), processors=6, read=read, norm=norm, tolerance=1e-9, **GIVEN
    )
    check(result, G, 1e-9, norm)
    np.testing.assert_allclose(result.x, program.x, atol=1e-7)


def test_a_linear_map_is_the_linear_solver() -> None:
    problem = load_problem("laplace2d:8", seed=1)
    A, b = problem.A, problem.b

    def G(x: Any, rows: Any, out: Any) -> None:  # noqa: N802
        out[:] = x[rows] + (b - A @ x)[rows] / 4

    given = {"processors": 4, "tolerance": None, "max_time": 300, "time": "normal(10, 2)"}
    as_map = relax_map(G, problem.x0, **given)
    as_system = relax(problem, **given)
    assert as_map.updates.tolist() == as_system.updates.tolist()
    np.testing.assert_allclose(as_map.x, as_system.x, rtol=1e-11)
    assert as_map.residual == pytest.approx(as_system.residual / 4, rel=1e-9)


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_a_map_in_distributed_memory_is_the_linear_solver(compiled: bool) -> None:
    """The values that G finds are those that have arrived: the same as for a matrix."""
    problem = load_problem("laplace2d:6", seed=1)
    pointer, index, data, b = problem.A.indptr, problem.A.indices, problem.A.data, problem.b

    def G(x: Any, rows: Any, out: Any) -> None:  # noqa: N802
        for k in range(rows.size):
            total = b[rows[k]]
            for entry in range(pointer[rows[k]], pointer[rows[k] + 1]):
                total -= data[entry] * x[index[entry]]
            out[k] = x[rows[k]] + total / 4

    given: dict[str, Any] = {
        "processors": 4, "tolerance": None, "max_time": 200, "time": "normal(10, 2)",
        "latency": "25s", "bandwidth": "8 B/s",
    }  # fmt: skip
    as_map = relax_map(numba.njit(G) if compiled else G, problem.x0, reads=problem.A, **given)
    as_system = relax(problem, **given)
    assert as_map.messages == as_system.messages > 0
    assert as_map.bytes_sent == as_system.bytes_sent
    assert as_map.staleness.mean == as_system.staleness.mean
    np.testing.assert_allclose(as_map.x, as_system.x, rtol=1e-11)


def test_a_map_on_a_cluster_converges_with_local_tests() -> None:
    cluster = {
        "topology": "switch",
        "workers": [{"count": 3}, {"count": 1, "speed": 0.5}],
        "links": {"default": {"latency": "5s"}},
    }
    circle = np.eye(12, k=1) + np.eye(12, k=-1)
    circle[0, -1] = circle[-1, 0] = 1
    result = relax_map(
        contraction, np.ones(12), reads=circle, cluster=cluster, time=10, detect="local",
        tolerance=1e-8, norm="inf",
    )  # fmt: skip
    assert result.norm == "inf"
    check(result, contraction, 1e-8, inf)
    # Half as fast: half as many updates.
    assert abs(int(result.updates[3]) * 2 - int(result.updates[0])) <= 1


def test_a_rollback_restores_what_is_known_of_the_residual() -> None:
    """x <- x / 2 on one processor: 1, 1/2, 1/4 at 0, 1, 2 s; the checkpoint at 2.5 s has x = 1/4
    and the step -1/4. The fault at 4.5 s is seen at once, and rolled back."""
    result = relax_map(
        lambda x, rows, out: x[rows] / 2, np.ones(1), processors=1, time=1, tolerance=None,
        max_time=4.75, fault="uniform(50, 50.5) at 4.5s", checkpoint="alpha=2, omega=2.5s",
    )  # fmt: skip
    assert (result.rollbacks, result.checkpoints) == (1, 1)
    assert result.x.tolist() == [0.25]
    rollback = next(mark for mark in result.marks if mark.what == "rollback")
    assert (rollback.time, rollback.residual) == (4.5, 0.25)


def test_checkpoints_of_a_map_against_the_linear_solver() -> None:
    problem = load_problem("laplace2d:6", seed=1)
    A, b = problem.A, problem.b

    def G(x: Any, rows: Any, out: Any) -> None:  # noqa: N802
        out[:] = x[rows] + (b - A @ x)[rows] / 4

    given: dict[str, Any] = {
        "processors": 4, "time": "normal(10, 1)", "fault": "uniform(-100, 100) every 400s",
        "checkpoint": "alpha=4, omega=50s, cost=1s", "max_time": 20_000, "seed": 3,
    }  # fmt: skip
    result = relax_map(G, problem.x0, tolerance=1e-7, **given)
    check(result, G, 1e-7)
    assert result.rollbacks > 0
    np.testing.assert_allclose(A @ result.x, b, atol=1e-6)


def test_a_map_that_stretches_diverges() -> None:
    result = relax_map(lambda x, rows, out: 1.5 * x[rows], np.ones(6), processors=3, **GIVEN)
    assert result.status == "diverged"
    assert result.growth_rate == pytest.approx(1.5, rel=0.2)


def test_convergence_of_a_map_is_confirmed() -> None:
    """A component that was last updated long ago is not known to be wrong; G for all is."""

    def G(x: Any, rows: Any, out: Any) -> None:  # noqa: N802
        out[:] = np.where(rows == 5, 0.9 * x[:5].sum(), 0.5 * x[rows])

    # The last one fits the others at first; they are done when it is to see them.
    x0 = [1.0, 1.0, 1.0, 1.0, 1.0, 4.5]
    result = relax_map(G, x0, time=[1, 1, 1, 1, 1, 300], processors=6, tolerance=1e-3)
    # When the others are done; and at 300 s, when it writes what it read at 0 s: no change.
    assert result.false_detections == 2
    # What follows from the others it writes at 600 s, and that it has not changed since at 900 s.
    assert result.virtual_time == 900
    check(result, G, 1e-3)


@pytest.mark.parametrize(
    ("x0", "more", "words"),
    [
        ([[1.0, 2.0]], {}, "x0 must be a vector of finite numbers"),
        ([1.0, np.nan], {}, "x0 must be a vector of finite numbers"),
        ([1.0, 2.0], {"processors": 3}, r"more processors \(3\) than rows \(2\)"),
        ([1.0, 2.0], {"error_tolerance": 1e-3}, "the solution of this problem is not known"),
        ([1.0, 2.0], {"fault": "signflip in A at 3s"}, "a map has no A"),
        ([1.0, 2.0], {"fault": "signflip in b at 3s"}, "a map has no b"),
        ([1.0, 2.0], {"read": "gauss-seidel"}, "needs a named method"),
        ([1.0, 2.0], {"latency": "1s"}, "components that the map reads"),
        ([1.0, 2.0], {"reads": np.eye(2)}, "no effect in shared memory"),
        ([1.0, 2.0], {"reads": np.eye(3), "latency": "1s"}, r"reads: a matrix of shape \(3, 3\)"),
        ([1.0, 2.0], {"norm": 1}, "norm"),
        ([1.0, 2.0], {"detect": "snapshot"}, "a snapshot needs a matrix"),
    ],
)
def test_what_is_refused(x0: Any, more: dict[str, Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as raised:
        relax_map(contraction, x0, **{"processors": 1, **more})
    assert "\n" not in str(raised.value)
