"""An all-reduce among all workers: they meet, and the result is there after its modelled time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from paracosm.engine import Barrier

if TYPE_CHECKING:
    from paracosm.engine import Simulator
    from paracosm.training.contribution import Contribution
    from paracosm.training.roles.worker import TrainingWorker

__all__ = ["AllReduce"]

Combine = Callable[[Sequence["Contribution"]], None]


class AllReduce:
    """A rendezvous of `workers` workers that takes `duration` seconds once all have come.

    What the contributions come to is the same everywhere, so it is computed once, not by each.

    Attributes:
        duration: of one all-reduce, in seconds.
        busy_time: for how many seconds it has held everybody's ports.
    """

    def __init__(self, sim: Simulator, workers: int, duration: float) -> None:
        self.duration = duration
        self.busy_time = 0.0
        self._sim = sim
        self._barrier = Barrier(sim, workers, "the others of the all-reduce")
        self._workers = workers
        self._arrived: list[Contribution] = []

    async def __call__(
        self, worker: TrainingWorker, contribution: Contribution, combine: Combine
    ) -> None:
        """Bring `contribution` and wait for the end; `combine` gets all of them, as they came."""
        round_ = self._arrived
        round_.append(contribution)
        last = len(round_) == self._workers
        if last:
            self._arrived = []
        await self._barrier.wait()
        began = self._sim.now
        await worker.sleep(self.duration)
        if last:  # who goes on first, so that the others find the result
            self._record(round_, began)
            combine(round_)

    def _record(self, contributions: Sequence[Contribution], began: float) -> None:
        self.busy_time += self.duration
        timeline, now = self._sim.timeline, self._sim.now
        if timeline is not None and self.duration > 0:
            for contribution in contributions:
                timeline.span(contribution.worker, "send", "all-reduce", began, now)
                timeline.span(contribution.worker, "receive", "all-reduce", began, now)
