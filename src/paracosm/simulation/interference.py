"""Computing that is slowed by collectives beside it, for exactly as long as both are under way.

A task of `d` seconds that begins at b ends at the first e with

    d = (e - b) - (1 - 1 / slowdown) * (time from b to e in which a collective is under way),

so it takes `d` where nothing communicates, and never more than `slowdown` times `d`. When
collectives are under way depends on when tasks end, hence on these durations: they are found by
replaying the job until they no longer change. All instants before the first wrong one are right in
every replay, and each replay gets at least one more of them right, so this ends.
"""

from collections.abc import Callable

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.jobs.expand import PICOSECOND
from paracosm.jobs.job import KINDS, Job
from paracosm.jobs.strategies.work import COMMUNICATION, COMPUTE, WITHIN
from paracosm.simulation.static import JobSchedule

REPLAYS = 100  # at most; a few are usual
CLOSE = 1e-9  # of the iteration: durations that change by less are found

_COMMUNICATE = {COMMUNICATION, *WITHIN}
"""Lanes of collectives: between replicas, and between ranks that share layers, where those overlap
with products."""

TASK, COLLECTIVE = KINDS.index("task"), KINDS.index("collective")


def interferes(job: Job) -> bool:
    """Whether any computing of a job may be slowed."""
    return job.slowdown > 1 and COMPUTE in job.lanes and bool(_COMMUNICATE & set(job.lanes))


def slowed(job: Job, nominal: Ints, replayed: Callable[[Ints], JobSchedule]) -> Ints:
    """Return the durations of all tasks beside the collectives that are under way meanwhile.

    Args:
        job: whose tasks, of which `nominal` has the picoseconds without interference: those of each
            class of ranks, one class after the other.
        replayed: returns when everything runs, with other durations of the same tasks.
    """
    duration = nominal
    for _ in range(REPLAYS):
        schedule = replayed(duration)
        longer = _beside_collectives(schedule, nominal)
        change = float(np.abs(longer - duration).max(initial=0))
        duration = longer
        if change * PICOSECOND <= max(CLOSE * schedule.makespan, PICOSECOND):
            break
    return duration


def _beside_collectives(schedule: JobSchedule, nominal: Ints) -> Ints:
    """Return the durations of all tasks, beside the collectives of a schedule."""
    job, numbers = schedule.job, nominal.copy()
    compute = job.lanes.index(COMPUTE)
    communicate = [code for code, lane in enumerate(job.lanes) if lane in _COMMUNICATE]
    lost = 1 - 1 / job.slowdown
    for number, rank in enumerate(schedule.representative.tolist()):
        program = job.programs[job.program[rank]]
        first = int(schedule.first[number])
        meets = first + np.flatnonzero(
            (program.kind == COLLECTIVE) & np.isin(program.lane, communicate)
        )
        computes = first + np.flatnonzero((program.kind == TASK) & (program.lane == compute))
        if len(meets) and len(computes):
            begin = np.rint(schedule.begin[computes] / PICOSECOND)
            starts, stops = _united(schedule.begin[meets], schedule.end[meets])
            end = _ends(begin, nominal[computes], starts, stops, lost)
            numbers[computes] = np.rint(end - begin)
    return numbers


def _united(begin: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Return the starts and stops, in picoseconds, between which at least one of spans lasts."""
    order = np.argsort(begin, kind="stable")
    starts, stops = begin[order] / PICOSECOND, np.maximum.accumulate(end[order]) / PICOSECOND
    first = np.concatenate(([True], starts[1:] > stops[:-1]))
    return starts[first], stops[np.concatenate((first[1:], [True]))]


def _ends(begin: Floats, duration: Ints, starts: Floats, stops: Floats, lost: float) -> Floats:
    """Return when tasks end that get `lost` less done per second between starts and stops.

    Starts and stops are ascending, and one pair is over before the next.
    """
    instants = np.concatenate(([0.0], np.column_stack((starts, stops)).reshape(-1)))
    within = np.concatenate(([0.0], np.column_stack((0 * starts, stops - starts)).reshape(-1)))
    lost_by = lost * np.cumsum(within)
    done_by = instants - lost_by  # what a task of that age has got done
    target = begin - np.interp(begin, instants, lost_by) + duration
    inside = np.interp(target, done_by, instants)
    return np.asarray(np.where(target > done_by[-1], target + lost_by[-1], inside))
