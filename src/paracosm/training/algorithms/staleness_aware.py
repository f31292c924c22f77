"""Staleness-aware ASGD: the older a gradient, the smaller its step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.simulation.schedule import Rule, asgd
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.roles import ParameterServer


@dataclass(frozen=True)
class StalenessAware(Algorithm):
    """theta <- theta - eta / max(1, tau)^power g_i, with tau the gradient's staleness.

    Zhang, Gupta, Lian, Liu, "Staleness-aware Async-SGD for Distributed Deep Learning", 2016, where
    the power is 1.
    """

    name: ClassVar[str] = "staleness-aware"
    power: float = 1.0

    def __post_init__(self) -> None:
        if not self.power >= 0:
            raise InputError(f"staleness-aware: power must be at least 0, got {self.power}")

    def rule(self, workers: int) -> Rule:
        return asgd()

    async def serve(self, server: ParameterServer) -> None:
        while True:
            push = await server.receive()
            await server.apply([push], scale=lambda c: max(1, c.staleness) ** -self.power)
            server.answer(push.worker)
