"""Replays: against the textbook, against plain Python, and against real threads."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from recorded_threads import replay

from paracosm.errors import InputError
from paracosm.relaxation.problems import Problem, load_problem
from paracosm.relaxation.threads.measurement import Recording
from paracosm.relaxation.threads.run import Limits, block_pointer, run_threads

SMALL = load_problem("laplace2d:5", seed=2)
NONE = np.empty((0, 3), np.int64)


def recording(workers: list[NDArray[np.int64]], checks: NDArray[np.int64]) -> Recording:
    pointer = block_pointer(SMALL.n, len(workers))
    made = tuple(len(stamps) for stamps in workers)
    return Recording(pointer, tuple(workers), made, checks, np.full(len(checks), np.nan), -1)


def test_threads_in_step_make_synchronous_sweeps() -> None:
    sweeps = 6
    start = 100 * np.arange(sweeps)
    stamps = np.column_stack([start, start + 10, start + 80, start + 100])
    checks = np.column_stack([start, start + 100, start + 150])  # read when sweep k is complete
    result = replay(SMALL, recording([stamps] * 3, checks), 0.0)
    A, b, x = SMALL.A.toarray(), SMALL.b, SMALL.x0
    for sweep in range(sweeps):
        x = x + (b - A @ x) / np.diag(A)
        assert result.norms[sweep] == pytest.approx(np.linalg.norm(b - A @ x), rel=1e-12)
    np.testing.assert_allclose(result.x, x, rtol=1e-12)
    assert result.detecting is None


def test_the_detecting_check_is_the_first_at_or_below_the_threshold() -> None:
    start = 100 * np.arange(40)
    stamps = np.column_stack([start, start + 10, start + 80, start + 100])
    checks = np.column_stack([start, start + 5, start + 50])
    recorded = replace(recording([stamps], checks), detecting=9)
    norms = replay(SMALL, recorded, 0.0).norms
    result = replay(SMALL, recorded, float(norms[12]) * (1 + 1e-9))
    assert (result.detecting, result.late_by) == (12, 3)
    assert result.time == pytest.approx((1200 + 50) * 1e-9)
    assert result.recorded_time == pytest.approx((900 + 50) * 1e-9)


def plain(
    problem: Problem, recorded: Recording, column: int
) -> tuple[NDArray[np.float64], list[float]]:
    """Definition 1 of the paper in plain Python: read, keep the new values, write them later."""
    A, b, x = problem.A.toarray(), problem.b, problem.x0.copy()
    events = []
    for thread, stamps in enumerate(recorded.workers):
        for row in stamps:
            events.append((row[3], 0, thread))
            events.append((row[column], 1, thread))
    events += [(row[column], 2, -1) for row in recorded.checks]
    computed, norms = {}, []
    for _, kind, thread in sorted(events):
        if kind == 2:
            norms.append(float(np.linalg.norm(b - A @ x)))
            continue
        rows = slice(int(recorded.pointer[thread]), int(recorded.pointer[thread + 1]))
        if kind == 1:
            computed[thread] = (x + (b - A @ x) / np.diag(A))[rows]
        else:
            x[rows] = computed[thread]
    return x, norms


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(0, 10_000), st.sampled_from(["start", "copied"]))
def test_any_schedule_gives_what_plain_python_gives(threads: int, seed: int, read_at: str) -> None:
    rng = np.random.default_rng(seed)
    workers = []
    for _ in range(threads):
        steps = rng.integers(1, 9, (int(rng.integers(1, 12)), 3))
        ends = np.cumsum(steps).reshape(-1, 3)  # many ties among threads
        starts = np.concatenate([[0], ends[:-1, 2]])
        workers.append(np.column_stack([starts, ends]))
    checks = np.cumsum(rng.integers(1, 9, (8, 2)).ravel()).reshape(-1, 2)
    checks = np.column_stack([np.concatenate([[0], checks[:-1, 1]]), checks])
    recorded = recording(workers, checks)
    result = replay(SMALL, recorded, 0.0, "copied" if read_at == "copied" else "start")
    x, norms = plain(SMALL, recorded, 1 if read_at == "copied" else 0)
    np.testing.assert_allclose(result.x, x, rtol=1e-11, atol=1e-14)
    np.testing.assert_allclose(result.norms, norms, rtol=1e-10)


@pytest.mark.parametrize("threads", [1, 2, 4])
def test_a_run_with_locks_is_replayed_to_rounding(threads: int) -> None:
    """In the lock, the order of the stamps is the order of the accesses."""
    problem = load_problem("laplace2d:12", seed=4)
    run = run_threads(problem, "safe", threads, 1e-3, lingering=3, limits=Limits(recorded=1 << 19))
    assert run.recording is not None
    result = replay(problem, run.recording, 1e-3)
    assert result.late_by == 0
    np.testing.assert_allclose(result.x, run.x, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(result.norms, run.recording.norms, rtol=1e-9, atol=1e-13)
    assert result.recorded_time == pytest.approx(run.time, abs=1e-3)


def test_a_run_without_locks_is_replayed_to_within_a_check() -> None:
    """Copies without locks take a while: most runs agree, not all."""
    problem = load_problem("laplace2d:20", seed=4)
    limits = Limits(recorded=1 << 19)
    late = []
    for _ in range(5):
        run = run_threads(problem, "race", 2, 1e-3, lingering=3, limits=limits)
        assert run.recording is not None
        late.append(replay(problem, run.recording, 1e-3).late_by)
    assert sum(by is not None and abs(by) <= 1 for by in late) >= 3


def test_an_incomplete_recording_is_refused() -> None:
    stamps = np.array([[0, 1, 2, 3]])
    cut = replace(recording([stamps], NONE), iterations=(2,))
    with pytest.raises(InputError, match="more iterations than were recorded"):
        replay(SMALL, cut, 1e-6)


def test_a_recording_of_another_problem_is_refused() -> None:
    recorded = recording([np.array([[0, 1, 2, 3]])], NONE)
    with pytest.raises(InputError, match="row 25, not at 36"):
        replay(load_problem("laplace2d:6"), recorded, 1e-6)
