"""Delay-adaptive ASGD: full steps up to a staleness, shorter ones beyond."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.simulation.schedule import Rule, asgd
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.roles import ParameterServer


@dataclass(frozen=True)
class DelayAdaptive(Algorithm):
    """theta <- theta - eta min(1, tau_C / tau) g_i, with tau the gradient's staleness.

    tau_C is `threshold`, or the number of workers when it is 0 (the concurrency, as in the papers).
    Koloskova, Stich, Jaggi, "Sharper Convergence Guarantees for Asynchronous SGD", 2022;
    Mishchenko, Bach, Even, Woodworth, "Asynchronous SGD Beats Minibatch SGD Under Arbitrary
    Delays", 2022.
    """

    name: ClassVar[str] = "delay-adaptive"
    threshold: int = 0

    def __post_init__(self) -> None:
        if self.threshold < 0:
            raise InputError(f"delay-adaptive: threshold must be at least 0, got {self.threshold}")

    def rule(self, workers: int) -> Rule:
        return asgd()

    async def serve(self, server: ParameterServer) -> None:
        threshold = self.threshold or len(server.workers)
        while True:
            push = await server.receive()
            await server.apply([push], scale=lambda c: min(1.0, threshold / max(1, c.staleness)))
            server.answer(push.worker)
