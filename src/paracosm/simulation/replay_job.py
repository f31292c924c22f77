"""Replay of a whole job: all its ranks, on all their lanes, over all their links."""

import functools
import math
from typing import Any

import numpy as np

from paracosm.arrays import Ints
from paracosm.compiled import compiled
from paracosm.errors import InputError
from paracosm.jobs.check import check_job
from paracosm.jobs.expand import PICOSECOND, expand, first_rows, picoseconds, task_label
from paracosm.jobs.job import KINDS, Job
from paracosm.rng import SimulationStream, stream_keys
from paracosm.simulation.events import replay_tasks
from paracosm.simulation.folding import fold_ranks, unfolded
from paracosm.simulation.job_schedule import JobSchedule
from paracosm.simulation.static import play_static, schedule_of
from paracosm.simulation.straggler_penalty import store_order, with_straggler_penalty
from paracosm.timing.compiled import normal_quantile, uniform


def replay_job(
    job: Job, *, fold: bool = True, duration_cv: float = 0.0, seed: int = 0
) -> JobSchedule:
    """Return when every task of a job runs.

    Where all lanes run in order and no links are shared, that is a longest path; alike ranks are
    replayed once. Otherwise events are played one by one, and every rank for itself.

    Args:
        job: what runs.
        fold: whether alike ranks are replayed as one; the instants are the same, to the bit.
        duration_cv: coefficient of variation of each task of the ranks' own, lognormal around its
            duration. Ranks that are alike then differ: folded, what they lose by waiting for the
            slowest of them is estimated (`straggler_penalty.py`); not folded, and where events are
            played, every task is drawn.
        seed: of what is drawn.

    Raises:
        InputError: arrays that do not go together; communication that does not match; a duration
            that cannot be; ranks that wait for each other for ever; a coefficient of variation or a
            seed below 0.
    """
    _check_duration_cv(duration_cv, seed)
    check_job(job)
    if not job.is_static:
        return _by_events(job, duration_cv, seed)
    if duration_cv and not fold:
        return schedule_of(play_static(job, unfolded(job), drawn_durations(job, duration_cv, seed)))
    played = play_static(job, fold_ranks(job) if fold else unfolded(job))
    if duration_cv:
        played = with_straggler_penalty(played, store_order(played), duration_cv)
    return schedule_of(played)


def _by_events(job: Job, duration_cv: float, seed: int) -> JobSchedule:
    """Play a job on which the order of tasks, or the rates of messages, depend on what happens."""
    duration = drawn_durations(job, duration_cv, seed) if duration_cv else None
    times = replay_tasks(expand(job, duration), functools.partial(task_label, job))
    ranks = np.arange(job.ranks, dtype=np.int32)
    return JobSchedule(
        job=job,
        class_of=ranks,
        representative=ranks,
        first=first_rows(job),
        arrive=times.arrive.astype(np.float64) * PICOSECOND,
        begin=times.begin.astype(np.float64) * PICOSECOND,
        end=times.end.astype(np.float64) * PICOSECOND,
    )


TASK = KINDS.index("task")


def drawn_durations(job: Job, duration_cv: float, seed: int) -> Ints:
    """Return picoseconds of the tasks of all ranks, one rank after the other.

    What ranks do by themselves is lognormal around its duration, with the coefficient of
    variation `duration_cv`; communication is as it is. Every rank has a random stream of its own,
    and every task a number in it.
    """
    _check_duration_cv(duration_cv, seed)
    sigma = math.sqrt(math.log1p(duration_cv**2))
    keys = stream_keys(seed, SimulationStream.TASKS, job.ranks)
    known: dict[tuple[int, float], Ints] = {}
    columns = []
    for rank, key in enumerate(keys):
        own, speed = int(job.program[rank]), float(job.speed[rank])
        if (own, speed) not in known:
            known[own, speed] = picoseconds(job.programs[own], speed, job.names)
        lengths = known[own, speed].copy()
        _vary(lengths, job.programs[own].kind, key, sigma)
        columns.append(lengths)
    return np.concatenate([*columns, np.zeros(0, dtype=np.int64)])


def _check_duration_cv(duration_cv: float, seed: int) -> None:
    if not 0 <= duration_cv <= 1:
        raise InputError(f"a coefficient of variation is from 0 to 1, not {duration_cv}")
    if seed < 0:
        raise InputError(f"a seed is a whole number from 0 on, not {seed}")


@compiled
def _vary(lengths: Any, kind: Any, key: Any, sigma: float) -> None:
    """Multiply the durations of a rank's own tasks by factors of mean 1."""
    for row in range(lengths.size):
        if kind[row] == TASK:
            normal = normal_quantile(uniform(key, row))
            lengths[row] = np.int64(round(lengths[row] * math.exp(sigma * normal - sigma**2 / 2)))
