"""All-reduces that go on beside what workers compute, each of a part of the parameters."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from paracosm.engine import Future, Simulator
from paracosm.training.store import Contribution

Combine = Callable[[Sequence[Contribution]], None]
"""Told of all that was brought to an all-reduce, in the order in which it came."""


@dataclass(eq=False, slots=True)
class _AllReduce:
    seconds: float
    combine: Combine
    end: Future
    brought: list[Contribution] = field(default_factory=list)


class AllReduces:
    """All-reduces between all workers, one after the other on the workers' ports.

    The k-th of one worker meets the k-th of every other, as with MPI and NCCL, whatever part of the
    parameters it is of. It begins when all have come to it and the one before is over; it takes as
    long as on idle links, and no processor.

    Attributes:
        busy: seconds for which all-reduces, of this kind and others, have held everybody's ports.
    """

    def __init__(self, sim: Simulator, workers: int) -> None:
        self.busy = 0.0
        self._sim = sim
        self._workers = workers
        self._begun = [0] * workers  # how many, by worker
        self._finished = 0
        self._is_running = False
        self._open: deque[_AllReduce] = deque()  # all that are not over, in order

    def begin(
        self, worker: int, contribution: Contribution, seconds: float, combine: Combine
    ) -> Future:
        """Bring a worker's contribution to its next all-reduce, and go on.

        `combine` is called once, at the end, before those that await the future go on. All workers
        give the same `seconds` and an equivalent `combine`.
        """
        place = self._begun[worker] - self._finished
        self._begun[worker] += 1
        if place == len(self._open):
            end = self._sim.future("the end of an all-reduce")
            self._open.append(_AllReduce(seconds, combine, end))
        self._open[place].brought.append(contribution)
        self._start()
        return self._open[place].end

    async def over(self) -> None:
        """Wait until all that have been begun are over."""
        if self._open:
            await self._open[-1].end

    def ended(self, brought: Sequence[Contribution], began: float, seconds: float) -> None:
        """Record an all-reduce that ends now."""
        self.busy += seconds
        timeline, now = self._sim.timeline, self._sim.now
        if timeline is not None and seconds > 0:
            for each in brought:
                timeline.span(each.worker, "send", "all-reduce", began, now)
                timeline.span(each.worker, "receive", "all-reduce", began, now)

    def _start(self) -> None:
        first = self._open[0] if self._open else None
        if first is not None and not self._is_running and len(first.brought) == self._workers:
            self._is_running = True
            self._sim.call_later(first.seconds, self._finish, self._sim.now)

    def _finish(self, began: float) -> None:
        done = self._open.popleft()
        self._finished += 1
        self._is_running = False
        self.ended(done.brought, began, done.seconds)
        self._start()
        done.combine(done.brought)
        done.end.set_result()
