"""Many local steps, then a step of Nesterov's momentum against the mean of what they changed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.models import Optimizer
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.failures import SYNCHRONOUS, Recovery
from paracosm.training.named import above_0, at_least, below_1
from paracosm.training.rules import outer_rule
from paracosm.training.server import ParameterServer
from paracosm.training.store import Rule
from paracosm.training.team import Topology
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class DiLoCo(Algorithm):
    """Delta = mean_i (theta - theta_i); v <- momentum v + Delta; theta <- theta - outer_lr D.

    theta_i is what worker i makes of theta in `steps` steps of the inner optimizer, which is the
    run's (the paper's is AdamW) and keeps its state from round to round. D = Delta + momentum v:
    Nesterov's momentum as PyTorch has it. An update, in the count of the run, is one round.
    Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023,
    algorithm 1; it takes 500 steps, outer_lr 0.7 and momentum 0.9.
    """

    name: ClassVar[str] = "diloco"
    topologies: ClassVar[tuple[Topology, ...]] = ("all-reduce", "server")
    has_rounds: ClassVar[bool] = True
    recoveries: ClassVar[tuple[Recovery, ...] | None] = SYNCHRONOUS
    steps: int = 8
    outer_lr: float = 0.7
    momentum: float = 0.9

    def __post_init__(self) -> None:
        at_least(self, 1, "steps")
        above_0(self, "outer_lr")
        below_1(self, "momentum")

    def outer(self) -> Rule:
        options = {"momentum": self.momentum, "nesterov": True} if self.momentum else {}
        return outer_rule(Optimizer("sgd", options), self.outer_lr)

    def gradients_per_update(self, workers: int) -> int:
        return workers * self.steps

    async def work(self, me: TrainingWorker) -> None:
        while True:
            change = await me.local_steps(self.steps)
            if me.topology == "server":
                me.push(change)
                await me.pull()
            else:
                await me.all_reduce_gradient(change)

    async def serve(self, server: ParameterServer) -> None:
        while True:
            await server.apply(await server.receive_all())
            server.answer(*server.workers)
