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
from operator import itemgetter

from paracosm.emulation.communication import communication_of, done_as
from paracosm.emulation.config import EmulateConfig
from paracosm.emulation.peers import peers_of
from paracosm.emulation.pipeline import Pipeline
from paracosm.emulation.ports import Ports, Span
from paracosm.emulation.records import (
    GLOO_WORKERS,
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

    Both have the same world and script; all else may differ.
    """
    groups = {each.name: each for each in records if isinstance(each, Group)}
    job = _Job(config, seed, groups, _core_use(records))
    for begin, end, event in sorted(map(_timed, filter(_is_event, records)), key=itemgetter(0, 1)):
        job.play(begin, end, event)
    return [*(each for each in records if not _is_event(each)), *job.records()]


def _core_use(records: Sequence[Record]) -> float:
    """Return the share of the time from the first to the last iteration that was computing."""
    ends = [each for each in records if isinstance(each, Iteration)]
    passed = ends[-1].end - ends[0].end if ends else 0.0
    return min((ends[-1].cpu - ends[0].cpu) / passed, 1.0) if passed > 0 else 1.0


def _is_event(record: Record) -> bool:
    return isinstance(record, _Event)


def _timed(event: Record) -> tuple[float, float, Record]:
    if isinstance(event, Collective):
        return event.asked, event.done, event
    if isinstance(event, Wait):
        return event.begin, event.end, event
    if isinstance(event, PipelineStep):
        return event.begin, event.begin, event
    assert isinstance(event, Iteration)
    return event.end, event.end, event


@dataclass(eq=False)
class _Load:
    """The core time that a collective takes from the rank, evenly while it is under way."""

    span: Span
    entered: float
    work: float  # seconds of the core

    @property
    def begun(self) -> float:
        return max(self.span.begun, self.entered)

    def share(self, now: float) -> float:
        return self.work / (self.span.done - self.begun) if self.begun <= now else 0.0


@dataclass
class _Core:
    """The core on which a rank computes; its comm workers have priority there."""

    use: float  # of the core by what passes between collectives: the rest is sleep, or a device's
    loads: list[_Load] = field(default_factory=list)

    def computed(self, now: float, work: float) -> float:
        """Return when `work` seconds of computing that begin now are done."""
        while self.loads and work > 0:
            self.loads = [each for each in self.loads if each.span.done > now]
            taken = min(sum(each.share(now) for each in self.loads), 1.0)
            left = 1.0 - self.use * taken
            changes = [each.begun if each.begun > now else each.span.done for each in self.loads]
            until = min(changes, default=now)
            if left * (until - now) >= work or not changes:
                return now + work / (left or 1.0)
            work -= left * (until - now)
            now = until
        return now + work


class _Job:
    def __init__(
        self, config: EmulateConfig, seed: int, groups: dict[str, Group], core_use: float
    ) -> None:
        (self._rank,) = config.rank
        self._config = config
        self._groups = groups
        self._communication = communication_of(config)
        self._peers = peers_of(config, self._rank, seed)
        self._ports = Ports(config.shared)
        self._core = _Core(core_use)
        self._now: float | None = None
        self._reached = 0.0  # on the clock of the measurement
        self._under_way: dict[tuple[str, int], Span] = {}  # without a wait so far
        self._asked: list[tuple[Collective, float, float, Span]] = []
        self._others: list[Record] = []
        self._pipelines: dict[tuple[int, ...], Pipeline] = {}

    def play(self, begin: float, end: float, event: Record) -> None:
        now = begin if self._now is None else self._now
        if self._now is not None and begin > self._reached:
            now = self._core.computed(now, begin - self._reached)
        handling = end - max(begin, self._reached)
        self._reached = max(self._reached, end)
        if isinstance(event, Collective):
            self._ask(event, now)
        elif isinstance(event, Wait):
            since, now = now, self._waited(event, now, max(handling, 0.0))
            self._others.append(replace(event, begin=since, end=now))
            self._peers.resumed(now)
        elif isinstance(event, PipelineStep):
            known = self._pipelines.setdefault(event.ranks, Pipeline(event, (self._rank,)))
            known.begin(event, now)
        elif isinstance(event, Iteration):
            self._others.append(replace(event, end=now, core_wait=0.0))
            self._peers.iteration_ended(now)
        self._now = now

    def records(self) -> list[Record]:
        """Return the replayed records, with a note of the first collective beyond its timeout."""
        found = [
            replace(
                each,
                asked=now,
                entered=entered,
                begun=span.begun,
                done=span.done,
                worker=span.worker,
            )
            for each, now, entered, span in self._asked
        ]
        too_long = (each.beyond(self._groups[each.group].timeout) for each in found)
        notes = [Note(self._rank, False, text) for text in too_long if text]
        return [*found, *self._others, *notes[:1]]

    def _ask(self, event: Collective, now: float) -> None:
        group, kind = self._groups[event.group], event.kind
        by_gloo = event.worker == -GLOO_WORKERS
        whose = group.members, event.size, self._rank, event.peer
        cost = self._communication.cost(kind, *whose, by_gloo)
        entered = self._peers.entered(kind, group.members, event.peer, now)
        to_or_from = kind in ("send", "recv") and event.peer
        pipeline = next(
            (each for each in self._pipelines.values() if each.has(self._rank, to_or_from)), None
        )
        if pipeline is not None and kind == "recv":
            hop = cost.fixed + cost.busy + cost.after
            entered = max(entered, pipeline.ready(event.peer, self._rank, hop) or entered)
        work = self._core_time(done_as(kind, by_gloo), event.size, len(group.members))
        cost = replace(cost, busy=max(cost.busy, work))  # no link is faster than who feeds it
        is_message = kind in ("send", "recv")
        pool = (event.group, kind, event.peer) if is_message else (event.group,)
        count = 1 if is_message else self._config.comm_workers or -event.worker
        span = self._ports.ask(event.group, pool, count, now, entered, cost)
        if pipeline is not None and kind == "send":
            pipeline.sent(self._rank, event.peer, span.done)
        if work:
            self._core.loads.append(_Load(span, entered, work))
        self._under_way[event.group, event.number] = span
        self._asked.append((event, now, entered, span))

    def _waited(self, event: Wait, now: float, handling: float) -> float:
        """Return when a wait ends that handles its results for `handling` seconds in total."""
        if event.group:
            span = self._under_way.pop((event.group, event.number), None)
            spans = [] if span is None else [span]
        else:
            spans = list(self._under_way.values())
            self._under_way.clear()
        for span in spans:
            now = self._core.computed(max(now, span.done), handling / len(spans))
        return now if spans else self._core.computed(now, handling)

    def _core_time(self, kind: str, size: int, members: int) -> float:
        if self._config.core_bandwidth is None or members < 2:
            return 0.0
        return _bytes_moved(kind, size, members) / self._config.core_bandwidth


def _bytes_moved(kind: str, size: int, members: int) -> float:
    """Return the bytes that a rank sends and receives in total, in a ring or down a tree."""
    rounds = {"all_reduce": 2, "all_gather": 1, "reduce_scatter": 1, "all_to_all": 1}.get(kind, 0)
    return 2 * rounds * size * (members - 1) / members if rounds else float(size)
