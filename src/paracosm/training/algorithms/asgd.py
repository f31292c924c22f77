"""Asynchronous SGD: each gradient is applied as it arrives."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.simulation.schedule import Rule, asgd
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.server import ParameterServer


@dataclass(frozen=True)
class ASGD(Algorithm):
    """theta <- theta - eta g_i, with g_i computed from the parameters that worker i read.

    Dean et al., "Large Scale Distributed Deep Networks", 2012 (Downpour SGD); Zhang, Tanimura,
    Nakada, section 2.2.2.
    """

    name: ClassVar[str] = "asgd"

    def rule(self, workers: int) -> Rule | None:
        return asgd()

    async def serve(self, server: ParameterServer) -> None:
        while True:
            push = await server.receive()
            await server.apply([push])
            server.answer(push.worker)
