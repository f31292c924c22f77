"""The run queue: schedules by hand, and the independent case as its limit."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray
from recorded_threads import RunQueue, simulate_threads
from recorded_threads.replay import CHECK, CHECKED, COMMIT, READ
from recorded_threads.run_queue import initial_cores, schedule_events

from paracosm.errors import InputError
from paracosm.relaxation import relax
from paracosm.relaxation.problems import load_problem
from paracosm.relaxation.threads.measurement import Phases

PROBLEM = load_problem("laplace2d:8", seed=1)
Event = tuple[int, int, float]


def constant(workers: int, copy: float, compute: float, update: float, check: float) -> Phases:
    rows = np.array([[copy, compute, update]])
    return Phases((rows,) * workers, np.array([[copy, check]]))


def schedule(
    phases: Phases, cores: int, slices: list[float], load: int, events: int
) -> list[Event]:
    """Return the first events; threads get cores in the order of their numbers."""
    workers = len(phases.workers)
    check = np.column_stack([phases.residual, np.zeros(len(phases.residual))])
    samples = np.concatenate([*phases.workers, check])
    pointer = np.arange(workers + 2)
    threads = workers + 1 + load

    def zeros(size: int) -> NDArray[np.int64]:
        return np.zeros(size, np.int64)

    state = (
        zeros(threads), zeros(threads), np.zeros(threads), zeros(cores), np.zeros(cores),
        np.zeros(cores), np.arange(threads),
    )  # fmt: skip
    kinds, who, times = np.empty(events, np.int8), np.empty(events, np.int32), np.empty(events)
    initial_cores(0, workers, pointer, samples, np.array(slices), *state)
    schedule_events(
        0, workers, pointer, samples, np.array(slices), *state, zeros(1), zeros(cores), kinds,
        who, times,
    )  # fmt: skip
    return list(zip(kinds.tolist(), who.tolist(), times.tolist(), strict=True))


def test_two_threads_take_turns_on_a_core() -> None:
    # The worker needs 1 + 4 + 1, the residual thread 1 + 3; slices of 4.
    events = schedule(constant(1, 1.0, 4.0, 1.0, 3.0), 1, [4.0], 0, 6)
    # 0-4 worker (read at 1), 4-8 check (read at 5, done at 8), 8-12 worker: 1 left of compute
    # until 9, update until 10, next copy until 11; 12-16 check: read at 13, done at 16.
    assert events == [
        (READ, 0, 1.0), (CHECK, 1, 5.0), (CHECKED, 1, 8.0), (COMMIT, 0, 10.0), (READ, 0, 11.0),
        (CHECK, 1, 13.0),
    ]  # fmt: skip


def test_foreign_threads_only_take_time() -> None:
    events = schedule(constant(1, 1.0, 4.0, 1.0, 3.0), 1, [4.0], 1, 4)
    # 0-4 worker, 4-8 check, 8-12 foreign, 12-16 worker: compute until 13, update until 14.
    assert events == [
        (READ, 0, 1.0), (CHECK, 1, 5.0), (CHECKED, 1, 8.0), (COMMIT, 0, 14.0),
    ]  # fmt: skip


def test_no_slices_where_every_thread_has_a_core() -> None:
    events = schedule(constant(1, 1.0, 4.0, 1.0, 2.0), 2, [0.5], 0, 5)
    assert events == [
        (READ, 0, 1.0), (CHECK, 1, 1.0), (CHECKED, 1, 3.0), (CHECK, 1, 4.0), (COMMIT, 0, 6.0),
    ]  # fmt: skip


@pytest.mark.parametrize(("workers", "cores"), [(2, 2), (4, 2), (3, 1)])
def test_relax_with_cores_takes_as_long(workers: int, cores: int) -> None:
    """The queue draws who is first; `relax` lets all cores switch at once, in a fixed order."""
    problem = load_problem("laplace2d:8", rhs="ones-solution")
    phases = constant(workers, 2e-6, 40e-6, 3e-6, 20e-6)
    queue = RunQueue(cores, [4e-3])
    queued = [
        simulate_threads(problem, phases, 1e-3, queue=queue, seed=seed).time for seed in range(9)
    ]
    found = relax(
        problem, processors=workers, time="copy=2us, compute=40us, update=3us", tolerance=1e-3,
        detect="processor(time=22us)", cores=cores, time_slice=4e-3,
    )  # fmt: skip
    assert 0.8 * min(queued) < found.virtual_time < 1.25 * max(queued)


def jacobi_sweeps(threshold: float) -> int:
    A, x, sweeps = PROBLEM.A.toarray(), PROBLEM.x0.copy(), 0
    while np.linalg.norm(PROBLEM.b - A @ x) > threshold:
        x = x + (PROBLEM.b - A @ x) / np.diag(A)
        sweeps += 1
    return sweeps


def test_constant_durations_make_synchronous_jacobi() -> None:
    # Commits at 10, 20, ...; checks read every 1.0, at 1.0, 2.0, ... and take no time to speak of.
    phases = constant(4, 0.5, 9.0, 0.5, 0.5)
    run = simulate_threads(PROBLEM, phases, 1e-4)
    sweeps = jacobi_sweeps(1e-4)
    assert run.status == "converged"
    assert run.iterations == (sweeps,) * 4
    # The last commit is at 10 times the sweeps; the next check reads half a second later.
    assert run.time == pytest.approx(10 * sweeps + 1.0)
    assert run.residual <= 1e-4


def spread() -> Phases:
    rng = np.random.default_rng(0)
    return Phases(tuple(rng.lognormal(-11, 0.4, (2, 50, 3))), rng.lognormal(-11, 0.4, (30, 2)))


def test_enough_cores_are_no_queue() -> None:
    alone = simulate_threads(PROBLEM, spread(), 1e-4, seed=5)
    assert simulate_threads(PROBLEM, spread(), 1e-4, queue=RunQueue(3), seed=5) == alone
    assert simulate_threads(PROBLEM, spread(), 1e-4, queue=RunQueue(8), seed=5) == alone


def test_the_seed_decides() -> None:
    queue = RunQueue(1, (1e-3, 2e-3))
    first = simulate_threads(PROBLEM, spread(), 1e-4, queue=queue, seed=5)
    assert simulate_threads(PROBLEM, spread(), 1e-4, queue=queue, seed=5) == first
    assert simulate_threads(PROBLEM, spread(), 1e-4, queue=queue, seed=6) != first


def test_load_and_fewer_cores_take_longer() -> None:
    times = [
        simulate_threads(PROBLEM, spread(), 1e-4, queue=queue, seed=1).time
        for queue in (RunQueue(3), RunQueue(1, (1e-4,)), RunQueue(1, (1e-4,), load=3))
    ]
    assert times[0] < times[1] < times[2]
    assert times[2] > 1.5 * times[1]


def test_a_run_that_never_ends_is_stopped() -> None:
    run = simulate_threads(PROBLEM, spread(), -1.0, longest=0.5)
    assert run.status == "stopped"
    assert run.time > 0.5


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="cores"):
        RunQueue(0)
    with pytest.raises(InputError, match="slice"):
        RunQueue(1, ())
    with pytest.raises(InputError, match="slice"):
        RunQueue(1, (0.0,))
    with pytest.raises(InputError, match="load"):
        RunQueue(1, load=-1)
    stencil = Phases((np.ones((3, 3)),), np.empty((0, 2)))
    with pytest.raises(InputError, match="residual thread"):
        simulate_threads(PROBLEM, stencil, 1e-6)
