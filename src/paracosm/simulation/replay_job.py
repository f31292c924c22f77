"""Replay of a whole job: all its ranks, on all their lanes, over all their links."""

from __future__ import annotations

import functools

import numpy as np

from paracosm.jobs import Job
from paracosm.jobs.check import check_job
from paracosm.jobs.expand import PICOSECOND, expand, first_rows, task_label
from paracosm.simulation.drawn import check_duration_cv, drawn_durations
from paracosm.simulation.events import replay_tasks
from paracosm.simulation.extremes import with_extremes
from paracosm.simulation.folding import fold_ranks, unfolded
from paracosm.simulation.job_schedule import JobSchedule
from paracosm.simulation.static import play_static, schedule_of
from paracosm.simulation.stored_order import store_order

__all__ = ["replay_job"]


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
            slowest of them is estimated (see `extremes.py`); not folded, and where events are
            played, every task is drawn.
        seed: of what is drawn.

    Raises:
        InputError: arrays that do not go together; communication that does not match; a duration
            that cannot be; ranks that wait for each other for ever; a coefficient of variation or a
            seed below 0.
    """
    check_duration_cv(duration_cv, seed)
    check_job(job)
    if not job.is_static:
        return _by_events(job, duration_cv, seed)
    if duration_cv and not fold:
        return schedule_of(play_static(job, unfolded(job), drawn_durations(job, duration_cv, seed)))
    played = play_static(job, fold_ranks(job) if fold else unfolded(job))
    if duration_cv:
        played = with_extremes(played, store_order(played), duration_cv)
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
