"""Changes by local steps, buffered at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.simulation.schedule import Rule as ScheduleRule
from paracosm.simulation.schedule import fedbuff
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.named import above_0
from paracosm.training.rules import SGD, outer_rule
from paracosm.training.server import ParameterServer
from paracosm.training.store import Rule
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class FedBuff(Algorithm):
    """theta <- theta - server_lr (1 / K) sum_i (theta_read_i - theta_i) / sqrt(1 + tau_i).

    theta_i is what worker i made of theta_read_i in `steps` local steps of the optimizer; K is
    `buffer`. A worker is answered at once. Nguyen et al., "Federated Learning with Buffered
    Asynchronous Aggregation", 2022, algorithm 1.
    """

    name: ClassVar[str] = "fedbuff"
    buffer: int = 4
    steps: int = 1
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        above_0(self, "buffer", "steps", "server_lr")

    def gradients_per_update(self, workers: int) -> int:
        return self.buffer * self.steps

    def rule(self, workers: int) -> ScheduleRule | None:
        return fedbuff(self.buffer) if self.steps == 1 else None

    def outer(self) -> Rule:
        return outer_rule(SGD, self.server_lr)

    def weight(self, staleness: int, workers: int) -> float:
        return float((1 + staleness) ** -0.5)

    async def work(self, me: TrainingWorker) -> None:
        while True:
            me.push(await me.local_steps(self.steps))
            await me.pull()

    async def serve(self, server: ParameterServer) -> None:
        buffer = []
        while True:
            push = await server.receive()
            buffer.append(push)
            if len(buffer) == self.buffer:
                await server.apply(buffer)
                buffer = []
            server.answer(push.worker)
