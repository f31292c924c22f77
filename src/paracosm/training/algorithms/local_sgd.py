"""Workers that step by themselves and average their parameters now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.failures import SYNCHRONOUS, Recovery
from paracosm.training.named import at_least
from paracosm.training.team import Topology
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class LocalSGD(Algorithm):
    """`steps` local updates theta_i <- theta_i - eta g_i, then theta_i <- mean_j theta_j.

    An update, in the count of the run, is one mean. Stich, "Local SGD Converges Fast and
    Communicates Little", 2018, algorithm 1.
    """

    name: ClassVar[str] = "local-sgd"
    topologies: ClassVar[tuple[Topology, ...]] = ("all-reduce",)
    recoveries: ClassVar[tuple[Recovery, ...] | None] = SYNCHRONOUS
    steps: int = 8

    def __post_init__(self) -> None:
        at_least(self, 1, "steps")

    def gradients_per_update(self, workers: int) -> int:
        return workers * self.steps

    def steps_before(self, mean: int) -> int:
        """Return how many steps a worker makes before a mean, by its number from 0."""
        return self.steps

    async def work(self, me: TrainingWorker) -> None:
        while True:
            local = await me.local_steps(self.steps_before(me.version))
            me.parameters = local.result().parameters
            await me.all_reduce_parameters()
