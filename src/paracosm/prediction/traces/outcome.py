"""What came of a job, as traced or as played again: times, who held up whom, and the bottleneck."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.jobs import Job
from paracosm.jobs.job import KINDS
from paracosm.prediction.traces.traced import WORK, TracedJob, TracedRank
from paracosm.simulation import replay_job
from paracosm.timeline import Labels, Timeline, breakdown, largest_share

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Times:
    """Seconds of every row of every rank: one array of each kind for a rank."""

    arrive: tuple[Floats, ...]
    begin: tuple[Floats, ...]
    end: tuple[Floats, ...]


@dataclass(frozen=True, slots=True)
class Straggler:
    """The rank that comes last most often."""

    rank: int  # which
    last: int  # to how many collectives
    collectives: int  # how many there are in its groups
    lateness: float  # seconds for which the others waited, in the mean of those


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of a job."""

    iteration_time: float  # seconds, of the slowest rank
    breakdowns: tuple[Breakdown, ...]  # one for each rank, of an iteration
    straggler: Straggler | None  # None where no collectives meet


def traced_times(traced: TracedJob) -> Times:
    times = ((rank.arrive, rank.begin, rank.end) for rank in traced.ranks)
    return Times(*zip(*times, strict=True))


def replayed(job: Job) -> Times:
    """Ranks are played one by one, none is folded."""
    schedule = replay_job(job, fold=False)
    rows = [schedule.tasks_of(rank) for rank in range(job.ranks)]
    times = schedule.arrive, schedule.begin, schedule.end
    return Times(*(tuple(kind[each] for each in rows) for kind in times))


def outcome_of(traced: TracedJob, times: Times) -> Outcome:
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
    """The rank that comes last to most collectives; of several the one that is latest."""
    job = traced.job
    last, met = np.zeros((2, job.ranks), dtype=np.int64)
    lateness = np.zeros(job.ranks)
    for number in range(traced.groups):
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
    role = job.programs[rank].role
    return np.flatnonzero((role >= 0) & (job.communicator[rank][role] == communicator))


_COMPUTE = [WORK.index("compute"), WORK.index("copy")]
_HOST = [WORK.index("host"), WORK.index("data loading")]
_COMMUNICATION, _LOADING = WORK.index("communication"), WORK.index("data loading")
_WAITING = WORK.index("waiting")


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Seconds of an iteration of one rank; the first four make up the whole."""

    compute: float  # some stream computes or copies; without a device, some thread works
    exposed_communication: float  # none does, and data is on its way
    waiting: float  # the device waits in a collective for other ranks
    host: float  # none of these: the device waits for the host
    data_loading: float  # the training loop waits for data; part of the others

    @property
    def total(self) -> float:
        return self.compute + self.exposed_communication + self.waiting + self.host


def breakdown_of(
    rank: TracedRank, arrive: Floats, begin: Floats, end: Floats, iterations: int
) -> Breakdown:
    first, last = 0.0, float(end.max(initial=0.0))
    if len(rank.marks):
        first, last = float(begin[rank.marks[0]]), float(end[rank.marks[-1]])
    device = np.isin(rank.work, [*_COMPUTE, _COMMUNICATION]).any()
    busy = np.isin(rank.work, _COMPUTE if device else _HOST)
    met, loading = rank.work == _COMMUNICATION, rank.work == _LOADING
    waits = rank.work == _WAITING
    found = breakdown(
        [
            ("compute", begin[busy], end[busy]),
            ("exposed_communication", begin[met], end[met]),
            (
                "waiting",
                np.concatenate((arrive[met], arrive[waits])),
                np.concatenate((begin[met], end[waits])),
            ),
        ],
        *(first, last),
        rest="host",
    )
    loaded = breakdown([("data_loading", begin[loading], end[loading])], first, last, rest="other")
    found["data_loading"] = loaded["data_loading"]
    return Breakdown(**{part: time / iterations for part, time in found.items()})


def bottleneck_of(breakdowns: Sequence[Breakdown], straggler: int | None) -> str:
    """Name the largest part of the time; `straggler` is whom others wait for most often."""
    total = sum(each.total for each in breakdowns)
    if not total:
        return "Nothing takes time."
    time = {
        name: sum(getattr(each, name) for each in breakdowns)
        for name in ("compute", "exposed_communication", "waiting", "host")
    }
    name, share = largest_share(time, total)
    loading = sum(each.data_loading for each in breakdowns) / total
    many = "the ranks'" if len(breakdowns) > 1 else "the"
    if name == "compute":
        return f"Computation: it takes {share:.0%} of {many} time."
    if name == "exposed_communication":
        return f"Communication: {share:.0%} of {many} time is exposed."
    if name == "waiting" and straggler is not None:
        return (
            f"Waiting for other ranks: {share:.0%} of {many} time, for rank {straggler} most often."
        )
    if name == "host" and loading > share / 2:
        return f"Data loading: the training loop waits {loading:.0%} of {many} time for data."
    return f"The host: for {share:.0%} of {many} time the device has nothing to do."


LONGEST = 100  # characters of a name: those of kernels go into the thousands
_COLLECTIVE, _RECEIVE = KINDS.index("collective"), KINDS.index("receive")


def timeline_of(traced: TracedJob, replays: Sequence[tuple[str, Times]]) -> Timeline:
    """Each replay comes with a text behind the names of its ranks."""
    timeline, job = Timeline(), traced.job
    names = [name[:LONGEST] for name in job.names]
    words = [*names, *(f"wait: {name}" for name in names)]
    for text, times in replays:
        ranks = zip(job.labels, job.programs, times.arrive, times.begin, times.end, strict=True)
        for label, program, arrive, begin, end in ranks:
            # Of each row the waiting, then the work.
            begin = np.where(program.kind == _RECEIVE, end, begin)
            waits = np.isin(program.kind, (_COLLECTIVE, _RECEIVE)) & (begin > arrive)
            timeline.extend(
                label + text,
                Labels(program.lane[:, None], job.lanes),
                Labels(np.add.outer(program.name, [len(names), 0]), words),
                np.column_stack([arrive, begin]),
                np.column_stack([begin, end]),
                where=np.column_stack([waits, end > begin]),
            )
    return timeline
