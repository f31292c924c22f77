"""Updates by a few gradients at a time, without a wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.simulation.schedule import Rule, softsync
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.server import ParameterServer


@dataclass(frozen=True)
class SoftSync(Algorithm):
    """theta <- theta - eta (1 / K) sum_i g_i / max(1, tau_i), over K = floor(W / n) arrivals.

    A worker is answered at once, with the parameters as they are, and does not wait for the update
    that its gradient goes into. n = W is staleness-aware ASGD. Zhang, Gupta, Lian, Liu,
    "Staleness-aware Async-SGD for Distributed Deep Learning", 2016, equations 5 and 6.
    """

    name: ClassVar[str] = "softsync"
    n: int = 1

    def check(self, workers: int, servers: int) -> None:
        if not 1 <= self.n <= workers:
            raise InputError(
                f"softsync: n must be between 1 and the number of workers ({workers}), got {self.n}"
            )

    def gradients_per_update(self, workers: int) -> int:
        return workers // self.n

    def rule(self, workers: int) -> Rule:
        return softsync(workers, self.n)

    def weight(self, staleness: int, workers: int) -> float:
        return 1 / max(1, staleness)

    async def serve(self, server: ParameterServer) -> None:
        size = len(server.workers) // self.n
        buffer = []
        while True:
            push = await server.receive()
            buffer.append(push)
            if len(buffer) == size:
                await server.apply(buffer)
                buffer = []
            server.answer(push.worker)
