"""When collectives and messages begin and end: comm workers take them in order, links carry them.

Transfers under way at the same time on a link of the real rank share it by the rules of
`paracosm.network`, in whole picoseconds since the first was asked for: fair, in packets, or one
after the other ("serial"). So the end of a transfer may move when others arrive: it is certain only
once it has passed.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from math import inf
from typing import Any

from paracosm.cluster.link import Packets, Sharing
from paracosm.emulation.cost import Cost, directions
from paracosm.errors import InputError
from paracosm.network.clock import LAST_INSTANT, PICOSECONDS
from paracosm.network.fair import FairTraffic
from paracosm.network.packets import PacketTraffic
from paracosm.network.serial import SerialTraffic


@dataclass(slots=True, eq=False)
class Span:
    worker: int  # which one of its group
    begun: float  # when it took the collective up
    done: float  # when the collective is done; infinite while it waits for a member
    entered: float = inf  # when the last of its members came
    on_earlier: Callable[[], None] | None = None  # called when that moves to an earlier instant


class Ports:
    """The links of ranks, shared by all their process groups, and the groups' comm workers."""

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        traffic: FairTraffic | SerialTraffic
        if isinstance(sharing, Packets):
            traffic = PacketTraffic(sharing.quantum)
        else:
            traffic = FairTraffic() if sharing == "fair" else SerialTraffic()
        self._state = _State(traffic)
        self._asked = 0
        self._workers: dict[Hashable, int] = {}
        self._stations: dict[tuple[Hashable, Hashable, float], int] = {}
        self._awaited: dict[Span, _Task] = {}  # whose last member has not come yet

    def ask(
        self,
        group: Hashable,  # whose comm workers are counted together
        pool: Hashable,
        count: int,  # size of the pool, used on its first call
        asked: float,  # when it was asked for; calls come in this order, or nearly
        entered: float,  # when the last of the other members came to it; infinite: `enter` says it
        cost: Cost,  # what it costs from then on
        rank: int = -1,  # whose links it needs, where several ranks are followed
    ) -> Span:
        """Give a collective or message to the first comm worker of its pool that is free.

        Each works on one task at a time, in the order of asking. Later calls may still move `done`
        of the span.

        Raises:
            InputError: it would end 106 days after the first one that was asked for, or later.
        """
        state = self._state
        if not self._asked:
            state.origin = asked
        state.run(state.instant(asked))
        if pool not in state.free:
            first = self._workers.get(group, 0)
            self._workers[group] = first + count
            state.free[pool] = list(range(first, first + count))
        task = self._task(pool, asked, entered, cost, self._stations_of(pool, cost, rank))
        if task.entered is None:
            self._awaited[task.span] = task
        others = [(other.span, other.span.done) for other in state.tasks()]
        state.take(task)
        state.copy().run(LAST_INSTANT)
        for span, before in others:
            if span.done < before and span.on_earlier is not None:
                span.on_earlier()
        return task.span

    def need(self, span: Span, rank: int, cost: Cost) -> None:
        """Let what waits for its last member, a message, need the links of that one, too."""
        task = self._awaited[span]
        if task.stations:
            task.stations += self._stations_of(task.pool, cost, rank)

    def enter(self, span: Span, now: float, entered: float) -> None:
        """Say, at `now`, when the last member came to what was asked for without that."""
        state, task = self._state, self._awaited.pop(span)
        state.run(state.instant(now))
        span.entered, task.entered = entered, state.instant(entered)
        if task in state.waiting:
            state.waiting.remove(task)
            state.prepare(task)
        state.copy().run(LAST_INSTANT)

    def _task(
        self,
        pool: Hashable,
        asked: float,
        entered: float,
        cost: Cost,
        stations: tuple[int, ...],
    ) -> _Task:
        state, number = self._state, self._asked
        self._asked += 1
        instants = asked, None if entered == inf else state.instant(entered)
        span = Span(-1, asked, inf, entered)
        fixed, busy = round(cost.fixed * PICOSECONDS), round(cost.busy * PICOSECONDS)
        after = round(cost.after * PICOSECONDS)
        if not stations:
            return _Task(number, pool, span, *instants, fixed + busy, (), 0.0, after)
        demand = float(busy)
        if self._sharing != "serial":
            demand = cost.busy * cost.share * _capacity(cost)
        return _Task(number, pool, span, *instants, fixed, stations, demand, after)

    def _stations_of(self, pool: Hashable, cost: Cost, rank: int) -> tuple[int, ...]:
        """Return the numbers of the links that a collective or message needs, or directions."""
        if isinstance(self._sharing, Packets) and cost.bandwidth is None:
            raise InputError(
                f"sharing {self._sharing}: a communication model has to say the bandwidth of a "
                "rank's link (Cost.bandwidth)"
            )
        capacity = _capacity(cost)
        needed: list[tuple[Hashable, Hashable, float]] = [
            (rank, way, capacity) for way in directions(cost.link)
        ]
        if cost.own or cost.share < 1:
            needed.append((rank, cost.own or ("share", pool), cost.share * capacity))
        for station in needed:
            if station not in self._stations:
                self._stations[station] = len(self._stations)
                self._state.traffic.add_station(station[2])
        return tuple(self._stations[station] for station in needed)


def _capacity(cost: Cost) -> float:
    """Return the bytes/s of a link; of one that is not known a byte a picosecond is as good."""
    return PICOSECONDS if cost.bandwidth is None else cost.bandwidth


@dataclass(slots=True, eq=False)
class _Task:
    """A collective or message; in picoseconds, but for when it was asked for."""

    number: int  # in the order of asking
    pool: Hashable
    span: Span  # what the caller knows of it
    asked: float  # seconds
    entered: int | None  # None while a member is missing
    fixed: int  # that pass before it needs its links
    stations: tuple[int, ...]  # its links, or their directions
    demand: float  # of these: bytes, or picoseconds with serial sharing
    after: int
    worker: int = -1


@dataclass(slots=True)
class _State:
    traffic: Any  # on the links; `network` has the rules
    origin: float = 0.0  # seconds, from which picoseconds are counted
    now: int = -LAST_INSTANT
    free: dict[Hashable, list[int]] = field(default_factory=dict)  # idle comm workers, by pool
    queues: dict[Hashable, deque[_Task]] = field(default_factory=dict)  # what waits for one
    ready: list[tuple[int, int, _Task]] = field(default_factory=list)  # heap: links from then on
    moving: dict[int, _Task] = field(default_factory=dict)  # on links, or waiting for one
    waiting: list[_Task] = field(default_factory=list)  # for a member: they have their comm worker

    def instant(self, seconds: float) -> int:
        return round((seconds - self.origin) * PICOSECONDS)

    def seconds(self, instant: int) -> float:
        return self.origin + instant / PICOSECONDS

    def tasks(self) -> list[_Task]:
        queued = [task for queue in self.queues.values() for task in queue]
        ready = (task for _, _, task in self.ready)
        return [*queued, *ready, *self.moving.values(), *self.waiting]

    def copy(self) -> _State:
        """Return a copy to run ahead on trial, with the same tasks and spans."""
        return _State(
            self.traffic.copy(),
            self.origin,
            self.now,
            {pool: self.free[pool].copy() for pool in {task.pool for task in self.tasks()}},
            {pool: queue.copy() for pool, queue in self.queues.items()},
            self.ready.copy(),
            self.moving.copy(),
            self.waiting.copy(),
        )

    def run(self, until: int) -> None:
        """Advance to an instant; spans get their begins and ends."""
        while self.ready or self.moving:
            at = self.traffic.next_end()
            if self.ready:
                at = min(at, self.ready[0][0])
            if at >= LAST_INSTANT:
                raise InputError(
                    "a collective or message would end after 106 days, up to which picoseconds "
                    "are counted: check bandwidth and latency"
                )
            if at > until:
                break
            now = self.now = max(at, self.now)
            while (number := self.traffic.pop_end(now)) >= 0:
                self._free_comm_worker(self.moving.pop(number))
            while self.ready and self.ready[0][0] <= now:
                self._start(heapq.heappop(self.ready)[2])
            self.traffic.settle(now)
        if until < LAST_INSTANT:
            self.now = max(until, self.now)

    def take(self, task: _Task) -> None:
        self.queues.setdefault(task.pool, deque()).append(task)
        self._next(task.pool)

    def _next(self, pool: Hashable) -> None:
        queue, free = self.queues.get(pool), self.free[pool]
        while queue and free:
            task = queue.popleft()
            if not queue:
                del self.queues[pool]
            task.worker = task.span.worker = free.pop(0)
            task.span.begun = max(task.asked, self.seconds(self.now))
            if task.entered is None:
                self.waiting.append(task)
            else:
                self.prepare(task)

    def prepare(self, task: _Task) -> None:
        """Let a task that has its comm worker and all its members need its links in time."""
        assert task.entered is not None
        ready = max(self.now, self.instant(task.asked), task.entered) + task.fixed
        heapq.heappush(self.ready, (ready, task.number, task))

    def _start(self, task: _Task) -> None:
        if task.demand <= 0:
            self._free_comm_worker(task)
            return
        self.moving[task.number] = task
        route, stream = self.traffic.route(task.stations), (task.pool, task.worker)
        self.traffic.request(task.number, route, task.demand, self.now, stream)

    def _free_comm_worker(self, task: _Task) -> None:
        """Free the comm worker for the next task; the message may still be propagating."""
        task.span.done = self.seconds(self.now + task.after)
        insort(self.free[task.pool], task.worker)
        self._next(task.pool)
