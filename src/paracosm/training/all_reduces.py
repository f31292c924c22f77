"""All-reduces of parts of the parameters, which workers wait for or compute beside."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paracosm.engine import Future, Simulator, Timer
from paracosm.training.store import Contribution

Combine = Callable[[Sequence[Contribution]], None]
"""Told of all that was brought to an all-reduce, in the order in which it came."""


@dataclass(eq=False, slots=True)
class _AllReduce:
    part: int
    combine: Combine
    brought: dict[str, Contribution] = field(default_factory=dict)  # by worker, as it came
    ends: dict[str, Future] = field(default_factory=dict)  # of the same


class AllReduces:
    """All-reduces of those who take part, one after the other on the workers' ports.

    The k-th of one worker meets the k-th of every other, as with MPI and NCCL, whatever part of the
    parameters it is of. It begins when all have come to it and the one before is over; it takes as
    long as on idle links, and no processor.

    If a worker leaves, what it brought to one that is not over is lost: that begins anew without it
    (`elastic`), or when it has come again. One that is back waits for the end of the all-reduce
    that the others are at, if there are others.

    Attributes:
        busy: seconds for which all-reduces have held everybody's ports.
    """

    def __init__(
        self,
        sim: Simulator,
        workers: Sequence[str],
        seconds: Callable[[int, tuple[str, ...]], float],  # by part and who brings something
        finished: Callable[[int, Combine, Sequence[Contribution]], None],  # told of part and all
        elastic: bool = False,
    ) -> None:
        self.busy = 0.0
        self._sim = sim
        self._seconds = seconds
        self._finished = finished
        self._elastic = elastic
        self._order = workers
        self._members = dict.fromkeys(workers)
        self._begun = dict.fromkeys(workers, 0)  # how many, less those that are over
        self._entries: dict[str, Future] = {}  # of those who are back, and wait
        self._timer: Timer | None = None  # of the first that is not over, while it goes on
        self._open: deque[_AllReduce] = deque()  # all that are not over, in order

    def begin(self, worker: str, part: int, contribution: Contribution, combine: Combine) -> Future:
        """Bring a worker's contribution to its next all-reduce, and go on.

        `finished` is called once, at the end, before those that await the future go on. All workers
        give the same `part` and an equivalent `combine`.
        """
        place = self._begun[worker]
        self._begun[worker] += 1
        if place == len(self._open):
            self._open.append(_AllReduce(part, combine))
        mine = self._open[place]
        mine.brought[worker] = contribution
        end = mine.ends[worker] = self._sim.future("the others of the all-reduce")
        self._start()
        return end

    async def enter(self, worker: str) -> None:
        """Take part again; where others are at an all-reduce, from the next on."""
        if self._elastic and self._members:
            entry = self._entries[worker] = self._sim.future("the end of an all-reduce")
            await entry
        self._members[worker] = None

    def leave(self, worker: str) -> Contribution | None:
        """Let a worker go, and return what it has brought in vain."""
        self._entries.pop(worker, None)
        lost = None
        for each in self._open:
            each.ends.pop(worker, None)
            lost = each.brought.pop(worker, lost)
        self._begun[worker] = 0
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
        first = self._open[0] if self._open else None
        if first is None or self._timer is not None or not first.brought:
            return
        if first.brought.keys() >= self._members.keys():
            ring = tuple(name for name in self._order if name in first.brought)
            seconds = self._seconds(first.part, ring)
            self._timer = self._sim.call_later(seconds, self._finish, (self._sim.now, seconds))

    def _finish(self, began: tuple[float, float]) -> None:
        done = self._open.popleft()
        for worker in done.brought:
            self._begun[worker] -= 1
        self._timer = None
        self._record(done, *began)
        self._start()
        self._finished(done.part, done.combine, list(done.brought.values()))
        ends = list(done.ends.values())
        for end in (ends[-1], *ends[:-1]):  # as from a barrier
            end.set_result()
        self._admit()

    def _record(self, done: _AllReduce, began: float, seconds: float) -> None:
        self.busy += seconds
        timeline, now = self._sim.timeline, self._sim.now
        if timeline is not None and seconds > 0:
            for worker in done.brought:
                timeline.span(worker, "send", "all-reduce", began, now)
                timeline.span(worker, "receive", "all-reduce", began, now)

    def _admit(self) -> None:
        entries, self._entries = self._entries, {}
        for worker, entry in entries.items():
            self._members[worker] = None
            entry.set_result()
