"""Asynchronous SGD with a bound on how far workers drift apart."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.simulation.schedule import Rule as ScheduleRule
from paracosm.simulation.schedule import ssp
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.failures import Recovery
from paracosm.training.named import at_least
from paracosm.training.rules import SGD, outer_rule
from paracosm.training.server import ParameterServer
from paracosm.training.store import Rule
from paracosm.training.team import Topology
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class SSP(Algorithm):
    """ASGD in which a worker at clock c waits until c - min_j clock_j <= slack.

    A worker's clock counts the gradients that it has pushed. With slack 0 the workers move in lock
    step, though each gradient is still an update of its own.

    With `cache` a worker goes on with the parameters that it has, and its own updates of them, for
    as long as they have everybody's updates of before clock c - slack; only then it waits for the
    server's. What it sends are its updates, by the optimizer at the worker, which the server adds
    up: theta <- theta + u_i. Staleness counts from the last answer, own updates among the others.
    Ho et al., "More Effective Distributed ML via a Stale Synchronous Parallel Parameter Server",
    2013, section 2 (read-my-writes) and 3 (thread and process caches).
    """

    name: ClassVar[str] = "ssp"
    slack: int = 3
    cache: bool = False

    def __post_init__(self) -> None:
        at_least(self, 0, "slack")

    def check(self, workers: int, servers: int) -> None:
        if self.cache and servers > 1:
            raise InputError(
                f"ssp: a cache has one clock, and so 1 server, not {servers}: leave cache out"
            )

    @property
    def lets_clients_change(self) -> bool:
        return not self.cache

    def recoveries_on(self, topology: Topology) -> tuple[Recovery, ...]:
        """With caches, server and workers know of one another what would be lost."""
        return () if self.cache else super().recoveries_on(topology)

    def rule(self, workers: int) -> ScheduleRule | None:
        return None if self.cache else ssp(self.slack)

    def outer(self) -> Rule | None:
        return outer_rule(SGD, 1.0) if self.cache else None

    async def work(self, me: TrainingWorker) -> None:
        if not self.cache:
            await super().work(me)
        for clock in count(1):
            update = await me.local_steps(1)
            me.push(update)
            if me.server_clock < clock - self.slack:
                await me.pull()
            else:
                me.parameters = update.result().parameters

    async def serve(self, server: ParameterServer) -> None:
        clock = dict.fromkeys(server.workers, 0)
        standing_at = Counter(clock.values())
        slowest = 0
        held: dict[int, list[str]] = {}
        cached = dict.fromkeys(server.workers, 0)
        while True:
            push = await server.receive()
            await server.apply([push])
            now = clock[push.worker] = clock[push.worker] + 1
            standing_at[now] += 1
            standing_at[now - 1] -= 1
            if not self.cache or cached[push.worker] < now - self.slack:
                held.setdefault(now, []).append(push.worker)
            released = [now] if now - slowest <= self.slack else []
            while not standing_at[slowest]:
                del standing_at[slowest]
                slowest += 1
                released.append(slowest + self.slack)
            for reached in released:
                answered = held.pop(reached, [])
                cached.update(dict.fromkeys(answered, slowest))
                server.answer(*answered, clock=slowest)
