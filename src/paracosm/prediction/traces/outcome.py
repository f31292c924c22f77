"""What came of a job, as traced or as played again: times, who held up whom, and the bottleneck."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.jobs import Job
from paracosm.prediction.traces.breakdown import Breakdown, breakdown_of
from paracosm.prediction.traces.traced import TracedJob
from paracosm.simulation import replay_job

__all__ = ["Outcome", "Straggler", "Times", "outcome_of", "replayed", "traced_times"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Times:
    """Seconds of every row of every rank: one array of each kind for a rank."""

    arrive: tuple[Floats, ...]
    begin: tuple[Floats, ...]
    end: tuple[Floats, ...]


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that comes last most often.

    Attributes:
        rank: which.
        last: to how many collectives.
        collectives: how many there are in its groups.
        lateness: seconds for which the others waited on the average, in those where it came last.
    """

    rank: int
    last: int
    collectives: int
    lateness: float


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a job.

    Attributes:
        iteration_time: seconds, of the slowest rank.
        breakdowns: one for each rank, of an iteration.
        straggler: None where no collectives meet.
    """

    iteration_time: float
    breakdowns: tuple[Breakdown, ...]
    straggler: Straggler | None


def traced_times(traced: TracedJob) -> Times:
    """Return the times of a job as they were traced."""
    return Times(
        tuple(rank.arrive for rank in traced.ranks),
        tuple(rank.begin for rank in traced.ranks),
        tuple(rank.end for rank in traced.ranks),
    )


def replayed(job: Job) -> Times:
    """Return the times of a job that is played; ranks are played one by one, none is folded."""
    schedule = replay_job(job, fold=False)
    rows = [schedule.tasks_of(rank) for rank in range(job.ranks)]
    return Times(
        tuple(schedule.arrive[each] for each in rows),
        tuple(schedule.begin[each] for each in rows),
        tuple(schedule.end[each] for each in rows),
    )


def outcome_of(traced: TracedJob, times: Times) -> Outcome:
    """Return what came of a job at these times."""
    iterations = max(len(traced.steps), 1)
    breakdowns = tuple(
        breakdown_of(rank, arrive, begin, end, iterations)
        for rank, arrive, begin, end in zip(
            traced.ranks, times.arrive, times.begin, times.end, strict=True
        )
    )
    return Outcome(
        iteration_time=max(each.total for each in breakdowns),
        breakdowns=breakdowns,
        straggler=_straggler(traced, times),
    )


def _straggler(traced: TracedJob, times: Times) -> Straggler | None:
    """Return the rank that comes last to most collectives; of several the one that is latest."""
    job = traced.job
    last, met = np.zeros((2, job.ranks), dtype=np.int64)
    lateness = np.zeros(job.ranks)
    for number in range(len(job.communicators)):
        ranks = np.array(job.communicators.ranks(number))
        arrivals = np.array([times.arrive[rank][_rows(job, rank, number)] for rank in ranks])
        latest = arrivals.argmax(axis=0)
        waited = (arrivals.max(axis=0) - arrivals).sum(axis=0) / max(len(ranks) - 1, 1)
        met[ranks] += arrivals.shape[1]
        np.add.at(last, ranks[latest], 1)
        np.add.at(lateness, ranks[latest], waited)
    if not met.any():
        return None
    rank = int(np.lexsort((-lateness, -last))[0])
    return Straggler(
        rank=traced.ranks[rank].rank,
        last=int(last[rank]),
        collectives=int(met[rank]),
        lateness=float(lateness[rank] / last[rank]),
    )


def _rows(job: Job, rank: int, communicator: int) -> npt.NDArray[np.int64]:
    """Return the rows of a rank's collectives on a communicator, in order."""
    role = job.programs[rank].role
    return np.flatnonzero((role >= 0) & (job.communicator[rank][role] == communicator))
