"""Synchronous SGD: an update waits for a gradient of every worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.simulation.schedule import Rule, ssgd
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.failures import SYNCHRONOUS, Recovery
from paracosm.training.roles import ParameterServer, Topology, TrainingWorker


@dataclass(frozen=True)
class SSGD(Algorithm):
    """theta <- theta - eta mean_i g_i(theta), through parameter servers or by an all-reduce.

    Zhang, Tanimura, Nakada, section 2.2.1.
    """

    name: ClassVar[str] = "ssgd"
    topologies: ClassVar[tuple[Topology, ...]] = ("server", "all-reduce")
    recoveries: ClassVar[tuple[Recovery, ...]] = SYNCHRONOUS

    def gradients_per_update(self, workers: int) -> int:
        return workers

    def rule(self, workers: int) -> Rule:
        return ssgd(workers)

    async def work(self, me: TrainingWorker) -> None:
        if me.topology == "server":
            await super().work(me)
        while True:
            await me.all_reduce_gradient(await me.compute_gradient())

    async def serve(self, server: ParameterServer) -> None:
        while True:
            await server.apply(await server.receive_all())
            server.answer(*server.workers)
