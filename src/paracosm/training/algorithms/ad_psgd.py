"""Decentralised SGD: neighbours average their parameters in pairs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from paracosm.errors import InputError
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.failures import Recovery
from paracosm.training.team import Topology
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class ADPSGD(Algorithm):
    """g = gradient at theta_i; theta_i, theta_j <- (theta_i + theta_j) / 2; theta_i -= eta g.

    The neighbour j is drawn anew for each gradient. Parameters travel and are averaged while the
    gradient is computed; a step waits for both. Workers of even index ask, those of odd index
    answer beside their own work, so that no two ask one another and wait for ever (the paper's
    bipartite graph). `graph` is "complete" (any worker of the other kind) or "ring". An update, in
    the count of the run, is one gradient applied by one worker; what is evaluated is the mean of
    all workers; staleness counts the changes of the worker's own parameters since it read them, of
    which one that asks makes one itself.
    Lian, Zhang, Zhang, Liu, "Asynchronous Decentralized Parallel Stochastic Gradient Descent",
    2018, algorithm 1 and section 3.
    """

    name: ClassVar[str] = "ad-psgd"
    sends_parameters: ClassVar[bool] = True
    topologies: ClassVar[tuple[Topology, ...]] = ("peers",)
    recoveries: ClassVar[tuple[Recovery, ...] | None] = ("restart",)
    graph: Literal["complete", "ring"] = "complete"

    def __post_init__(self) -> None:
        if self.graph not in ("complete", "ring"):
            raise InputError(f'ad-psgd: graph must be "complete" or "ring", got "{self.graph}"')

    def check(self, workers: int, servers: int) -> None:
        if workers < 2 or (self.graph == "ring" and workers % 2):
            needs = "an even number of" if self.graph == "ring" else "at least 2"
            raise InputError(
                f"ad-psgd on a {self.graph} graph needs {needs} workers, not {workers}"
            )

    async def work(self, me: TrainingWorker) -> None:
        asks = me.index % 2 == 0
        if self.graph == "ring":
            neighbours = [(me.index - 1) % me.workers, (me.index + 1) % me.workers]
        else:
            neighbours = list(range(1, me.workers, 2))
        while True:
            if asks:
                me.ask_peer(neighbours)
            gradient = await me.compute_gradient()
            if asks:
                me.replace(await me.receive_mean())
            await me.apply(gradient)

    async def listen(self, me: TrainingWorker) -> None:
        while True:
            theirs = await me.receive_from_peer()
            mean = (me.parameters + theirs.parameters) / 2
            me.replace(mean)
            me.answer_peer(theirs, mean)
