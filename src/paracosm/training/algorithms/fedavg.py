"""Rounds of local training, averaged by a server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.named import at_least
from paracosm.training.rules import SGD, outer_rule
from paracosm.training.server import ParameterServer
from paracosm.training.store import PseudoGradient, Rule
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """theta <- sum_k n_k theta_k / sum_k n_k, over the clients of a round.

    theta_k is what client k, which has n_k examples, makes of theta in `steps` local steps, or in
    `epochs` passes over its examples where these are given. Its optimizer begins each round afresh.
    McMahan et al., "Communication-Efficient Learning of Deep Networks from Decentralized Data",
    2017, algorithm 1.
    """

    name: ClassVar[str] = "fedavg"
    has_rounds: ClassVar[bool] = True
    steps: int = 8
    epochs: int = 0

    def __post_init__(self) -> None:
        at_least(self, 1, "steps")
        at_least(self, 0, "epochs")

    @property
    def counts_examples(self) -> bool:
        return self.epochs > 0

    def gradients_per_update(self, workers: int) -> int:
        return workers * self.steps

    def outer(self) -> Rule:
        return outer_rule(SGD, 1.0)

    async def train(self, me: TrainingWorker) -> PseudoGradient:
        """Make the client's local steps of one round."""
        return await me.local_steps(self.count(me), keep_state=False, weight=me.examples)

    def count(self, me: TrainingWorker) -> int:
        """Return how many local steps the client makes in one round."""
        return me.minibatches(self.epochs) if self.epochs else self.steps

    async def work(self, me: TrainingWorker) -> None:
        while True:
            me.push(await self.train(me))
            await me.pull()

    async def serve(self, server: ParameterServer) -> None:
        while True:
            await server.apply(await server.receive_all())
            server.answer(*server.workers)
