"""Workers without a server that exchange parameters with neighbours."""

from dataclasses import dataclass
from itertools import count
from typing import ClassVar, Literal

from paracosm.errors import InputError
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.algorithms.mixing import Weights, mixing_weights
from paracosm.training.failures.recovery import Recovery
from paracosm.training.run_state import Topology
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class DPSGD(Algorithm):
    """theta_i <- sum_j w_ij theta_j - eta g_i(theta_i), with the neighbours j of worker i.

    Parameters travel while the gradient is computed; a step waits for it and for all neighbours, so
    that no worker is more than a step ahead of one. `graph` is "ring" (1/3 for each neighbour and
    itself), "complete" (1/W for all), "exponential" (those 1, 2, 4, ... places away, equally), or
    a file: row i of weights.csv has the w_ij, which add up to 1 in every row and column. An update,
    in the count of the run, is one step of one worker; what is evaluated is the mean of all
    workers. Lian, Zhang, Zhang, Hsieh, Zhang, Liu, "Can Decentralized Algorithms Outperform
    Centralized Algorithms?", 2017, algorithm 1.
    """

    name: ClassVar[str] = "d-psgd"
    sends_parameters: ClassVar[bool] = True
    topologies: ClassVar[tuple[Topology, ...]] = ("peers",)
    recoveries: ClassVar[tuple[Recovery, ...] | None] = ("restart",)
    graph: str = "ring"

    def check(self, workers: int, servers: int) -> None:
        mixing_weights(self.name, self.graph, workers, both_ways=True)

    async def work(self, me: TrainingWorker) -> None:
        weights = mixing_weights(self.name, self.graph, me.workers, both_ways=True)
        senders = [(j, weights[me.index, j]) for j in neighbours(weights, me.index)]
        receivers = neighbours(weights.T, me.index)
        while True:
            for peer in receivers:
                me.send_to(peer, me.parameters)
            gradient = await me.compute_gradient()
            mean = float(weights[me.index, me.index]) * me.parameters
            for peer, weight in senders:
                mean = mean + float(weight) * await me.receive_from(peer)
            me.replace(mean)
            await me.apply(gradient)


@dataclass(frozen=True)
class SGP(Algorithm):
    """x_i <- x_i - eta g_i(x_i / w_i), then x_i <- sum_j p_ji x_j and w_i <- sum_j p_ji w_j.

    x_i begins as theta, w_i as 1; worker j sends a share p_ji of both to worker i, and keeps the
    rest, so that messages need to go one way only. `graph` is "exponential" (half to the worker 1,
    2, 4, ... places on, in turn: one message a step), "ring" (half to the next one), "complete"
    (1/W to all), or a file: row j of weights.csv has the shares p_ji that worker j sends, which add
    up to 1. An update, in the count of the run, is one step of one worker; what is evaluated is the
    mean of the x_i / w_i. Assran, Loizou, Ballas, Rabbat, "Stochastic Gradient Push for Distributed
    Deep Learning", 2019, algorithm 1 (push-sum).
    """

    name: ClassVar[str] = "sgp"
    sends_parameters: ClassVar[bool] = True
    topologies: ClassVar[tuple[Topology, ...]] = ("peers",)
    recoveries: ClassVar[tuple[Recovery, ...] | None] = ()
    in_checkpoints: ClassVar[bool] = False  # the w_i are not
    graph: str = "exponential"

    def check(self, workers: int, servers: int) -> None:
        self._shares(workers, 0)

    def _shares(self, workers: int, step: int) -> Weights:
        return mixing_weights(self.name, self.graph, workers, both_ways=False, step=step)

    async def work(self, me: TrainingWorker) -> None:
        weight = 1.0
        for step in count():
            shares = self._shares(me.workers, step)
            await me.apply(await me.compute_gradient())
            mine = weight * me.parameters
            for peer in neighbours(shares, me.index):
                share = float(shares[me.index, peer])
                me.send_to(peer, (share * mine, share * weight))
            kept = float(shares[me.index, me.index])
            pushed, weight = kept * mine, kept * weight
            for peer in neighbours(shares.T, me.index):
                theirs, their_weight = await me.receive_from(peer)
                pushed, weight = pushed + theirs, weight + their_weight
            me.replace(pushed, weight)


def neighbours(weights: Weights, worker: int) -> list[int]:
    """Return the others that a worker's row has a weight for."""
    return [j for j in weights[worker].nonzero()[0].tolist() if j != worker]


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
    2018, algorithm 1.
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
