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
    """

    def __init__(self, sim: Simulator, workers: int, duration: float) -> None:
        self.duration = duration
        self._workers = workers
        self._barrier = Barrier(sim, workers)
        self._contributions: list[Contribution] = []

    async def __call__(
        self, worker: TrainingWorker, contribution: Contribution, combine: Combine
    ) -> None:
        """Bring `contribution` and wait for the end; `combine` gets all of them, as they came."""
        contributions = self._contributions
        contributions.append(contribution)
        if len(contributions) == self._workers:
            self._contributions = []
        await self._barrier.wait()
        await worker.sleep(self.duration)
        if contributions:  # the first to wake up combines for all
            all_of_them = contributions.copy()
            contributions.clear()
            combine(all_of_them)
