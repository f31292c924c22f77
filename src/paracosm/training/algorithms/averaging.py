"""Workers that step on parameters of their own, and average them now and then."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

from paracosm.errors import InputError
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.roles import ParameterServer, Topology, TrainingWorker


@dataclass(frozen=True)
class LocalSGD(Algorithm):
    """`steps` local updates theta_i <- theta_i - eta g_i, then theta_i <- mean_j theta_j.

    An update, in the count of the run, is one mean. Stich, "Local SGD Converges Fast and
    Communicates Little", 2018, algorithm 1.
    """

    name: ClassVar[str] = "local-sgd"
    topologies: ClassVar[tuple[Topology, ...]] = ("all-reduce",)
    steps: int = 8

    def __post_init__(self) -> None:
        if self.steps < 1:
            raise InputError(f"local-sgd: steps must be at least 1, got {self.steps}")

    def gradients_per_update(self, workers: int) -> int:
        return workers * self.steps

    async def work(self, me: TrainingWorker) -> None:
        while True:
            for _ in range(self.steps):
                me.step(await me.compute_gradient())
            await me.all_reduce_parameters()


@dataclass(frozen=True)
class EASGD(Algorithm):
    """Every `period` local steps: d = a (theta_i - centre), theta_i <- theta_i - d, centre += d.

    a is `elasticity`, or 0.9 / W when it is 0. An update, in the count of the run, is one move of
    the centre, which is also what is evaluated. Zhang, Choromanska, LeCun, "Deep Learning with
    Elastic Averaging SGD", 2015, algorithm 1 (asynchronous EASGD).
    """

    name: ClassVar[str] = "easgd"
    period: int = 4
    elasticity: float = 0.0

    def __post_init__(self) -> None:
        if self.period < 1:
            raise InputError(f"easgd: period must be at least 1, got {self.period}")
        if not 0 <= self.elasticity < 1:
            raise InputError(f"easgd: elasticity must be in [0, 1), got {self.elasticity}")

    def _pull(self, workers: int) -> float:
        return self.elasticity or 0.9 / workers

    def gradients_per_update(self, workers: int) -> int:
        return self.period

    async def work(self, me: TrainingWorker) -> None:
        elasticity = self._pull(me.workers)
        while True:
            for _ in range(self.period):
                me.step(await me.compute_gradient())
            mine = me.parameters
            me.push(mine)
            centre = await me.pull()
            me.parameters = mine - elasticity * (mine - centre)

    async def serve(self, server: ParameterServer) -> None:
        elasticity = self._pull(len(server.workers))
        while True:
            push = await server.receive()
            centre = server.parameters
            await server.replace([push], centre + elasticity * (push.value - centre))
            server.answer(push.worker, parameters=centre)


@dataclass(frozen=True)
class ADPSGD(Algorithm):
    """g = gradient at theta_i; theta_i, theta_j <- (theta_i + theta_j) / 2; theta_i -= eta g.

    The neighbour j is drawn anew for each gradient. Workers of even index ask, those of odd index
    answer beside their own work, so that no two ask one another and wait for ever (the paper's
    bipartite graph). `graph` is "complete" (any worker of the other kind) or "ring". An update, in
    the count of the run, is one gradient applied by one worker; what is evaluated is the mean of
    all workers; staleness counts the changes of the worker's own parameters since it read them, of
    which one that asks makes one itself.
    Lian, Zhang, Zhang, Liu, "Asynchronous Decentralized Parallel Stochastic Gradient Descent",
    2018, algorithm 1 and section 3.
    """

    name: ClassVar[str] = "ad-psgd"
    topologies: ClassVar[tuple[Topology, ...]] = ("peers",)
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
            gradient = await me.compute_gradient()
            if asks:
                me.replace(await me.ask_peer(neighbours))
            await me.apply(gradient)

    async def listen(self, me: TrainingWorker) -> None:
        while True:
            theirs = await me.receive_from_peer()
            mean = (me.parameters + theirs.parameters) / 2
            me.replace(mean)
            me.answer_peer(theirs, mean)
