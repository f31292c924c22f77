"""Other durations on a stored order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from random_jobs import static_jobs
from retiming import prepare_retiming

from paracosm.errors import InputError
from paracosm.jobs.job import Job
from paracosm.jobs.writer import Codebook, ProgramWriter, write_communicators, write_job
from paracosm.simulation import replay_job


def relay(ranks: int, seconds: float) -> Job:
    """Each rank works when the one before has: ranks x seconds."""
    books = Codebook(), Codebook(), Codebook()
    writers, groups = [], []
    of_rank: list[dict[str, int]] = [{} for _ in range(ranks)]
    for rank in range(ranks):
        writer, after = ProgramWriter(*books), []
        if rank:
            after = [writer.add("get", "receive", 0.0, kind="receive", role="last")]
            of_rank[rank]["last"] = rank - 1
        done = writer.add("work", "compute", seconds, after)
        if rank < ranks - 1:
            writer.add("put", "send", 0.0, [done], kind="send", role="next")
            of_rank[rank]["next"] = rank
            groups.append((rank, rank + 1))
        writers.append(writer)
    return write_job(writers, range(ranks), write_communicators(groups), of_rank)


def picoseconds(job: Job, factor: int) -> np.ndarray:
    """Return whole picoseconds of all tasks; those of kind "task" times a factor."""
    columns = []
    for rank, number in enumerate(job.program.tolist()):
        program = job.programs[number]
        own = program.kind == 0
        seconds = np.where(own, program.duration / job.speed[rank], program.duration)
        columns.append(np.rint(seconds * 1e12).astype(np.int64) * np.where(own, factor, 1))
    return np.concatenate([*columns, np.zeros(0, dtype=np.int64)])


def with_speed(job: Job, factor: float) -> Job:
    return Job(**{**vars(job), "speed": job.speed * factor})


@settings(deadline=None)
@given(static_jobs(copies=2), st.sampled_from([1, 2, 4]))
def test_retiming_is_a_replay_with_other_durations(job: Job, factor: int) -> None:
    retiming = prepare_retiming(job)
    assert retiming.tasks == job.tasks
    slower = with_speed(job, 1 / factor)
    assert retiming.makespan(picoseconds(job, factor)) == replay_job(slower).makespan


def test_too_few_durations_are_refused() -> None:
    retiming = prepare_retiming(relay(2, 0.1))
    with pytest.raises(InputError, match="3 durations for a job of 4 tasks"):
        retiming.makespan(np.zeros(3, dtype=np.int64))


def test_other_durations_beyond_the_clock_are_refused() -> None:
    retiming = prepare_retiming(relay(3, 1.0))
    # 3 works, 2 puts, and as long again until they are there
    assert retiming.makespan(np.full(retiming.tasks, 10**12)) == pytest.approx(7.0)
    for picoseconds in (6 * 10**18, -5):
        with pytest.raises(InputError, match="negative, or the job lasts more than"):
            retiming.makespan(np.full(retiming.tasks, picoseconds))


def test_a_job_that_does_not_fit_together_is_not_stored() -> None:
    job = relay(2, 1.0)
    with pytest.raises(InputError, match="there is no program 7"):
        prepare_retiming(Job(**{**vars(job), "program": np.array([0, 7], dtype=np.int32)}))
