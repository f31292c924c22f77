"""Workers that step by themselves and average their parameters."""

from dataclasses import dataclass, field
from math import ceil, inf, sqrt
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.models.optimizers import Optimizer
from paracosm.quantities import read_duration
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.failures.recovery import SYNCHRONOUS, Recovery
from paracosm.training.named import READS_TEXT, above_0, at_least, below_1
from paracosm.training.numerics.rules import SGD, Stepping
from paracosm.training.numerics.store import Rule
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
class LocalAdam(LocalSGD):
    """Local SGD whose steps are Adam's; beside theta_i its two moments are averaged, m_i and v_i.

    So an exchange takes three all-reduces. Cheng, Glasgow, "Convergence of Distributed Adaptive
    Optimization with Local Updates", 2025, section 3, whose gradients are clipped; here they are
    not, and the steps have Adam's bias correction and epsilon. With --optimizer adam, `local-sgd`
    averages theta_i alone.
    """

    name: ClassVar[str] = "local-adam"
    sends_parameters: ClassVar[bool] = True
    recoveries: ClassVar[tuple[Recovery, ...] | None] = ("restart",)
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        super().__post_init__()
        below_1(self, "beta1", "beta2")
        above_0(self, "epsilon")

    def check_optimizer(self, optimizer: Optimizer) -> None:
        check_own_optimizer(self, optimizer)

    def stepper(self, lr: float) -> Rule:
        options = {"betas": (self.beta1, self.beta2), "eps": self.epsilon}
        return Stepping(Optimizer("adam", options), lr)

    async def work(self, me: TrainingWorker) -> None:
        while True:
            local = await me.local_steps(self.steps)
            me.parameters = local.result().parameters
            for moment in ("exp_avg", "exp_avg_sq"):
                mean = await me.all_reduce_mean(me.optimizer_state(moment))
                me.replace_optimizer_state(moment, mean)
            await me.all_reduce_parameters()


def check_own_optimizer(algorithm: Algorithm, optimizer: Optimizer) -> None:
    """Raise InputError for an optimizer where the algorithm has its own."""
    if optimizer != SGD:
        raise InputError(
            f"optimizer: {algorithm.name} makes steps of its own, not those of {optimizer}: leave "
            "it out"
        )


@dataclass(frozen=True)
class AdaComm(LocalSGD):
    """Local SGD with fewer steps H as the loss F falls, looked at once in each `interval` of time:
    H <- ceil(sqrt(F / F_0) `steps`) where that is less than H, else ceil(H / 2).

    H begins as `steps`. F is the mean loss of the minibatches before a mean, F_0 that of before the
    first. Wang, Joshi, "Adaptive Communication Strategies to Achieve the Best Error-Runtime
    Trade-off in Local-Update SGD", 2019, with a constant learning rate.
    """

    name: ClassVar[str] = "adacomm"
    decides_by_losses: ClassVar[bool] = True
    recoveries: ClassVar[tuple[Recovery, ...] | None] = ()
    steps: int = 16
    interval: str = field(default="10s", metadata={READS_TEXT: True})

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 < self.seconds < inf:
            raise InputError(f"adacomm: interval must be above 0 s, got {self.interval}")

    @property
    def seconds(self) -> float:
        """The interval."""
        try:
            return read_duration(self.interval)
        except InputError as error:
            raise InputError(f"adacomm: interval: {error}") from None

    async def work(self, me: TrainingWorker) -> None:
        steps, first, looked_at = self.steps, 0.0, 0.0
        while True:
            local = await me.local_steps(steps)
            me.parameters = local.result().parameters
            brought = await me.all_reduce_parameters()
            loss = sum(gradient.loss for gradient in brought) / len(brought)
            first = first or loss
            intervals = me.sim.now // self.seconds
            if intervals > looked_at:
                looked_at = intervals
                fewer = ceil(sqrt(loss / first) * self.steps) if 0 <= loss < inf else steps
                steps = max(1, fewer if fewer < steps else ceil(steps / 2))


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
