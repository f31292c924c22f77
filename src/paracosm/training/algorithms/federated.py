"""Clients that train on data of their own, and servers that average what comes of it."""

from dataclasses import dataclass, field
from typing import Any, ClassVar

from paracosm.errors import InputError
from paracosm.factory import is_reference, named_function
from paracosm.models.optimizers import Optimizer
from paracosm.simulation.rules import Rule as ScheduleRule
from paracosm.simulation.rules import asgd, fedbuff
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.algorithms.asynchronous import ASGD
from paracosm.training.failures.recovery import Recovery
from paracosm.training.local_work import (
    LocalWork,
    StepsWithin,
    mean_steps,
    read_steps,
    straggler_count,
)
from paracosm.training.named import READS_TEXT, above_0, at_least, below_1
from paracosm.training.numerics.rules import SGD, outer_rule
from paracosm.training.numerics.store import Contribution, PseudoGradient, Rule
from paracosm.training.run_state import Topology
from paracosm.training.server import ParameterServer
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class FedAvg(Algorithm):
    """theta <- sum_k n_k theta_k / sum_k n_k, over the clients of a round.

    theta_k is what client k, which has n_k examples, makes of theta in `steps` local steps, or in
    `epochs` passes over its examples where these are given, each with a last minibatch of the rest.
    Its optimizer begins each round afresh. McMahan et al., "Communication-Efficient
    Learning of Deep Networks from Decentralized Data", 2017, algorithm 1.

    A round ends with the first `take` clients, where that is given: what others do is lost. It
    needs `at_least` so many, for which it waits beyond --round-timeout; if fewer remain, it begins
    again with others. Bonawitz et al., "Towards Federated Learning at Scale: System Design", 2019,
    section 2.2 and 9 (there 1.3 times as many are chosen as are taken).

    Clients may do unequal work: `steps=uniform(1, 20)` is drawn at each participation, `steps=10s`
    are as many as fit into 10 s of the client's computing. Of each round a share of `stragglers`,
    drawn anew, does only a part of its steps or passes, 1 to all with equal probability, by the
    time that the others do all. Where `partial` work counts, it is averaged with the rest, else it
    is dropped. Li et al., "Federated Optimization in Heterogeneous Networks", 2020, section 5.2,
    where FedAvg drops stragglers and FedProx does not.
    """

    name: ClassVar[str] = "fedavg"
    has_rounds: ClassVar[bool] = True
    steps: LocalWork = field(default=8, metadata={READS_TEXT: True})
    epochs: int = 0
    take: int = field(default=0, kw_only=True)
    at_least: int = field(default=1, kw_only=True)
    stragglers: float = field(default=0.0, kw_only=True)
    partial: bool = field(default=False, kw_only=True)

    def __post_init__(self) -> None:
        _set_steps(self)
        at_least(self, 1, "at_least")
        at_least(self, 0, "epochs", "take")
        if not 0 <= self.stragglers <= 1:
            raise InputError(f"{self.name}: stragglers must be in [0, 1], got {self.stragglers}")
        if self.stragglers and isinstance(self.steps, StepsWithin) and not self.epochs:
            raise InputError(
                f"{self.name}: steps={self.steps} give slow clients less work already: leave "
                "stragglers out"
            )

    def check(self, workers: int, servers: int) -> None:
        if self.take > workers:
            raise InputError(
                f"{self.name}: take must be at most the number of workers ({workers}), of whom a "
                f"round is, got {self.take}"
            )
        if self.at_least > (self.take or workers):
            of = f"take, {self.take}" if self.take else f"the number of workers ({workers})"
            raise InputError(f"{self.name}: at_least must be at most {of}, got {self.at_least}")
        if self.take and servers > 1:
            raise InputError(
                f"{self.name} with take runs on 1 server, not {servers}: several would not agree "
                "on who comes first"
            )
        if not self.stragglers or self.partial:
            return
        if servers > 1:
            raise InputError(
                f"{self.name}: stragglers are dropped by 1 server, not by {servers}: say "
                "partial=true"
            )
        if straggler_count(self.stragglers, workers) == workers:
            raise InputError(
                f"{self.name}: all {workers} workers would be stragglers, and dropped: give more "
                "workers, fewer stragglers, or partial=true"
            )

    @property
    def takes_first(self) -> bool:
        return self.take > 0

    def recoveries_on(self, topology: Topology) -> tuple[Recovery, ...]:
        usual = super().recoveries_on(topology)
        return ("rejoin",) if self.take and usual else usual

    @property
    def counts_examples(self) -> bool:
        return self.epochs > 0

    def gradients_per_update(self, workers: int) -> int:
        return (self.take or workers) * mean_steps(self.steps)

    def outer(self) -> Rule:
        return outer_rule(SGD, 1.0)

    async def train(self, me: TrainingWorker) -> PseudoGradient:
        """Make the client's local steps of one round."""
        return await self.local_work(me, weight=me.examples)

    async def local_work(self, me: TrainingWorker, **how: Any) -> PseudoGradient:
        """Make local steps with a fresh optimizer, `how` else `me.local_steps` says."""
        return await me.local_steps(
            self.steps,
            epochs=self.epochs,
            keep_state=False,
            stragglers=self.stragglers,
            **how,
        )

    async def work(self, me: TrainingWorker) -> None:
        while True:
            me.push(await self.train(me))
            await me.pull()

    async def serve(self, server: ParameterServer) -> None:
        while True:
            await server.apply(await self.receive_round(server))
            server.answer(*server.waiting)

    async def receive_round(self, server: ParameterServer) -> list[Contribution]:
        """Wait for what counts of a round: without the parts of stragglers, unless they do."""
        while True:
            pushes = await server.receive_all(self.take, self.at_least)
            counted = [push for push in pushes if self.partial or not push.gradient.is_partial]
            for push in pushes:
                if push not in counted:
                    server.drop(push)
            if counted:
                return counted
            server.answer_again(*server.waiting)


@dataclass(frozen=True)
class FedAvgM(FedAvg):
    """v <- momentum v + D, theta <- theta - server_lr v, with D = sum_k n_k (theta - theta_k) / n.

    The local steps are those of FedAvg. Hsu, Qi, Brown, "Measuring the Effects of Non-Identical
    Data Distribution for Federated Visual Classification", 2019.
    """

    name: ClassVar[str] = "fedavgm"
    momentum: float = 0.9
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        below_1(self, "momentum")
        above_0(self, "server_lr")

    def outer(self) -> Rule:
        options = {"momentum": self.momentum} if self.momentum else {}
        return outer_rule(Optimizer("sgd", options), self.server_lr)


@dataclass(frozen=True)
class FedAdam(FedAvg):
    """m <- beta1 m + (1 - beta1) D, v <- beta2 v + (1 - beta2) D^2,
    theta <- theta - server_lr m / (sqrt(v) + tau), with D = mean_k (theta - theta_k).

    The local steps are those of FedAvg; clients count equally; m begins as 0, v as tau^2. Reddi et
    al., "Adaptive Federated Optimization", 2021, algorithm 2 (there D has the other sign).
    """

    name: ClassVar[str] = "fedadam"
    server_lr: float = 0.03
    beta1: float = 0.9
    beta2: float = 0.99
    tau: float = 1e-3

    def __post_init__(self) -> None:
        super().__post_init__()
        below_1(self, "beta1", "beta2")
        above_0(self, "server_lr", "tau")

    def outer(self) -> Rule:
        return _AdaptiveRule(self)

    def second_moment(self, before: Any, squared: Any) -> Any:
        """Return v from its last value and D^2."""
        return self.beta2 * before + (1 - self.beta2) * squared

    async def train(self, me: TrainingWorker) -> PseudoGradient:
        return await self.local_work(me)


class _AdaptiveRule:
    def __init__(self, by: FedAdam) -> None:
        self._by = by
        self._mean: Any = 0.0
        self._second: Any = by.tau**2

    def __call__(self, parameters: Any, direction: Any, step: float) -> Any:
        by = self._by
        self._mean = by.beta1 * self._mean + (1 - by.beta1) * direction
        self._second = by.second_moment(self._second, direction * direction)
        return parameters - by.server_lr * step * self._mean / (self._second.sqrt() + by.tau)


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedAdam with v <- v - (1 - beta2) D^2 sign(v - D^2).

    Reddi et al., "Adaptive Federated Optimization", 2021, algorithm 2.
    """

    name: ClassVar[str] = "fedyogi"

    def second_moment(self, before: Any, squared: Any) -> Any:
        return before - (1 - self.beta2) * squared * (before - squared).sign()


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose clients minimise F_k(theta_k) + mu/2 |theta_k - theta|^2.

    A local step is one against g + mu (theta_k - theta). Li et al., "Federated Optimization in
    Heterogeneous Networks", 2020, algorithm 2. There clients are drawn in proportion to their
    examples and count equally; here they are weighted by them, as in the paper's experiments
    (section 5.1), which is the same on average.
    """

    name: ClassVar[str] = "fedprox"
    partial: bool = field(default=True, kw_only=True)
    mu: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        at_least(self, 0, "mu")

    async def train(self, me: TrainingWorker) -> PseudoGradient:
        return await self.local_work(me, mu=self.mu, weight=me.examples)


@dataclass(frozen=True)
class Scaffold(FedAvg):
    """Clients: K times y <- y - eta (g(y) - c_k + c), from y = theta on;
    c_k' = c_k - c + (theta - y) / (K eta).
    Server: theta <- theta - server_lr mean_k (theta - y_k), c <- c + sum_k (c_k' - c_k) / N.

    K is `steps`, or of `epochs` as in FedAvg. Each of N clients keeps a control variate c_k, the
    server keeps c; all begin as 0. Parameters and control variates travel both ways, so messages
    are twice as large. Karimireddy et al., "SCAFFOLD: Stochastic Controlled Averaging for Federated
    Learning", 2020, algorithm 1 with option II.
    """

    name: ClassVar[str] = "scaffold"
    recoveries: ClassVar[tuple[Recovery, ...] | None] = ()
    in_checkpoints: ClassVar[bool] = False
    partial: bool = field(default=True, kw_only=True)
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        above_0(self, "server_lr")
        _check_partial(self)

    @property
    def pushes_only_changes(self) -> bool:
        return False  # but control variates too

    def check_optimizer(self, optimizer: Optimizer) -> None:
        if optimizer != SGD:
            raise InputError(
                f"optimizer: the control variates of scaffold are means of gradients where local "
                f"steps are those of sgd, not of {optimizer}: leave it out"
            )

    def outer(self) -> Rule:
        return outer_rule(SGD, self.server_lr)

    async def work(self, me: TrainingWorker) -> None:
        zero = 0.0 * me.parameters
        while True:
            control = zero if me.extra is None else me.extra
            own_control = me.kept.get("control", zero)
            local = await self.local_work(me, shift=control - own_control)
            made = local.result()
            fresh = own_control - control + (local.parameters - made.parameters) / made.lr
            me.kept["control"] = fresh
            me.push(local, extra=fresh - own_control)
            await me.pull()

    async def serve(self, server: ParameterServer) -> None:
        control = 0.0 * server.parameters
        while True:
            pushes = await self.receive_round(server)
            await server.apply(pushes)
            control = control + sum(push.extra for push in pushes) / server.clients
            server.answer(*server.waiting, extra=control)


@dataclass(frozen=True)
class FedNova(FedAvg):
    """theta <- theta - K sum_k p_k (theta - theta_k) / K_k, with K = sum_k p_k K_k, p_k = n_k / n.

    Client k makes K_k steps: `steps`, or those of `epochs` as in FedAvg, so that clients with more
    examples make more; in FedAvg these pull theta towards their own minimum. Wang, Liu, Liang,
    Joshi, Poor, "Tackling the Objective Inconsistency Problem in Heterogeneous Federated
    Optimization", 2020, section 5, for plain SGD at the clients. Of clients that are drawn, p_k is
    their share of the examples of those that take part.
    """

    name: ClassVar[str] = "fednova"
    partial: bool = field(default=True, kw_only=True)

    @property
    def pushes_only_changes(self) -> bool:
        return False  # `serve` makes more of them than a mean

    def check_optimizer(self, optimizer: Optimizer) -> None:
        if optimizer != SGD:
            raise InputError(
                f"optimizer: fednova divides changes by numbers of steps of sgd, not of "
                f"{optimizer}: leave it out"
            )

    async def serve(self, server: ParameterServer) -> None:
        while True:
            pushes = await self.receive_round(server)
            examples = sum(push.gradient.weight for push in pushes)
            shares = [push.gradient.weight / examples for push in pushes]
            steps = [push.gradient.minibatches for push in pushes]
            mean_steps = sum(share * k for share, k in zip(shares, steps, strict=True))
            change = sum(
                mean_steps * share / k * push.value
                for share, k, push in zip(shares, steps, pushes, strict=True)
            )
            await server.replace(pushes, server.parameters - change)
            server.answer(*server.waiting)


@dataclass(frozen=True)
class FedDyn(FedAvg):
    """Clients: K times y <- y - eta (g(y) - h_k + alpha (y - theta)), from y = theta on;
    h_k <- h_k - alpha (theta_k - theta), with theta_k the last y.
    Server: h <- h - alpha sum_k (theta_k - theta) / N, theta <- mean_k theta_k - h / alpha.

    K is `steps`, or of `epochs` as in FedAvg. Each of N clients keeps a gradient h_k, the server
    keeps h; all begin as 0. Clients count equally. Acar, Zhao, Matas Navarro, Mattina, Whatmough,
    Saligrama, "Federated Learning Based on Dynamic Regularization", 2021, algorithm 1.
    """

    name: ClassVar[str] = "feddyn"
    recoveries: ClassVar[tuple[Recovery, ...] | None] = ()
    in_checkpoints: ClassVar[bool] = False
    partial: bool = field(default=True, kw_only=True)
    alpha: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        _check_partial(self)
        above_0(self, "alpha")

    @property
    def pushes_only_changes(self) -> bool:
        return False  # `serve` makes more of them than a mean

    async def work(self, me: TrainingWorker) -> None:
        zero = 0.0 * me.parameters
        while True:
            own_control = me.kept.get("gradient", zero)
            local = await self.local_work(me, mu=self.alpha, shift=-own_control)
            me.kept["gradient"] = own_control + self.alpha * local.value
            me.push(local)
            await me.pull()

    async def serve(self, server: ParameterServer) -> None:
        gradient = 0.0 * server.parameters
        while True:
            pushes = await self.receive_round(server)
            moved = sum(push.value for push in pushes)
            gradient = gradient + self.alpha / server.clients * moved
            mean = server.parameters - moved / len(pushes)
            await server.replace(pushes, mean - gradient / self.alpha)
            server.answer(*server.waiting)


@dataclass(frozen=True)
class FedBuff(Algorithm):
    """theta <- theta - server_lr (1 / K) sum_i s(tau_i) (theta_read_i - theta_i).

    theta_i is what worker i made of theta_read_i in `steps` local steps of the optimizer; K is
    `buffer`. A worker is answered at once. s is the `decay` of `fedasync`, here of the staleness:
    (1 + tau)^-a with "polynomial". Nguyen et al., "Federated Learning with Buffered Asynchronous
    Aggregation", 2022, algorithm 1, with the weights of its authors' program (FLSim).
    """

    name: ClassVar[str] = "fedbuff"
    buffer: int = 4
    steps: LocalWork = field(default=1, metadata={READS_TEXT: True})
    server_lr: float = 1.0
    decay: str = "polynomial"
    a: float = 0.5
    b: float = 4.0

    def __post_init__(self) -> None:
        _set_steps(self)
        above_0(self, "buffer", "server_lr")
        _check_decay(self)

    def gradients_per_update(self, workers: int) -> int:
        return self.buffer * mean_steps(self.steps)

    def rule(self, workers: int) -> ScheduleRule | None:
        return fedbuff(self.buffer) if self.steps == 1 else None

    def outer(self) -> Rule:
        return outer_rule(SGD, self.server_lr)

    def weight(self, staleness: int, workers: int) -> float:
        return _discount(self, staleness)

    async def work(self, me: TrainingWorker) -> None:
        while True:
            me.push(await me.local_steps(self.steps))
            await me.pull()

    async def serve(self, server: ParameterServer) -> None:
        buffer = []
        while True:
            push = await server.receive()
            buffer.append(push)
            if len(buffer) == self.buffer:
                await server.apply(buffer)
                buffer = []
            server.answer(push.worker)


@dataclass(frozen=True)
class FedAsync(ASGD):
    """theta <- (1 - alpha s(d)) theta + alpha s(d) theta_i, as soon as theta_i arrives.

    theta_i is what client i made of theta_read in `steps` local steps on its loss plus
    mu/2 |theta - theta_read|^2; alpha is `mixing`. The delay d is the number of the update less
    that of the one which the client has read, so 1 where nothing came between; s(d), the `decay`,
    is

    - "constant": 1;
    - "polynomial": (d + 1)^-a;
    - "hinge": 1 where d <= b, else 1 / (a (d - b) + 1);
    - `file.py:function`: a function of d of your own, above 0.

    Xie, Koyejo, Gupta, "Asynchronous Federated Optimization", 2019, algorithm 1 and section 5.2,
    whose experiments have a = 0.5 with "polynomial", and with "hinge" a = 10 or 4 and b = 4 or 2.
    (The authors' program counts d from 0.)
    """

    name: ClassVar[str] = "fedasync"
    compensates: ClassVar[bool] = True
    steps: LocalWork = field(default=8, metadata={READS_TEXT: True})
    mixing: float = 0.6
    decay: str = "polynomial"
    a: float = 0.5
    b: float = 4.0
    mu: float = 0.0

    def __post_init__(self) -> None:
        _set_steps(self)
        if not 0 < self.mixing <= 1:
            raise InputError(f"fedasync: mixing must be above 0 and at most 1, got {self.mixing}")
        at_least(self, 0, "mu")
        _check_decay(self)

    def gradients_per_update(self, workers: int) -> int:
        return mean_steps(self.steps)

    def rule(self, workers: int) -> ScheduleRule | None:
        return asgd() if self.steps == 1 else None

    def outer(self) -> Rule:
        return outer_rule(SGD, self.mixing)

    def weight(self, staleness: int, workers: int) -> float:
        return _discount(self, staleness + 1)

    def direction(self, gradient: Any, moved: Any) -> Any:
        """Return theta - theta_i, by what the client changed and what has moved meanwhile."""
        return moved + gradient

    async def work(self, me: TrainingWorker) -> None:
        while True:
            me.push(await me.local_steps(self.steps, mu=self.mu))
            await me.pull()


def _set_steps(algorithm: FedAvg | FedBuff | FedAsync) -> None:
    """Read the steps of an algorithm, which are written as `read_steps` says."""
    object.__setattr__(algorithm, "steps", read_steps(algorithm.name, algorithm.steps))


def _check_partial(algorithm: FedAvg) -> None:
    """Raise InputError where parts of work would be dropped that clients keep state of."""
    if not algorithm.partial:
        raise InputError(
            f"{algorithm.name}: partial must be true: a client whose work is dropped would go on "
            "from state that the server does not know of"
        )


def _check_decay(algorithm: FedBuff | FedAsync) -> None:
    at_least(algorithm, 0, "a", "b")
    if is_reference(algorithm.decay):
        named_function("decay", algorithm.decay)
    elif algorithm.decay not in ("constant", "polynomial", "hinge"):
        raise InputError(
            f"{algorithm.name}: decay must be constant, polynomial, hinge or file.py:function, got "
            f'"{algorithm.decay}"'
        )


def _discount(algorithm: FedBuff | FedAsync, delay: int) -> float:
    """Return s(delay), which `FedAsync` defines."""
    match algorithm.decay:
        case "constant":
            return 1.0
        case "polynomial":
            return float((delay + 1) ** -algorithm.a)
        case "hinge":
            beyond = max(0.0, delay - algorithm.b)
            return 1 / (algorithm.a * beyond + 1)
    discount: float = named_function("decay", algorithm.decay)(delay)
    return discount
