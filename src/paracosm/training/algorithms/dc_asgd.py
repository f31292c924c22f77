"""Delay-compensated ASGD: a stale gradient is corrected to first order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paracosm.errors import InputError
from paracosm.simulation.schedule import Rule, asgd
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.roles import ParameterServer


@dataclass(frozen=True)
class DCASGD(Algorithm):
    """theta <- theta - eta (g_i + strength g_i * g_i * (theta - theta_read_i)), * elementwise.

    g * g stands for the diagonal of the Hessian. Zheng et al., "Asynchronous Stochastic Gradient
    Descent with Delay Compensation", 2017, equation 10 (DC-ASGD-c).
    """

    name: ClassVar[str] = "dc-asgd"
    strength: float = 0.04

    def __post_init__(self) -> None:
        if not self.strength >= 0:
            raise InputError(f"dc-asgd: strength must be at least 0, got {self.strength}")

    def rule(self, workers: int) -> Rule:
        return asgd()

    async def serve(self, server: ParameterServer) -> None:
        def compensated(contribution: Any) -> Any:
            gradient = contribution.value
            moved = server.parameters - contribution.read_parameters
            return gradient + self.strength * gradient * gradient * moved

        while True:
            push = await server.receive()
            await server.apply([push], direction=compensated)
            server.answer(push.worker)
