"""Asynchronous SGD that ignores what is too old, or stops it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.failures import Recovery
from paracosm.training.named import at_least
from paracosm.training.server import ParameterServer
from paracosm.training.team import Topology


@dataclass(frozen=True)
class Ringmaster(Algorithm):
    """theta <- theta - eta g_i where the staleness of g_i is below `threshold`; else it is ignored.

    A threshold of 0 is the number of workers; the paper's is the gradients' variance over the
    squared norm that is aimed at. With `stop` a worker whose gradient becomes too old abandons it
    and begins with the new parameters. Maranjyan, Tyurin, Richtarik, "Ringmaster ASGD: The First
    Asynchronous SGD with Optimal Time Complexity", 2025, algorithms 4 and, with `stop`, 5.
    """

    name: ClassVar[str] = "ringmaster"
    threshold: int = 0
    stop: bool = False

    def __post_init__(self) -> None:
        at_least(self, 0, "threshold")

    @property
    def interrupts(self) -> bool:
        return self.stop

    @property
    def lets_clients_change(self) -> bool:
        return not self.stop

    def check(self, workers: int, servers: int) -> None:
        if servers > 1:
            raise InputError(
                f"ringmaster runs on 1 server, not {servers}: several would not agree on which "
                "gradients are too old"
            )

    def recoveries_on(self, topology: Topology) -> tuple[Recovery, ...]:
        """A server that stops workers has to know what each of them has read."""
        return () if self.stop else super().recoveries_on(topology)

    async def serve(self, server: ParameterServer) -> None:
        threshold = self.threshold or len(server.workers)
        version = 0
        # By version, who computes at it, where it matters
        readers = {0: dict.fromkeys(server.workers)} if self.stop else {}
        while True:
            push = await server.receive()
            if push.staleness >= threshold:
                server.drop(push)
                if not self.stop:  # or else its worker has been answered when it was stopped
                    server.answer(push.worker)
                continue
            await server.apply([push])
            version += 1
            answered = [push.worker]
            if self.stop:
                del readers[push.read_version][push.worker]
                answered += readers.pop(version - threshold, ())
                readers[version] = dict.fromkeys(answered)
            server.answer(*answered)
