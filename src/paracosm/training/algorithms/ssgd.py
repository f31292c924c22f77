"""Synchronous SGD: an update waits for a gradient of every worker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from paracosm.errors import InputError
from paracosm.simulation.schedule import Rule, ssgd
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.failures import SYNCHRONOUS, Recovery
from paracosm.training.server import ParameterServer
from paracosm.training.team import Topology
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class SSGD(Algorithm):
    """theta <- theta - eta mean_i g_i(theta), through parameter servers or by an all-reduce.

    With `reduce` "sum" it is theta <- theta - eta sum_i g_i(theta): the optimizer is given the sum,
    which is as if plain SGD had an eta W times as large. Zhang, Tanimura, Nakada, section 2.2.1.
    """

    name: ClassVar[str] = "ssgd"
    topologies: ClassVar[tuple[Topology, ...]] = ("server", "all-reduce")
    recoveries: ClassVar[tuple[Recovery, ...] | None] = SYNCHRONOUS
    has_rounds: ClassVar[bool] = True
    reduce: Literal["mean", "sum"] = "mean"

    def __post_init__(self) -> None:
        if self.reduce not in ("mean", "sum"):
            raise InputError(f'ssgd: reduce must be "mean" or "sum", got "{self.reduce}"')

    @property
    def sums(self) -> bool:
        return self.reduce == "sum"

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
