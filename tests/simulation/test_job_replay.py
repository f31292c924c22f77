"""The replay of jobs whose lanes are in order: against hand, against a slow one, and its bounds."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_jobs import slowly, static_jobs

from paracosm.errors import InputError
from paracosm.jobs.expand import expand
from paracosm.jobs.job import Job
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job
from paracosm.simulation.events import replay_tasks
from paracosm.simulation.replay import replay_job
from paracosm.simulation.static import JobSchedule


def instants(schedule: JobSchedule, rank: int) -> list[tuple[int, int, int]]:
    tasks = schedule.tasks_of(rank)
    columns = [getattr(schedule, name)[tasks] for name in ("arrive", "begin", "end")]
    return [tuple(round(value * 1e12) for value in row) for row in zip(*columns, strict=True)]


def two_ranks(first: float, second: float) -> Job:
    """Each works, meets the other, works again; its own name for everything.

    rank 0  compute  [work 2]     [rest 1]      rank 1  compute  [work 5] [rest 1]
            network          [meet 3]                   network          [meet 3]
    """
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    writers = []
    for work in (first, second):
        writer = ProgramWriter(names, lanes, roles)
        done = writer.add("work", "compute", work)
        meet = writer.add("meet", "network", 3.0, [done], kind="collective", role="all", size=8)
        writer.add("rest", "compute", 1.0, [meet])
        writers.append(writer)
    return write_job(writers, [0, 1], write_communicators([(0, 1)]), [{"all": 0}, {"all": 0}])


def test_a_collective_waits_for_the_last_rank() -> None:
    schedule = replay_job(two_ranks(2.0, 5.0))
    first, second = schedule.tasks_of(0), schedule.tasks_of(1)
    np.testing.assert_allclose(schedule.arrive[first], [0, 2, 8])
    np.testing.assert_allclose(schedule.begin[first], [0, 5, 8])
    np.testing.assert_allclose(schedule.end[first], [2, 8, 9])
    np.testing.assert_allclose(schedule.arrive[second], [0, 5, 8])
    assert schedule.makespan == pytest.approx(9.0)


def test_speeds_divide_what_a_rank_does_by_itself() -> None:
    job = two_ranks(2.0, 2.0)
    slow = Job(**{**vars(job), "speed": np.array([1.0, 0.5])})
    # Rank 1 needs 4 for its work and 2 for the rest; the collective takes 3 on both.
    assert replay_job(slow).makespan == pytest.approx(4 + 3 + 2)


def test_a_message_leaves_whoever_waits_for_it() -> None:
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    sender, receiver = (ProgramWriter(names, lanes, roles) for _ in range(2))
    sender.add("send", "send", 2.0, kind="send", role="next", size=8)
    sender.add("send", "send", 2.0, kind="send", role="next", size=8)
    busy = receiver.add("work", "compute", 3.0)
    first = receiver.add("receive", "receive", 0.0, [busy], kind="receive", role="last", size=8)
    receiver.add("receive", "receive", 0.0, [first], kind="receive", role="last", size=8)
    job = write_job(
        [sender, receiver], [0, 1], write_communicators([(0, 1)]), [{"next": 0}, {"last": 0}]
    )
    schedule = replay_job(job)
    np.testing.assert_allclose(schedule.end[schedule.tasks_of(0)], [2, 4])
    np.testing.assert_allclose(schedule.end[schedule.tasks_of(1)], [3, 3, 4])


@settings(deadline=None)
@given(static_jobs())
def test_every_instant_is_that_of_the_slow_replay(job: Job) -> None:
    schedule, slow = replay_job(job, fold=False), slowly(job)
    for rank in range(job.ranks):
        assert instants(schedule, rank) == slow[rank]


@settings(deadline=None)
@given(static_jobs())
def test_every_instant_is_that_of_the_event_loop(job: Job) -> None:
    schedule, times = replay_job(job, fold=False), replay_tasks(expand(job))
    for name in ("arrive", "begin", "end"):
        np.testing.assert_array_equal(np.rint(getattr(schedule, name) * 1e12), getattr(times, name))


@settings(deadline=None)
@given(static_jobs(copies=3))
def test_folding_changes_no_bit(job: Job) -> None:
    folded, full = replay_job(job), replay_job(job, fold=False)
    assert len(folded.representative) <= job.ranks // 3
    for rank in range(job.ranks):
        here, there = folded.tasks_of(rank), full.tasks_of(rank)
        for name in ("arrive", "begin", "end"):
            np.testing.assert_array_equal(getattr(folded, name)[here], getattr(full, name)[there])


@settings(deadline=None)
@given(static_jobs())
def test_no_lane_runs_two_tasks_at_once_and_no_task_before_its_causes(job: Job) -> None:
    schedule = replay_job(job)
    for rank in range(job.ranks):
        program, tasks = job.programs[job.program[rank]], schedule.tasks_of(rank)
        arrive, end = schedule.arrive[tasks], schedule.end[tasks]
        for lane in range(len(job.lanes)):
            rows = np.flatnonzero(program.lane == lane)
            assert (arrive[rows[1:]] >= end[rows[:-1]]).all()
        for row in range(len(program)):
            awaited = program.dependencies[program.offsets[row] : program.offsets[row + 1]]
            assert (end[awaited] <= arrive[row]).all()


@settings(deadline=None)
@given(static_jobs())
def test_the_makespan_lies_between_the_longest_rank_and_all_durations(job: Job) -> None:
    makespan = round(replay_job(job).makespan * 1e12)
    lengths = [
        [end - begin for _, begin, end in rank] for rank in slowly(job)
    ]  # of what ran: a collective counts its longest member on every rank
    assert makespan <= sum(map(sum, lengths))
    for rank in range(job.ranks):
        lane = job.programs[job.program[rank]].lane
        for each in range(len(job.lanes)):
            busy = [length for length, on in zip(lengths[rank], lane, strict=True) if on == each]
            assert makespan >= sum(busy)


def test_ranks_that_wait_for_each_other_are_named() -> None:
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    writers = []
    for order in (("x", "y"), ("y", "x")):
        writer = ProgramWriter(names, lanes, roles)
        for role in order:
            writer.add(f"meet {role}", "network", 1.0, kind="collective", role=role, size=8)
        writers.append(writer)
    both = {"x": 0, "y": 1}
    job = write_job(writers, [0, 1], write_communicators([(0, 1), (0, 1)]), [both, both])
    with pytest.raises(InputError, match=r"rank 0 waits at meet x .* rank 1 waits at meet y"):
        replay_job(job)


@pytest.mark.parametrize("duration", [-1.0, float("nan"), float("inf"), 1e8])
def test_durations_that_cannot_be_are_refused(duration: float) -> None:
    with pytest.raises(InputError, match=r"duration is|at most"):
        replay_job(two_ranks(duration, 1.0))


@pytest.mark.parametrize("spread", [-0.1, 1.5, float("nan")])
def test_a_spread_that_cannot_be_is_refused(spread: float) -> None:
    with pytest.raises(InputError, match="a coefficient of variation is from 0 to 1"):
        replay_job(two_ranks(1.0, 1.0), duration_cv=spread)


@settings(deadline=None)
@given(st.integers(1, 6), st.integers(0, 3))
def test_an_empty_program_takes_no_time(ranks: int, busy: int) -> None:
    names, lanes, roles = Codebook(), Codebook(["compute"]), Codebook()
    idle, working = (ProgramWriter(names, lanes, roles) for _ in range(2))
    for _ in range(busy):
        working.add("work", "compute", 1.0)
    job = write_job([idle, working], [0] * ranks + [1], write_communicators([]), [{}] * (ranks + 1))
    schedule = replay_job(job)
    assert schedule.makespan == pytest.approx(busy)
    assert schedule.tasks_of(0) == slice(0, 0)


def test_a_fifo_lane_takes_who_comes_first() -> None:
    """Two workers push to a server, whose update lane goes by arrival: the second one's is first.

    worker 0   [work 5][push 1]            server   receives at 6
    worker 1   [work 1][push 1]                     receives at 2: updates from 2 to 12, then
                                                    the other from 12 to 22
    """
    names, lanes, roles = Codebook(), Codebook(), Codebook()
    workers = [ProgramWriter(names, lanes, roles) for _ in range(2)]
    for writer, work in zip(workers, (5.0, 1.0), strict=True):
        done = writer.add("work", "compute", work)
        writer.add("push", "send", 1.0, [done], kind="send", role="server", size=8)
    server = ProgramWriter(names, lanes, roles)
    for worker in range(2):
        role = f"worker {worker}"
        there = server.add("push", None, 0.0, kind="receive", role=role, size=8)
        server.add("update", "compute", 10.0, [there])
    job = write_job(
        [*workers, server],
        [0, 1, 2],
        write_communicators([(0, 2), (1, 2)]),
        [{"server": 0}, {"server": 1}, {"worker 0": 0, "worker 1": 1}],
        policies={"compute": "fifo"},
    )
    assert not job.is_static
    schedule = replay_job(job)
    np.testing.assert_allclose(schedule.begin[schedule.tasks_of(2)], [0, 12, 0, 2])
    assert schedule.makespan == pytest.approx(22)
    varied = replay_job(job, duration_cv=0.1, seed=3)
    assert varied.makespan != schedule.makespan
    np.testing.assert_array_equal(varied.end, replay_job(job, duration_cv=0.1, seed=3).end)
