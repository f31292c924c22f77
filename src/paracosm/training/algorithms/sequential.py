"""One worker, the baseline of every comparison."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.simulation.schedule import Rule, asgd
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.failures import Recovery
from paracosm.training.team import Topology
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class Sequential(Algorithm):
    """One worker, no exchange: theta <- theta - eta g(theta)."""

    name: ClassVar[str] = "sequential"
    topologies: ClassVar[tuple[Topology, ...]] = ("local",)
    recoveries: ClassVar[tuple[Recovery, ...] | None] = ("restart",)

    def rule(self, workers: int) -> Rule:
        return asgd()

    async def work(self, me: TrainingWorker) -> None:
        while True:
            await me.apply(await me.compute_gradient())

    def check(self, workers: int, servers: int) -> None:
        if workers != 1:
            raise InputError(f"sequential runs on 1 worker, not {workers}: use ssgd or asgd")
