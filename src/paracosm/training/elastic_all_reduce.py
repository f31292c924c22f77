"""The all-reduce between workers that may be away."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache

from paracosm.cluster import Cluster, Link
from paracosm.engine import Future, Simulator, Timer
from paracosm.training.all_reduces import Combine
from paracosm.training.store import Contribution

Seconds = Callable[[Sequence[Link]], float]
"""Of an all-reduce between workers on a ring of links."""

Finished = Callable[[Sequence[Contribution], float], None]
"""Told of what was brought to an all-reduce that ends now, and how many seconds it took."""


class ElasticAllReduce:
    """One all-reduce after the other, of those who take part.

    It begins when all of them have come. If one leaves meanwhile, what it brought is lost: the
    all-reduce begins anew without it (`elastic`), or when it has come again. One that is back waits
    for the end of the all-reduce that the others are at, if there are others.
    """

    def __init__(
        self, sim: Simulator, cluster: Cluster, time: Seconds, elastic: bool, finished: Finished
    ) -> None:
        self._sim = sim
        self._elastic = elastic
        self._finished = finished
        self._order = cluster.workers
        self._members = dict.fromkeys(cluster.workers)
        self._brought: dict[str, Contribution] = {}
        self._ends: dict[str, Future] = {}  # of those who have come, in that order
        self._entries: dict[str, Future] = {}  # of those who are back, and wait
        self._combine: Combine = lambda brought: None
        self._timer: Timer | None = None
        self._seconds = 0.0

        @cache
        def seconds(ring: tuple[str, ...]) -> float:
            ways = zip(ring, (*ring[1:], ring[0]), strict=True)
            links = [cluster.link(source, target) for source, target in ways]
            return time(links) if len(ring) > 1 else 0.0

        self._seconds_of = seconds

    async def bring(self, worker: str, contribution: Contribution, combine: Combine) -> None:
        """Bring what a worker contributes, and wait for the end."""
        self._combine = combine
        self._brought[worker] = contribution
        end = self._ends[worker] = self._sim.future("the others of the all-reduce")
        self._start()
        await end

    async def enter(self, worker: str) -> None:
        """Take part again; where others are at an all-reduce, from the next on."""
        if self._elastic and self._members:
            entry = self._entries[worker] = self._sim.future("the end of an all-reduce")
            await entry
        self._members[worker] = None

    def leave(self, worker: str) -> Contribution | None:
        """Let a worker go, and return what it has brought in vain."""
        self._entries.pop(worker, None)
        self._ends.pop(worker, None)
        lost = self._brought.pop(worker, None)
        if self._elastic:
            self._members.pop(worker, None)
        if lost is not None and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not self._members:
            self._admit()
        self._start()
        return lost

    def _start(self) -> None:
        if self._timer is None and self._brought and self._brought.keys() >= self._members.keys():
            ring = tuple(name for name in self._order if name in self._brought)
            self._seconds = self._seconds_of(ring)
            self._timer = self._sim.call_later(self._seconds, self._finish)

    def _finish(self, _: object) -> None:
        brought, ends = list(self._brought.values()), list(self._ends.values())
        self._brought.clear()
        self._ends.clear()
        self._timer = None
        self._finished(brought, self._seconds)
        self._combine(brought)
        for end in (ends[-1], *ends[:-1]):  # as from a barrier
            end.set_result()
        self._admit()

    def _admit(self) -> None:
        entries, self._entries = self._entries, {}
        for worker, entry in entries.items():
            self._members[worker] = None
            entry.set_result()
