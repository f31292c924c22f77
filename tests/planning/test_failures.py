"""Jobs with nodes that fail: what their time comes to, and real training over them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile

import numpy as np
import pytest

from paracosm.cluster import Link, star
from paracosm.faults.checkpoint import expected_makespan
from paracosm.faults.node_failures import FailureFields, Mtbf, failure_instants
from paracosm.planning.failures import FailureRecord, failing_schedule
from paracosm.simulation.rollback import Block, Checkpoint, Restore
from paracosm.simulation.rules import Rule, asgd, backup, ssgd, ssp
from paracosm.simulation.schedule import Schedule
from paracosm.simulation.scheduling import stream_schedule
from paracosm.simulation.system import (
    DOWNLINK,
    SERVER,
    UPLINK,
    WORKER,
    System,
    Workload,
    cluster_routes,
)

STEP = 1.0  # seconds that a worker computes; nothing else takes time
STEPS = 4_000


def life(workers: int, rule: Rule) -> Callable[..., Iterator[Schedule]]:
    """Return steps of one tensor: pull, compute, push and update one after the other."""
    resource = np.array([DOWNLINK, WORKER, UPLINK, SERVER], np.int8)
    work = Workload(
        resource=resource,
        server=np.zeros(4, np.int64),
        size=np.zeros(4),
        seconds=np.where(resource == WORKER, STEP, 0.0)[None, :],
        waits=np.array([0, 1, 1, 1]),
        first_dependent=np.array([0, 1, 2, 3, 3]),
        dependents=np.array([1, 2, 3]),
        roots=np.zeros((1, 1), np.int64),
        release=np.zeros((1, 1)),
        gap=np.zeros(1),
    )
    system = System(
        cluster_routes(star(workers, 1, Link())), speed=np.ones(workers), start=np.zeros(workers)
    )

    def begin(seed: int, failing: Callable[[System], System]) -> Iterator[Schedule]:
        drawn = np.zeros((workers, STEPS), np.int64)
        return stream_schedule(work, failing(system), rule, drawn, [0, -1, -1, 0], block=64)

    return begin


class FailingJob:
    """A job of steps of 1 s, and what failures have cost it."""

    def __init__(self, rule: Rule, workers: int, mtbf: Mtbf, seed: int = 0) -> None:
        given = {"checkpoint_cost": "2s", "checkpoint_every": "20s", "restart_cost": "5s"}
        fields = FailureFields.model_validate({**given, "mtbf": mtbf})
        failures = fields.job_failures(workers, 1, rule.needs_all)
        assert failures is not None
        self.record = FailureRecord(failures, workers)
        self.summary = self.record.summary
        self._schedule = failing_schedule(
            *(life(workers, rule), failures),
            workers=workers,
            servers=1,
            tensors=1,
            rule=rule,
            seed=seed,
        )

    def blocks(self) -> Iterator[Block]:
        return self.record.watch(self._schedule)


def until(events: Iterator[Block], end: float) -> list[Block]:
    """Return what comes first, up to the block in which the instant lies."""
    found: list[Block] = []
    for event in events:
        found.append(event)
        if isinstance(event, Schedule) and event.end >= end * 1e12:
            return found
    raise AssertionError("the job ended")


def test_a_synchronous_job_is_lost_between_checkpoint_and_failure() -> None:
    """What lasts are iterations of 1 s; all other time is saved, lost, or restarts."""
    job = FailingJob(ssgd(4), 4, Mtbf(worker=400.0))
    end = 2000.0
    until(job.blocks(), end)
    found = job.summary(end)
    failed = list(takewhile(lambda at: at < end, failure_instants(Mtbf(400.0), 4, 0, 0)))
    assert found.stops == len(failed) >= 10
    assert found.failures == 0
    assert found.effective + found.lost + found.saving + found.restarting == pytest.approx(1)
    # Iterations that last, of 4 steps each, and the one under way at the end.
    lasting = found.goodput * end / 4 * STEP
    assert -1e-6 <= found.effective * end - lasting <= STEP
    assert found.saving * end >= 2 * found.checkpoints
    assert found.restarting * end <= 5 * len(failed)
    assert found.waiting == pytest.approx(found.restarting * 3 / 4)
    # While it works it makes 4 steps a second, but for iterations that a failure cuts short.
    assert 4 * 0.95 < found.throughput <= 4
    assert found.goodput < found.throughput


def test_the_share_of_a_long_run_is_dalys() -> None:
    """20 s of work, 2 s of saving, 5 s of restart, a failure every 100 s: within 3 errors."""
    shares = []
    for seed in range(12):
        job = FailingJob(ssgd(4), 4, Mtbf(worker=400.0), seed)
        until(job.blocks(), 1500.0)
        shares.append(job.summary(1500.0).effective)
    error = np.std(shares, ddof=1) / 12**0.5
    assert error < 0.03
    expected = 1 / expected_makespan(1.0, 20.0, 2.0, 5.0, 100.0)
    assert np.mean(shares) == pytest.approx(expected, abs=3 * error)


@pytest.mark.parametrize("rule", [asgd(), ssp(3), backup(4, 1)])
def test_an_asynchronous_job_goes_on_without_those_that_failed(rule: Rule) -> None:
    job = FailingJob(rule, 4, Mtbf(worker=60.0))
    end = 500.0
    events = until(job.blocks(), end)
    assert all(isinstance(event, Schedule) for event in events)
    found = job.summary(end)
    assert (found.stops, found.checkpoints, found.saving, found.waiting) == (0, 0, 0, 0)
    # 4 workers of which each fails every 60 s, and is back after 5 s: 4 x 500 / 65 = 31.
    assert 31 - 3 * 31**0.5 < found.failures < 31 + 3 * 31**0.5
    assert found.restarting == pytest.approx(found.failures * 5 / (4 * end), rel=1e-9)
    assert found.effective + found.lost + found.restarting == pytest.approx(1)
    if rule == asgd():
        # Nobody waits: effective is what steps that count have taken, and those under way.
        assert -1e-6 <= found.effective * 4 * end - found.goodput * end * STEP <= 4 * STEP


def test_the_failure_of_a_server_brings_an_asynchronous_job_back_to_its_checkpoint() -> None:
    job = FailingJob(asgd(), 3, Mtbf(server=150.0))
    events = until(job.blocks(), 1000.0)
    stops = [event for event in events if isinstance(event, Restore)]
    assert stops
    assert any(isinstance(event, Checkpoint) for event in events)
    version = saved = 0
    for event in events:
        if isinstance(event, Checkpoint):
            saved = version
        elif isinstance(event, Restore):
            version = saved
        elif len(event.updates):
            assert event.updates["version"][0] == version + 1
            version = int(event.updates["version"][-1])
    found = job.summary(1000.0)
    assert found.stops == sum(stop.failures for stop in stops if stop.failed < 1e15)
    assert found.lost > 0


def test_the_same_seed_is_the_same_job_and_designs_share_their_failures() -> None:
    def marks(rule: Rule, seed: int) -> list[int]:
        job = FailingJob(rule, 2, Mtbf(server=100.0), seed)
        events = until(job.blocks(), 600.0)
        return [event.failed for event in events if isinstance(event, Restore)]

    assert marks(asgd(), 1) == marks(asgd(), 1)
    assert marks(asgd(), 1)[0] == marks(ssp(1), 1)[0]
    assert marks(asgd(), 1) != marks(asgd(), 2)


def test_an_end_within_a_restart_counts_up_to_it() -> None:
    """One failure at an instant that is known: 2 s later 2 s of the 5 s have passed."""
    instant = next(failure_instants(Mtbf(400.0), 4, 0, 0))
    job = FailingJob(ssgd(4), 4, Mtbf(worker=400.0))
    until(job.blocks(), instant + 10)
    found = job.summary(instant + 2)
    assert found.stops == 1
    assert found.restarting == pytest.approx(2 / (instant + 2), rel=1e-9)
