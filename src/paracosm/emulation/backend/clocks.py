"""When collectives begin and end: comm workers take them in order, links carry one at a time."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Hashable
from dataclasses import dataclass
from math import inf

from paracosm.emulation.cost import Cost, directions

__all__ = ["CommWorkers", "Links", "Span"]


@dataclass(frozen=True, slots=True)
class Span:
    """When a comm worker had a collective in hand.

    Attributes:
        worker: which one of the group.
        begun: when it took the collective up.
        done: when the collective was done.
    """

    worker: int
    begun: float
    done: float


class Links:
    """The links of a rank, which all its process groups share; no two transfers overlap on one."""

    def __init__(self) -> None:
        self._held: dict[str, list[tuple[float, float]]] = {}  # sorted, apart from each other
        self._ways: dict[str, list[list[tuple[float, float]]]] = {}  # what each name holds

    def hold(self, link: str, ready: float, busy: float, now: float) -> float:
        """Hold a link for `busy` seconds as soon as it is free for so long; return when it begins.

        Args:
            link: its name, or that of one direction.
            ready: earliest instant.
            busy: seconds.
            now: no later call will have an earlier `ready`: what ended before is forgotten.
        """
        if busy <= 0:
            return ready
        ways = self._ways.get(link)
        if ways is None:
            ways = [self._held.setdefault(way, []) for way in directions(link)]
            self._ways[link] = ways
        for held in ways:
            if held and held[0][1] <= now:
                del held[: bisect_right(held, now, key=_end)]
        begin, before = ready, -inf
        while begin > before:  # until it fits in both directions
            before = begin
            for held in ways:
                begin = _free(held, begin, busy)
        for held in ways:
            if not held or held[-1][1] <= begin:
                held.append((begin, begin + busy))
            else:
                held.insert(bisect_right(held, begin, key=_end), (begin, begin + busy))
        return begin


class CommWorkers:
    """The comm workers of one process group: each has one collective in hand at a time, FIFO.

    A pool is a set of them that take collectives in turn.
    """

    def __init__(self, links: Links) -> None:
        self._links = links
        self._free: list[float] = []  # of every worker, when it is
        self._pools: dict[Hashable, range] = {}

    def run(self, pool: Hashable, count: int, asked: float, entered: float, cost: Cost) -> Span:
        """Hand a collective to the first comm worker that is free, and return when it has it.

        Args:
            pool: which workers.
            count: how many the pool has, if this is the first that it hears.
            asked: when the collective was asked for; calls come in this order.
            entered: when the last of the other members came to it.
            cost: what it costs from then on.
        """
        workers = self._pools.get(pool)
        if workers is None:
            workers = range(len(self._free), len(self._free) + count)
            self._free.extend([asked] * count)
            self._pools[pool] = workers
        worker = min(workers, key=self._free.__getitem__)
        begun = max(asked, self._free[worker])
        ready = max(begun, entered) + cost.fixed
        done = self._links.hold(cost.link, ready, cost.busy, asked) + cost.busy
        self._free[worker] = done
        return Span(worker, begun, done)


def _free(held: list[tuple[float, float]], ready: float, busy: float) -> float:
    """Return the first instant from `ready` on at which nothing is held for `busy` seconds."""
    if not held or held[-1][1] <= ready:
        return ready
    for begin, end in held[bisect_right(held, ready, key=_end) :]:
        if begin >= ready + busy:
            break
        ready = end
    return ready


def _end(interval: tuple[float, float]) -> float:
    return interval[1]
