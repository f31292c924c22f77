"""Minibatches of the whole cluster: an update waits for gradients, not for workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.simulation.schedule import Rule, rennala
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.named import at_least
from paracosm.training.server import ParameterServer


@dataclass(frozen=True)
class Rennala(Algorithm):
    """theta <- theta - eta mean of the first `gradients` gradients at theta, whoever brings them.

    A worker is answered at once with the parameters as they are: a fast one brings several of the
    gradients. One of older parameters is ignored. Tyurin, Richtarik, "Optimal Time Complexities of
    Parallel Stochastic Optimization Methods Under a Fixed Computation Model", 2023 (Rennala SGD;
    there S, and the worker that completes an update is asked for another gradient before it, whose
    result is ignored, here after it).
    """

    name: ClassVar[str] = "rennala"
    gradients: int = 4

    def __post_init__(self) -> None:
        at_least(self, 1, "gradients")

    def check(self, workers: int, servers: int) -> None:
        if servers > 1:
            raise InputError(
                f"rennala runs on 1 server, not {servers}: several would not agree on which "
                "gradients come late"
            )

    def rule(self, workers: int) -> Rule:
        return rennala(self.gradients)

    def gradients_per_update(self, workers: int) -> int:
        return self.gradients

    async def serve(self, server: ParameterServer) -> None:
        fresh = []
        while True:
            push = await server.receive()
            if push.staleness:
                server.drop(push)
            else:
                fresh.append(push)
            if len(fresh) == self.gradients:
                await server.apply(fresh)
                fresh = []
            server.answer(push.worker)
