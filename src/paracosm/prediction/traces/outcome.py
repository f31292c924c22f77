"""The outcome of a job, as traced or replayed: times, late ranks, and the bottleneck."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from paracosm.arrays import Floats
from paracosm.jobs.job import KINDS, Job
from paracosm.prediction.traces.arrivals import Arrivals, Straggler, arrivals_of, joined_arrivals
from paracosm.prediction.traces.traced import WORK, TracedJob, TracedRank
from paracosm.simulation import replay_job
from paracosm.timeline.analysis import breakdown, largest_share
from paracosm.timeline.timeline import Labels, Timeline


@dataclass(frozen=True, eq=False)
class Times:
    """Seconds of every row of every rank: one array of each kind for a rank."""

    arrive: tuple[Floats, ...]
    begin: tuple[Floats, ...]
    end: tuple[Floats, ...]


@dataclass(frozen=True, eq=False)
class Outcome:
    """The outcome of a job."""

    iterations: int
    breakdowns: "tuple[Breakdown, ...]"  # one for each rank, of an iteration
    arrivals: Arrivals  # of the ranks at their collectives

    @property
    def iteration_time(self) -> float:
        """Seconds, of the slowest rank."""
        return max(each.total for each in self.breakdowns)

    @property
    def straggler(self) -> Straggler | None:
        """The rank that comes last most often; None where no collectives meet."""
        return self.arrivals.straggler()


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
    iterations = max(len(traced.counted), 1)
    each_rank = zip(traced.ranks, times.arrive, times.begin, times.end, strict=True)
    breakdowns = (
        breakdown_of(rank, arrive, begin, end, iterations, traced.warm)
        for rank, arrive, begin, end in each_rank
    )
    return Outcome(iterations, tuple(breakdowns), arrivals_of(traced, times.arrive))


def joined_outcomes(parts: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a job whose steps were replayed in parts."""
    if len(parts) == 1:
        return parts[0]
    total = sum(part.iterations for part in parts)
    of_rank = zip(*(part.breakdowns for part in parts), strict=True)
    share = [part.iterations / total for part in parts]
    names = [field.name for field in fields(Breakdown)]
    breakdowns = tuple(
        Breakdown(
            *(
                sum(by * getattr(each, name) for by, each in zip(share, own, strict=True))
                for name in names
            )
        )
        for own in of_rank
    )
    return Outcome(total, breakdowns, joined_arrivals([part.arrivals for part in parts]))


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
    rank: TracedRank, arrive: Floats, begin: Floats, end: Floats, iterations: int, warm: int = 0
) -> Breakdown:
    """Return the parts of an iteration; the first `warm` steps are not counted."""
    first, last = 0.0, float(end.max(initial=0.0))
    if len(rank.marks):
        first, last = float(begin[rank.marks[warm]]), float(end[rank.marks[-1]])
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
