"""Asynchronous SGD with a bound on how far workers drift apart."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.simulation.schedule import Rule, ssp
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.roles import ParameterServer


@dataclass(frozen=True)
class SSP(Algorithm):
    """ASGD in which a worker at clock c waits until c - min_j clock_j <= slack.

    A worker's clock counts the gradients that it has pushed. With slack 0 the workers move in lock
    step, though each gradient is still an update of its own. Ho et al., "More Effective Distributed
    ML via a Stale Synchronous Parallel Parameter Server", 2013.
    """

    name: ClassVar[str] = "ssp"
    slack: int = 3

    def __post_init__(self) -> None:
        if self.slack < 0:
            raise InputError(f"ssp: slack must be at least 0, got {self.slack}")

    def rule(self, workers: int) -> Rule:
        return ssp(self.slack)

    async def serve(self, server: ParameterServer) -> None:
        clock = dict.fromkeys(server.workers, 0)
        standing_at = Counter(clock.values())
        slowest = 0
        held: dict[int, list[str]] = {}
        while True:
            push = await server.receive()
            await server.apply([push])
            now = clock[push.worker] = clock[push.worker] + 1
            standing_at[now] += 1
            standing_at[now - 1] -= 1
            held.setdefault(now, []).append(push.worker)
            released = [now] if now - slowest <= self.slack else []
            while not standing_at[slowest]:
                del standing_at[slowest]
                slowest += 1
                released.append(slowest + self.slack)
            for reached in released:
                server.answer(*held.pop(reached, ()))
