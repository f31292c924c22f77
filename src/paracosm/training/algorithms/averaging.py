"""Workers that step by themselves and average their parameters."""

from dataclasses import dataclass
from typing import ClassVar, Literal

from paracosm.errors import InputError
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.failures.recovery import SYNCHRONOUS, Recovery
from paracosm.training.named import at_least, below_1
from paracosm.training.run_state import Topology
from paracosm.training.server import ParameterServer
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class LocalSGD(Algorithm):
    """`steps` local updates theta_i <- theta_i - eta g_i, then theta_i <- mean_j theta_j.

    An update, in the count of the run, is one mean. Stich, "Local SGD Converges Fast and
    Communicates Little", 2018, algorithm 1.
    """

    name: ClassVar[str] = "local-sgd"
    topologies: ClassVar[tuple[Topology, ...]] = ("all-reduce",)
    recoveries: ClassVar[tuple[Recovery, ...] | None] = SYNCHRONOUS
    steps: int = 8

    def __post_init__(self) -> None:
        at_least(self, 1, "steps")

    def gradients_per_update(self, workers: int) -> int:
        return workers * self.steps

    def steps_before(self, mean: int) -> int:
        """Return how many steps a worker makes before a mean, by its number from 0."""
        return self.steps

    async def work(self, me: TrainingWorker) -> None:
        while True:
            local = await me.local_steps(self.steps_before(me.version))
            me.parameters = local.result().parameters
            await me.all_reduce_parameters()


@dataclass(frozen=True)
class PostLocalSGD(LocalSGD):
    """Local SGD with one step before each of the first `after` means, and `steps` from then on.

    Lin, Stich, Patel, Jaggi, "Don't Use Large Mini-batches, Use Local SGD", 2020, section 3: H = 1
    until t' and H = `steps` afterwards; they switch where the learning rate first falls.
    """

    name: ClassVar[str] = "post-local-sgd"
    after: int = 100

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "after")

    def steps_before(self, mean: int) -> int:
        return 1 if mean < self.after else self.steps


@dataclass(frozen=True)
class EASGD(Algorithm):
    """theta_i <- theta_i - eta g_i(theta_i), and at every `period`th step
    d = a (theta_i - centre), theta_i <- theta_i - eta g_i(theta_i) - d, centre <- centre + d.

    So a gradient is one at the parameters of before the elastic move. The move before the first
    step, when all are equal, is left out. a is `elasticity`, or 0.9 / W when it is 0. An update, in
    the count of the run, is one move of the centre, which is also what is evaluated. Zhang,
    Choromanska, LeCun, "Deep Learning with Elastic Averaging SGD", 2015, algorithm 1 (asynchronous
    EASGD).
    """

    name: ClassVar[str] = "easgd"
    sends_parameters: ClassVar[bool] = True
    period: int = 4
    elasticity: float = 0.0

    def __post_init__(self) -> None:
        at_least(self, 1, "period")
        below_1(self, "elasticity")

    def _pull(self, workers: int) -> float:
        return self.elasticity or 0.9 / workers

    def gradients_per_update(self, workers: int) -> int:
        return self.period

    @property
    def lets_clients_change(self) -> bool:
        return False

    async def work(self, me: TrainingWorker) -> None:
        elasticity = self._pull(me.workers)
        mine = (await me.local_steps(self.period)).result().parameters
        while True:
            me.push(mine)
            centre = await me.pull()
            me.parameters = mine
            stepped = (await me.local_steps(1, of=self.period)).result().parameters
            me.parameters = mine = stepped - elasticity * (mine - centre)
            if self.period > 1:
                rest = await me.local_steps(self.period - 1, of=self.period)
                mine = rest.result().parameters

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
