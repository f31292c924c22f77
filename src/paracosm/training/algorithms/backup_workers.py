"""Synchronous SGD that does not wait for its slowest workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.simulation.schedule import Rule, backup
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.server import ParameterServer
from paracosm.training.store import Contribution


@dataclass(frozen=True)
class BackupWorkers(Algorithm):
    """theta <- theta - eta mean of the first N fresh gradients of N + b workers.

    A gradient that comes too late for its round is dropped, and its worker joins the round that
    goes on (Chen et al., "Revisiting Distributed Synchronous SGD", 2016, section 3.2). With
    `interrupt` every round starts afresh: the new parameters go to all workers, and one that is
    still computing abandons its gradient.
    """

    name: ClassVar[str] = "backup-workers"
    backups: int = 1
    interrupt: bool = False

    @property
    def interrupts(self) -> bool:
        return self.interrupt

    def check(self, workers: int, servers: int) -> None:
        if not 0 <= self.backups < workers:
            raise InputError(
                f"backup-workers: backups must be at least 0 and below the number of workers "
                f"({workers}), got {self.backups}"
            )
        if servers > 1:
            raise InputError(
                f"backup-workers runs on 1 server, not {servers}: several would not agree on "
                "which gradients come late"
            )

    def gradients_per_update(self, workers: int) -> int:
        return workers - self.backups

    def rule(self, workers: int) -> Rule | None:
        return None if self.interrupt else backup(workers, self.backups)

    async def serve(self, server: ParameterServer) -> None:
        needed = len(server.workers) - self.backups
        while True:
            fresh: list[Contribution] = []
            while len(fresh) < needed:
                push = await server.receive()
                if push.staleness == 0:
                    fresh.append(push)
                else:
                    server.drop(push)
                    if not self.interrupt:
                        server.answer(push.worker)
            await server.apply(fresh)
            server.answer(*(server.workers if self.interrupt else (c.worker for c in fresh)))
