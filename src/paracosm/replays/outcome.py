"""The outcome of a job, as traced or replayed: times, late ranks, and the bottleneck."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from paracosm.arrays import Floats
from paracosm.jobs.job import KINDS, Job
from paracosm.replays.arrivals import Arrivals, Straggler, arrivals_of, joined_arrivals
from paracosm.replays.device import SHORTEST
from paracosm.replays.traced import WORK, TracedJob, TracedRank
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
    # Seconds by which a device is behind at the end, where steps are those of the device.
    behind: float

    @property
    def iteration_time(self) -> float:
        """Seconds, of the slowest rank."""
        return max(breakdown.total for breakdown in self.breakdowns)

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
    return Times(*(tuple(kind[row] for row in rows) for kind in times))


def outcome_of(traced: TracedJob, times: Times, unchanged: Times | None = None) -> Outcome:
    """`unchanged` are the times of the unchanged job, if these are of a changed one."""
    iterations = max(len(traced.counted), 1)
    intervals = intervals_of(traced, times, unchanged or times)
    each_rank = zip(traced.ranks, times.arrive, times.begin, times.end, intervals, strict=True)
    breakdowns = (
        breakdown_of(rank, arrive, begin, end, iterations, interval)
        for rank, arrive, begin, end, interval in each_rank
    )
    behind = (
        interval[1] - float(end[rank.marks[-1]])
        for rank, end, interval in zip(traced.ranks, times.end, intervals, strict=True)
        if len(rank.marks)
    )
    arrivals = arrivals_of(traced, times.arrive)
    return Outcome(iterations, tuple(breakdowns), arrivals, max(behind, default=0.0))


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
                sum(by * getattr(part, name) for by, part in zip(share, own, strict=True))
                for name in names
            )
        )
        for own in of_rank
    )
    arrivals = joined_arrivals([part.arrivals for part in parts])
    return Outcome(total, breakdowns, arrivals, max(part.behind for part in parts))


_COMPUTE = [WORK.index("compute"), WORK.index("copy")]
_COMMUNICATION, _LOADING = WORK.index("communication"), WORK.index("data loading")
_WAITING = WORK.index("waiting")


@dataclass(frozen=True, slots=True)
class Breakdown:
    """Seconds of an iteration of one rank; the first four make up the whole."""

    compute: float  # some stream computes or copies; without a device, some op runs
    exposed_communication: float  # none does, and data is on its way
    waiting: float  # the device waits in a collective for other ranks
    host: float  # none of these: the device waits for the host, or no op runs
    data_loading: float  # the training loop waits for data; part of the others

    @property
    def total(self) -> float:
        return self.compute + self.exposed_communication + self.waiting + self.host


def breakdown_of(
    rank: TracedRank,
    arrive: Floats,
    begin: Floats,
    end: Floats,
    iterations: int,
    interval: tuple[float, float],
) -> Breakdown:
    """Return the parts of an iteration, of which the interval has so many."""
    first, last = interval
    busy = np.isin(rank.work, _COMPUTE)
    met, loading = rank.work == _COMMUNICATION, rank.work == _LOADING
    waits = rank.work == _WAITING
    parts = breakdown(
        [
            ("compute", begin[busy], end[busy]),
            ("exposed_communication", begin[met], end[met]),
            (
                "waiting",
                np.concatenate((arrive[met], arrive[waits])),
                np.concatenate((begin[met], end[waits])),
            ),
        ],
        first,
        last,
        rest="host",
    )
    loaded = breakdown([("data_loading", begin[loading], end[loading])], first, last, rest="other")
    parts["data_loading"] = loaded["data_loading"]
    return Breakdown(**{part: time / iterations for part, time in parts.items()})


_DELAYS = [WORK.index("launch latency"), WORK.index("gap")]


def intervals_of(traced: TracedJob, times: Times, unchanged: Times) -> list[tuple[float, float]]:
    """Return for each rank the time that its counted steps take: when it begins, when it ends.

    A step is what its thread does between two marks, and what that launches. The host takes from
    the first mark to the last one. The device takes from when it can begin with what the steps
    launch, which is launched then, and what was launched before is done, to when all of it is done.
    The longer of the two is the pace of the job, as steps follow one another; no lane is occupied
    for longer by what belongs to the steps. Without marks it is the whole time.
    """
    devices = [_Device(traced, number, unchanged) for number in range(len(traced.ranks))]
    shifts = np.concatenate(
        [
            device.launch_shifts(begin, end)
            for device, begin, end in zip(devices, times.begin, times.end, strict=True)
        ]
    )
    # All threads launch so much earlier or later: what the device does is as a whole.
    shift = float(np.clip(0.0, shifts.min(), shifts.max())) if len(shifts) else 0.0
    return [
        device.interval(begin, end, shift)
        for device, begin, end in zip(devices, times.begin, times.end, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Took:
    """What a device has taken for the counted steps: seconds, and when it was done."""

    time: float
    done: float  # from the begin of these steps


class _Device:
    """The rows of a rank that belong to the steps that count, and to those before."""

    def __init__(self, traced: TracedJob, number: int, unchanged: Times) -> None:
        rank = self.rank = traced.ranks[number]
        self._begin, self._end = unchanged.begin[number], unchanged.end[number]
        self._warm, self._lane = traced.warm, traced.job.programs[number].lane
        counted = rank.iteration >= traced.warm
        device = np.isin(rank.work, [*_COMPUTE, _COMMUNICATION])
        self._own, self._before = np.flatnonzero(device & counted), device & ~counted
        self._busy = np.flatnonzero(counted & ~np.isin(rank.work, _DELAYS))
        # Of each thread, the first call that launches something.
        launches = rank.launches[rank.iteration[rank.launches] >= traced.warm]
        launches = launches[np.argsort(self._end[launches], kind="stable")]
        self._launches = launches[np.unique(self._lane[launches], return_index=True)[1]]

    def _first(self, begin: Floats) -> float:
        return float(begin[self.rank.marks[self._warm]])

    def launch_shifts(self, begin: Floats, end: Floats) -> Floats:
        """Return by how much later than unchanged each thread has launched something."""
        if not len(self.rank.marks):
            return np.empty(0)
        launched = end[self._launches] - self._first(begin)
        return launched - (self._end[self._launches] - self._first(self._begin))

    def _took(self, begin: Floats, end: Floats, shift: float) -> _Took:
        """`shift` is by how much later than unchanged everything is launched."""
        launched = float(self._begin[self._own].min())
        if len(self._launches):
            launched = min(launched, float(self._end[self._launches].min()))
        launched += shift - self._first(self._begin)
        first = self._first(begin)
        before = float(end[self._before].max(initial=0.0)) - first
        done = float(end[self._own].max()) - first
        return _Took(done - max(launched, before), done)

    def interval(self, begin: Floats, end: Floats, shift: float) -> tuple[float, float]:
        if not len(self.rank.marks):
            return 0.0, float(end.max(initial=0.0))
        first, last = self._first(begin), float(end[self.rank.marks[-1]])
        own = unchanged = _Took(0.0, 0.0)
        if len(self._own):
            own = self._took(begin, end, shift)
            unchanged = self._took(self._begin, self._end, 0.0)
        # What was launched before the steps is changed as well. A device that is done with them
        # sooner than unchanged has not taken longer for them, however early it began.
        limit = min if own.done <= unchanged.done else max
        taken = limit(own.time, unchanged.time)
        lengths = (end - begin)[self._busy]
        taken = max(taken, float(np.bincount(self._lane[self._busy], lengths).max(initial=0.0)))
        if taken - (last - first) <= SHORTEST:
            return first, last
        done = first + (own.done if len(self._own) else taken)
        return done - taken, done


def bottleneck_of(
    breakdowns: Sequence[Breakdown], straggler: int | None, has_device: bool = True
) -> str:
    """Name the largest part of the time; `straggler` is whom others wait for most often."""
    total = sum(breakdown.total for breakdown in breakdowns)
    if not total:
        return "Nothing takes time."
    time = {
        name: sum(getattr(breakdown, name) for breakdown in breakdowns)
        for name in ("compute", "exposed_communication", "waiting", "host")
    }
    name, share = largest_share(time, total)
    loading = sum(breakdown.data_loading for breakdown in breakdowns) / total
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
    if not has_device:
        return f"The host between ops: for {share:.0%} of {many} time no op runs."
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
