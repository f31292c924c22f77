"""When collectives and messages begin and end: comm workers take them in order, links carry them.

Transfers under way at the same time on a link of the real rank either share it ("fair": max-min
fair rates, as TCP streams have on average) or take turns ("serial": of those that could start, the
one that became ready first does). So the end of a transfer may move when others arrive: it is
certain only once it has passed.
"""

from __future__ import annotations

import heapq
from bisect import insort
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field, replace
from math import inf

from paracosm.cluster.link import Sharing
from paracosm.emulation.cost import Cost, directions

_FORGIVEN = 1e-12  # seconds of a link: less is none


@dataclass(slots=True, eq=False)
class Span:
    worker: int  # which one of its group
    begun: float  # when it took the collective up
    done: float  # when the collective is done
    on_earlier: Callable[[], None] | None = None  # called when that moves to an earlier instant


@dataclass(slots=True, eq=False)
class _Task:
    number: int  # in the order of asking
    pool: Hashable
    asked: float  # as in `Ports.ask`
    entered: float
    cost: Cost
    stations: tuple[str, ...]  # directions of the rank's links, or the link of two ranks
    span: Span  # what the caller knows of it
    left: float  # seconds of the rank's whole link that are still needed
    worker: int = -1


@dataclass(slots=True)
class _State:
    sharing: Sharing
    now: float = -inf
    free: dict[Hashable, list[int]] = field(default_factory=dict)  # idle comm workers, by pool
    queues: dict[Hashable, deque[_Task]] = field(default_factory=dict)  # what waits for one
    ready: list[tuple[float, int, _Task]] = field(default_factory=list)  # heap: links from then on
    moving: list[_Task] = field(default_factory=list)  # on links, in the order of becoming ready
    waiting: list[_Task] = field(default_factory=list)  # for links to be free (serial), likewise

    def tasks(self) -> list[_Task]:
        queued = [task for queue in self.queues.values() for task in queue]
        return [*queued, *(event[2] for event in self.ready), *self.moving, *self.waiting]

    def copy(self) -> _State:
        """Return a copy to run ahead on trial; its tasks keep the same spans."""
        new = {task: replace(task) for task in self.tasks()}
        pools = {task.pool for task in new}
        return _State(
            self.sharing,
            self.now,
            {pool: list(self.free[pool]) for pool in pools},
            {pool: deque(new[task] for task in queue) for pool, queue in self.queues.items()},
            [(at, number, new[task]) for at, number, task in self.ready],
            [new[task] for task in self.moving],
            [new[task] for task in self.waiting],
        )

    def run(self, until: float) -> None:
        """Advance to an instant; spans get their begins and ends."""
        while True:
            rates = self._rates()
            end = min(
                (
                    self.now + task.left / rate
                    for task, rate in zip(self.moving, rates, strict=True)
                ),
                default=inf,
            )
            at = min(end, self.ready[0][0] if self.ready else inf)
            if at > until or at == inf:
                self._pass(max(until, self.now) - self.now, rates)
                self.now = max(until, self.now)
                return
            self._pass(at - self.now, rates)
            self.now = max(at, self.now)
            self._end(at == end)
            while self.ready and self.ready[0][0] <= self.now:
                self.waiting.append(heapq.heappop(self.ready)[2])
            self._start()

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
            task.span.begun = max(task.asked, self.now)
            ready = max(task.span.begun, task.entered) + task.cost.fixed
            heapq.heappush(self.ready, (ready, task.number, task))

    def _pass(self, seconds: float, rates: list[float]) -> None:
        if seconds > 0:
            for task, rate in zip(self.moving, rates, strict=True):
                task.left -= seconds * rate

    def _end(self, some_do: bool) -> None:
        """Take finished tasks off their links; of those that end now, whatever rounding leaves."""
        if not some_do:
            return
        least = max(min(task.left for task in self.moving), _FORGIVEN)
        through = [task for task in self.moving if task.left <= least]
        self.moving = [task for task in self.moving if task.left > least]
        for task in through:
            self._free_comm_worker(task)

    def _free_comm_worker(self, task: _Task) -> None:
        """Free the comm worker for the next task; the message may still be propagating."""
        task.span.done = self.now + task.cost.after
        insort(self.free[task.pool], task.worker)
        self._next(task.pool)

    def _start(self) -> None:
        held = {way for task in self.moving for way in task.stations}
        still = []
        for task in self.waiting:
            if task.left <= 0:
                self._free_comm_worker(task)
            elif self.sharing == "serial" and not held.isdisjoint(task.stations):
                still.append(task)
            else:
                held.update(task.stations)
                self.moving.append(task)
        self.waiting = still

    def _rates(self) -> list[float]:
        """Return the share of the rank's link that each moving task has: max-min fair."""
        moving = self.moving
        if self.sharing == "serial" or len(moving) < 2:
            return [task.cost.share for task in moving]
        users: dict[str, list[int]] = {}
        room: dict[str, float] = {}
        for i, task in enumerate(moving):
            for station in task.stations:
                users.setdefault(station, []).append(i)
                room[station] = task.cost.share if station == task.cost.own else 1.0
        rates = [0.0 if task.stations else 1.0 for task in moving]
        while users:
            tightest = min(users, key=lambda station: room[station] / len(users[station]))
            rate = room[tightest] / len(users[tightest])
            for i in users[tightest].copy():
                rates[i] = rate
                for station in moving[i].stations:
                    users[station].remove(i)
                    room[station] -= rate
                    if not users[station]:
                        del users[station]
        return rates


class Ports:
    """The links of a rank, shared by all its process groups, and the groups' comm workers."""

    def __init__(self, sharing: Sharing) -> None:
        self._state = _State(sharing)
        self._asked = 0
        self._workers: dict[Hashable, int] = {}
        self._alone: tuple[_Task, float] | None = None  # and when it leaves its links

    def ask(
        self,
        group: Hashable,  # whose comm workers are counted together
        pool: Hashable,
        count: int,  # size of the pool, used on its first call
        asked: float,  # when it was asked for; calls come in this order, or nearly
        entered: float,  # when the last of the other members came to it
        cost: Cost,  # what it costs from then on
    ) -> Span:
        """Give a collective or message to the first comm worker of its pool that is free.

        Each works on one task at a time, in the order of asking. Later calls may still move `done`
        of the span.
        """
        state = self._state
        self._run(asked)
        if pool not in state.free:
            first = self._workers.get(group, 0)
            self._workers[group] = first + count
            state.free[pool] = list(range(first, first + count))
        stations = (*directions(cost.link), *((cost.own,) if cost.own else ()))
        span = Span(-1, asked, inf)
        others = [(each.span, each.span.done) for each in state.tasks()]
        work = cost.busy * cost.share
        task = _Task(self._asked, pool, asked, entered, cost, stations, span, work)
        self._asked += 1
        state.take(task)
        if others:
            state.copy().run(inf)
        else:
            end = state.ready[0][0] + cost.busy
            span.done = end + cost.after
            self._alone = task, end
        for other, before in others:
            if other.done < before - _FORGIVEN and other.on_earlier is not None:
                other.on_earlier()
        return span

    def _run(self, until: float) -> None:
        """Advance to an instant; quickly if there was only one task, and it has ended."""
        alone, self._alone = self._alone, None
        if alone is None or until < alone[1]:
            self._state.run(until)
            return
        self._state.ready.clear()
        self._state.now = max(self._state.now, until)
        insort(self._state.free[alone[0].pool], alone[0].worker)
