"""Detection by snapshots: by hand, and what they promise. In plain Python: `test_network.py`."""

from __future__ import annotations

from math import ceil, inf, isnan
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numba import njit
from numpy.typing import NDArray
from scipy.sparse import csr_array

from paracosm.cluster import Link, switch
from paracosm.relaxation import RelaxationResult, relax
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.problems import load_problem
from paracosm.relaxation.run import run_relaxation

PROBLEM = load_problem("laplace2d:8", seed=5)
LINES = 8  # of the grid, each with a processor of its own


def run(**more: Any) -> RelaxationResult:
    given: dict[str, Any] = {"processors": LINES, "time": 10, "max_sweeps": 5000, "seed": 1}
    return relax(PROBLEM, **{**given, **more})


def norm_of(x: NDArray[np.float64], norm: float = 2) -> float:
    return float(np.linalg.norm(PROBLEM.b - PROBLEM.A @ x, norm))


def in_step(every: int, norm: float) -> tuple[float, int, NDArray[np.float64]]:
    """Return when snapshots find a residual of 1e-6, which of them, and what it recorded.

    All update every 10 s. The request is at 0 as its update m begins, at 1 and 2 as m + 1 does, at
    3 to 6 as m + 2, at 7 as m + 3; each records what it then writes. 7 knows of its own record and
    of that of 6 as update m + 4 begins; its sum is at 3 as m + 5 does, at 1 as m + 6, at 0 as
    m + 7: it decides with that one, 8 updates after it asked.
    """
    iterates = [PROBLEM.x0]
    for _ in range(2000):
        iterates.append(iterates[-1] + (PROBLEM.b - PROBLEM.A @ iterates[-1]) / 4)
    first, count = 0, 0
    while True:
        ago = np.array([0, 1, 1, 2, 2, 2, 2, 3])
        blocks = [iterates[first + 1 + ago[i]].reshape(8, 8)[i] for i in range(LINES)]
        count += 1
        if norm_of(np.concatenate(blocks), norm) <= 1e-6:
            return 10.0 * (first + 8), count, np.concatenate(blocks)
        first = ceil((first + 8) / every) * every


@pytest.mark.parametrize("memory", ["shared", "distributed"])
@pytest.mark.parametrize("norm", [2, inf])
@pytest.mark.parametrize("every", [1, 3, 20])
def test_a_snapshot_by_hand(every: int, norm: float, memory: str) -> None:
    found = run(detect=f"snapshot(every={every})", norm=norm, memory=memory)
    when, count, recorded = in_step(every, norm)
    assert found.status == "converged"
    assert (found.virtual_time, found.snapshots, found.false_detections) == (when, count, 0)
    np.testing.assert_allclose(found.recorded, recorded, rtol=1e-12, atol=1e-15)
    # Of each: 7 requests, 7 sums, and the records of 7 pairs of neighbours, 8 values each way.
    told = memory == "distributed"
    assert found.detection_messages == (7 + 7 + 14) * count * told
    halos = found.messages - found.detection_messages
    assert found.bytes_sent == 8 * ((7 + 7 + 14 * 8) * count + 8 * halos) * told


@pytest.mark.parametrize("memory", ["shared", "distributed"])
def test_a_barrier_changes_nothing_for_processors_in_step(memory: str) -> None:
    found = run(detect="snapshot", synchronous=True, memory=memory)
    assert (found.virtual_time, found.snapshots) == in_step(1, 2)[:2]


def test_two_processors_a_message_apart_by_hand() -> None:
    """Messages take 15 s, updates 10 s.

    0 records at 10 s; the request is at 1 at 25 s, which records at 40 s what it began at 30 s,
    and has had what 0 recorded: its sum leaves at 50 s. At 70 s 0 begins with all that, and knows
    at 80 s, when it asks anew. It recorded x_0 = 1/2; 1 recorded x_1 = (2 + 1/2)/3 = 5/6, so that
    r = (1 - 1 + 5/6, 2 - 5/2 + 1/2) = (5/6, 0).
    """
    A, b = csr_array([[2.0, -1.0], [-1.0, 3.0]]), np.array([1.0, 2.0])
    cluster = switch(workers=2, servers=0, link=Link(latency=15.0))
    more: dict[str, Any] = {"cluster": cluster, "time": 10, "detect": "snapshot"}
    none = relax(A, b, tolerance=None, max_time=79, **more)
    one = relax(A, b, tolerance=None, max_time=80, **more)
    assert (none.snapshots, one.snapshots) == (0, 1)
    assert isnan(none.recorded_residual)
    np.testing.assert_allclose(one.recorded, [1 / 2, 5 / 6], rtol=1e-15)
    assert one.recorded_residual == pytest.approx(5 / 6, rel=1e-15)
    assert one.detection_messages == 1 + 1 + 2
    assert relax(A, b, tolerance=None, max_time=240, **more).snapshots == 3
    # 5/6 is not below 0.8; the next one is there 80 s later.
    assert relax(A, b, tolerance=0.8, **more).virtual_time == 160
    assert relax(A, b, tolerance=0.84, **more).virtual_time == 80


def test_one_processor_records_and_then_decides() -> None:
    """It records at 10 s, knows the residual as the next update begins, and decides at its end."""
    found = run(processors=1, detect="snapshot")
    x, updates = PROBLEM.x0 + PROBLEM.b / 4, 1
    while norm_of(x) > 1e-6:
        for _ in range(2):
            x = x + (PROBLEM.b - PROBLEM.A @ x) / 4
        updates += 2
    assert found.virtual_time == 10 * (updates + 1)
    np.testing.assert_allclose(found.recorded, x, rtol=1e-12, atol=1e-15)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_the_residual_is_that_of_the_recorded_vector(data: st.DataObject) -> None:
    draw, norm = data.draw, data.draw(st.sampled_from([2, inf]))
    processors = draw(st.integers(1, 12))
    tolerance = draw(st.sampled_from([1e-2, 1e-5]))
    more: dict[str, Any] = {
        "read": draw(st.sampled_from(["start", "completion", "gauss-seidel"])),
        "time": draw(
            st.sampled_from(
                ["lognormal(10, 1)", "10s", "copy=1s, compute=uniform(5, 20), update=1s"]
            )
        ),
        "method": draw(st.sampled_from(["jacobi", "coordinate(5)", "anderson(3, 10)"])),
        "pattern": draw(st.sampled_from(["contiguous", "cyclic", "graph"])),
        "fault": draw(st.sampled_from([(), "uniform(-1, 1) at 300s; stop(40s) every 200s"])),
        "checkpoint": draw(st.sampled_from([None, "alpha=2, omega=100s"])),
        "seed": draw(st.integers(0, 1000)),
    }
    if more["pattern"] == "cyclic" or more["read"] == "gauss-seidel":
        more["method"] = "jacobi"
    if draw(st.booleans()):
        link = Link(draw(st.sampled_from([inf, 50.0])), draw(st.sampled_from([0.0, 3.0, 40.0])))
        more |= {
            "cluster": switch(workers=processors, servers=0, link=link),
            "latency_jitter": "exponential(30)",
            "order": draw(st.sampled_from(["ordered", "overtaking"])),
        }
        if processors > 1:
            more["fault"] = draw(st.sampled_from([more["fault"], "uniform(-1, 1) in halo at 300s"]))
    every = draw(st.integers(1, 12))
    found = run(
        processors=processors, detect=f"snapshot({every})", norm=norm, tolerance=tolerance,
        max_time=20_000.0, **more,
    )  # fmt: skip
    if found.status != "converged":
        return
    assert found.recorded_residual == pytest.approx(norm_of(found.recorded, norm), rel=1e-9)
    assert found.recorded_residual <= tolerance
    assert norm_of(found.x, norm) <= tolerance
    assert found.virtual_time >= found.first_within


@pytest.mark.parametrize("memory", ["shared", "distributed"])
def test_a_fault_after_the_record_is_a_false_detection(memory: str) -> None:
    given: dict[str, Any] = {"detect": "snapshot", "memory": memory, "time": "normal(10, 2)"}
    plain = run(**given)
    found = run(**given, fault=f"uniform(-1, 1) at {plain.virtual_time - 0.5}s")
    assert (plain.false_detections, found.false_detections) == (0, 1)
    assert found.status == "converged"
    assert found.snapshots > plain.snapshots
    assert found.virtual_time > plain.virtual_time
    assert norm_of(found.x) <= 1e-6


@pytest.mark.parametrize("fault", ["stop(300s)", "stale(300s)"])
def test_a_snapshot_waits_for_a_processor_that_is_away(fault: str) -> None:
    """5 stops at 5 s, before it is asked, and records at 315 s what it began at 305 s (stale: at
    320 s what it began at 310 s). 4 and 6 know of it as they begin at 320 s; the sums are at 1 and
    2 at 330 s, at 0 at 340 s, which decides at 350 s.
    """
    given: dict[str, Any] = {
        "detect": "snapshot", "tolerance": None, "fault": f"{fault} on processor 5 at 5s",
    }  # fmt: skip
    assert run(**given, max_time=349.0).snapshots == 0
    assert run(**given, max_time=350.0).snapshots == 1
    # The next one takes 8 updates again, of 0 at 350 s, and 5 s more where one is out of step.
    assert run(**given, max_time=450.0).snapshots == 2


def test_without_one_of_them_nothing_is_found() -> None:
    found = run(detect="snapshot", fault="stop on processor 5 at 5s", max_sweeps=200)
    assert (found.status, found.snapshots) == ("stopped", 0)


def test_a_fault_in_the_matrix_is_in_the_recorded_residual() -> None:
    """From -A x = b on: in shared memory too, each has its rows of the matrix."""
    found = run(detect="snapshot", fault="signflip in A at 1s")
    assert found.reason == "converged to the solution of a system that a fault has changed"
    left = np.linalg.norm(PROBLEM.b + PROBLEM.A @ found.recorded)
    assert found.recorded_residual == pytest.approx(left, rel=1e-9)
    assert 0 < left <= 1e-6


def update(x: Any, rows: Any, A: Any, b: Any, out: Any) -> None:
    for place in range(rows.size):
        row = rows[place]
        residual = b[row]
        for entry in range(A.indptr[row], A.indptr[row + 1]):
            residual -= A.data[entry] * x[A.indices[entry]]
        out[place] = x[row] + residual / 4


@pytest.mark.parametrize("network", [{}, {"latency": "5s"}])
@pytest.mark.parametrize(
    "more", [{"method": update}, {"method": njit(update)}, {"matrix_free": True}]
)
def test_whoever_computes_an_update_the_snapshots_are_the_same(
    more: dict[str, Any], network: dict[str, Any]
) -> None:
    given = {"detect": "snapshot", "time": "normal(10, 2)", "tolerance": 1e-3, **network}
    plain, found = run(**given), run(**given, **more)
    assert found.status == plain.status == "converged"
    assert (found.virtual_time, found.snapshots) == (plain.virtual_time, plain.snapshots)
    assert found.messages == plain.messages
    np.testing.assert_allclose(found.recorded, plain.recorded, rtol=1e-9, atol=1e-12)


def test_messages_are_counted_with_any_times() -> None:
    """20 processors in a row: 19 requests, 19 sums, and 38 records, of each snapshot."""
    problem = load_problem("laplace2d:20", seed=3)
    cluster = switch(workers=20, servers=0, link=Link(latency=0.05))
    given: dict[str, Any] = {"cluster": cluster, "time": "lognormal(10ms, 0.3)", "seed": 3}
    found = relax(problem, **given, detect="snapshot", tolerance=1e-3)
    assert found.status == "converged"
    assert found.detection_messages == 76 * found.snapshots
    until: dict[str, Any] = {"tolerance": None, "max_time": 5.0}
    ideal, noticed = (
        relax(problem, **given, **until),
        relax(problem, **given, **until, detect="snapshot"),
    )
    assert noticed.messages - ideal.messages == noticed.detection_messages
    assert 0 <= noticed.detection_messages - 76 * noticed.snapshots <= 76
    assert noticed.x.tobytes() == ideal.x.tobytes()


def test_the_summary_counts_snapshots() -> None:
    config = RelaxConfig(problem="laplace2d:8", time="10s", latency="1s", detect="snapshot(2)")
    run = run_relaxation(config)
    assert run.summary["detection"] == {
        "by": "snapshot(every=2)",
        "false_detections": 0,
        "late_by": run.result.virtual_time - run.result.first_within,
        "messages": run.result.detection_messages,
        "snapshots": run.result.snapshots,
    }
