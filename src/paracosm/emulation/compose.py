"""Compose iterations from measured computing and modelled collectives.

The script has run without waiting for anybody, and recorded when it started collectives, when it
waited and when iterations ended, on a clock that stops while it has no core. The time between two
of these instants is computing. Here it is replayed: collectives take as long as the communication
model says, on ports and comm workers as in a live run, and a wait lasts until they are done. So one
measurement serves any number of changes, and nothing else differs between the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import inf
from operator import attrgetter, itemgetter

from paracosm.emulation.communication import communication_of, done_as
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.cost import Cost
from paracosm.emulation.kinds import kind_of_each
from paracosm.emulation.meetings import Meetings
from paracosm.emulation.peers import peers_of, time_factors
from paracosm.emulation.pipeline import Pipeline
from paracosm.emulation.ports import Span
from paracosm.emulation.records import (
    GLOO_WORKERS,
    MESSAGES,
    Collective,
    Group,
    Iteration,
    Note,
    PipelineStep,
    Record,
    Wait,
)

_Event = Collective | Wait | Iteration | PipelineStep


def compose(config: EmulateConfig, seed: int, records: Sequence[Record]) -> list[Record]:
    """Return the records of the job that `config` describes, from those of a measuring run.

    Both have the same world and script; all else may differ. Of several ranks, which have run one
    after the other, each stands for those like it, and waits for the others.
    """
    ranks = composed_ranks(records) or list(config.rank)
    kind_of = kind_of_each(records, config.world) if len(ranks) > 1 else None
    meetings = Meetings(config, {} if kind_of is None else _groups(records, ranks), kind_of)
    job = [_Rank(config, seed, rank, records, meetings) for rank in ranks]
    origin = min((rank.begins for rank in job), default=0.0)
    for rank in job:
        rank.begin(origin)
    while True:
        for rank in job:
            if rank.next is None or meetings.moved:
                rank.look_ahead()
        meetings.moved = False
        first = min(job, key=attrgetter("next"))
        if first.next == inf:
            break
        first.play()
    has_failed = any(isinstance(record, Note) and record.grave for record in records)
    notes = [note for rank in job for note in rank.notes() if not (has_failed and note.grave)]
    done = [record for rank in job for record in rank.records()]
    return [*(record for record in records if not isinstance(record, _Event)), *done, *notes]


def composed_ranks(records: Sequence[Record]) -> list[int]:
    """Return the ranks that have recorded what they do, ascending."""
    return sorted({record.rank for record in records if isinstance(record, _Event)})


def _groups(records: Sequence[Record], ranks: Sequence[int]) -> dict[int, list[Group]]:
    return {
        rank: [record for record in records if isinstance(record, Group) and record.rank == rank]
        for rank in ranks
    }


def _core_use(ends: Sequence[Iteration]) -> float:
    """Return the share of the time from the first to the last iteration that was computing."""
    passed = ends[-1].end - ends[0].end if ends else 0.0
    return min((ends[-1].cpu - ends[0].cpu) / passed, 1.0) if passed > 0 else 1.0


def _timed(event: _Event) -> tuple[float, float, _Event]:
    if isinstance(event, Collective):
        return event.asked, event.done, event
    if isinstance(event, Wait):
        return event.begin, event.end, event
    if isinstance(event, PipelineStep):
        return event.begin, event.begin, event
    return event.end, event.end, event


@dataclass(eq=False)
class _Load:
    """The core time that a collective takes from the rank, evenly while it is under way."""

    span: Span
    work: float  # seconds of the core

    @property
    def begun(self) -> float:
        return max(self.span.begun, self.span.entered)

    def share(self, now: float) -> float:
        return self.work / (self.span.done - self.begun) if self.begun <= now else 0.0


@dataclass
class _Core:
    """The core on which a rank computes; its comm workers have priority there."""

    use: float  # of the core by what passes between collectives: the rest is sleep, or a device's
    loads: list[_Load] = field(default_factory=list)

    def computed(self, now: float, work: float) -> float:
        """Return when `work` seconds of computing that begin now are done."""
        loads = self.loads
        while loads and work > 0:
            loads = [load for load in loads if load.span.done > now]
            taken = min(sum(load.share(now) for load in loads), 1.0)
            left = 1.0 - self.use * taken
            changes = [load.begun if load.begun > now else load.span.done for load in loads]
            until = min(changes, default=now)
            if left * (until - now) >= work or not changes:
                return now + work / (left or 1.0)
            work -= left * (until - now)
            now = until
        return now + work

    def forget(self, now: float) -> None:
        """Leave out what is over."""
        self.loads = [load for load in self.loads if load.span.done > now]


class _Rank:
    """A rank that has run: it is played event by event, at the instants of the whole job."""

    def __init__(
        self,
        config: EmulateConfig,
        seed: int,
        rank: int,
        records: Sequence[Record],
        meetings: Meetings,
    ) -> None:
        own_records = [
            record
            for record in records
            if isinstance(record, Group | _Event) and record.rank == rank
        ]
        events = [record for record in own_records if not isinstance(record, Group)]
        self._rank, self._config, self._meetings = rank, config, meetings
        self._events = sorted(map(_timed, events), key=itemgetter(0, 1))
        self._groups = {record.name: record for record in own_records if isinstance(record, Group)}
        self._communication = communication_of(config)
        self._peers = peers_of(config, rank, seed)
        self._slower = float(time_factors(config)[rank])
        self._core = _Core(_core_use([event for event in events if isinstance(event, Iteration)]))
        self._place = 0
        self._now = 0.0
        self._reached = self.begins  # on the clock of the measurement
        self._under_way: dict[tuple[str, int], Span] = {}  # without a wait so far
        self._asked: list[tuple[Collective, float, Span]] = []
        self._others: list[Record] = []
        self._pipelines: dict[tuple[int, ...], Pipeline] = {}
        self.next: float | None = None
        """When its next event takes place, as far as is known; infinite while it waits for a rank
        that has not come, and at the end; None where that is to be worked out again."""

    @property
    def begins(self) -> float:
        """When its first event began, on the clock of the measurement; infinite without any."""
        return self._events[0][0] if self._events else inf

    def begin(self, now: float) -> None:
        self._now = now

    def look_ahead(self) -> None:
        """Find out when the next event takes place: of a wait, when it ends."""
        self.next = inf
        if self._place < len(self._events):
            begin, _, event = self._events[self._place]
            self.next = self._arrival(begin)
            if isinstance(event, Wait):
                self.next, _ = self._waited(event, self.next, self._handling)

    def play(self) -> None:
        """Let the next event take place."""
        begin, end, event = self._events[self._place]
        now, handling = self._arrival(begin), self._handling
        self._reached = max(self._reached, end)
        self._place += 1
        if isinstance(event, Collective):
            self._ask(event, now)
        elif isinstance(event, Wait):
            since, (now, over) = now, self._waited(event, now, handling)
            for key in over:
                del self._under_way[key]
            self._others.append(replace(event, begin=since, end=now))
            self._peers.resumed(now)
        elif isinstance(event, PipelineStep):
            self._meetings.begin_step(self._step(event), self._pipelines, now)
        else:
            cpu = event.cpu * self._slower
            self._others.append(replace(event, end=now, cpu=cpu, core_wait=0.0))
            self._peers.iteration_ended(now)
        self._core.forget(now)
        self._now, self.next = now, None

    def records(self) -> list[Record]:
        """Return the replayed records; what never met all its members is left out."""
        return [*map(_replayed, self._ended()), *self._others]

    def notes(self) -> list[Note]:
        """Return a note of the first collective beyond its timeout, and of one that nobody meets.

        The second is grave: the job ends there.
        """
        too_long = (
            _replayed(collective).beyond(self._groups[collective[0].group].timeout)
            for collective in self._ended()
        )
        own_notes = [Note(self._rank, False, text) for text in too_long if text][:1]
        if self._place < len(self._events):
            missing = [event for event, _, span in self._asked if span.done == inf]
            own_notes += [Note(self._rank, True, _unmet(event)) for event in missing[:1]]
        return own_notes

    def _ended(self) -> list[tuple[Collective, float, Span]]:
        return [collective for collective in self._asked if collective[2].done < inf]

    def _arrival(self, begin: float) -> float:
        """Return when the rank comes to what began at an instant of the measurement."""
        if begin <= self._reached:
            return self._now
        return self._core.computed(self._now, (begin - self._reached) * self._slower)

    @property
    def _handling(self) -> float:
        begin, end, _ = self._events[self._place]
        return max(end - max(begin, self._reached), 0.0) * self._slower

    def _step(self, event: PipelineStep) -> PipelineStep:
        forward, backward = event.forward * self._slower, event.backward * self._slower
        return replace(event, forward=forward, backward=backward)

    def _ask(self, event: Collective, now: float) -> None:
        group, kind = self._groups[event.group], event.kind
        by_gloo = event.worker == -GLOO_WORKERS
        whose = group.members, event.size, self._rank, event.peer
        cost = self._communication.cost(kind, *whose, by_gloo)
        met = self._meetings.of(event, self._rank)
        together = group.members if met is None else met.alike
        entered = self._peers.entered(kind, together, event.peer, now)
        if met is None and kind in MESSAGES:
            entered = max(entered, self._pipeline_ready(event, cost) or entered)
        work = self._core_time(done_as(kind, by_gloo), event.size, len(group.members))
        cost = replace(cost, busy=max(cost.busy, work))  # no link is faster than who feeds it
        count = self._config.comm_workers or -event.worker
        span = self._meetings.ask(event, self._rank, met, now, entered, cost, count)
        if met is None and kind == "send":
            pipeline = self._pipeline(event)
            if pipeline is not None:
                pipeline.sent(self._rank, event.peer, span.done)
        if work:
            self._core.loads.append(_Load(span, work))
        self._under_way[event.group, event.number] = span
        self._asked.append((event, now, span))

    def _pipeline(self, event: Collective) -> Pipeline | None:
        """Return the pipeline in which a message passes between this rank and an emulated one."""
        pipelines = self._pipelines.values()
        return next(
            (pipeline for pipeline in pipelines if pipeline.has(self._rank, event.peer)), None
        )

    def _pipeline_ready(self, event: Collective, cost: Cost) -> float | None:
        pipeline = self._pipeline(event)
        if pipeline is None or event.kind != "recv":
            return None
        return pipeline.ready(event.peer, self._rank, cost.fixed + cost.busy + cost.after)

    def _waited(
        self, event: Wait, now: float, handling: float
    ) -> tuple[float, list[tuple[str, int]]]:
        """Return when a wait ends that handles its results for `handling` seconds in total.

        And what it was for.
        """
        keys = [(event.group, event.number)] if event.group else list(self._under_way)
        keys = [key for key in keys if key in self._under_way]
        for key in keys:
            done = self._under_way[key].done
            if done == inf:
                return inf, keys
            now = self._core.computed(max(now, done), handling / len(keys))
        return now if keys else self._core.computed(now, handling), keys

    def _core_time(self, kind: str, size: int, members: int) -> float:
        if self._config.core_bandwidth is None or members < 2:
            return 0.0
        return _bytes_moved(kind, size, members) / self._config.core_bandwidth


def _replayed(asked: tuple[Collective, float, Span]) -> Collective:
    event, now, span = asked
    return replace(
        event,
        asked=now,
        entered=span.entered,
        begun=span.begun,
        done=span.done,
        worker=span.worker,
    )


def _unmet(event: Collective) -> str:
    other = f" with rank {event.peer}" if event.peer >= 0 else ""
    return (
        f"{event.kind} number {event.number} of group {event.group}{other} at "
        f"{event.site or 'an unknown line'} meets no call of the other ranks that ran: they took "
        "other paths, so the job ends there; see whether the script branches on what it receives"
    )


def _bytes_moved(kind: str, size: int, members: int) -> float:
    """Return the bytes that a rank sends and receives in total, in a ring or down a tree."""
    rounds = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}.get(kind, 0)
    return 2 * rounds * size * (members - 1) / members if rounds else float(size)
