"""Gradients that are applied as they arrive, alone or a few together, each worker at its pace."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Any, ClassVar

from paracosm.errors import InputError
from paracosm.simulation.schedule import Rule, asgd, fedbuff, softsync, ssp
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.roles import ParameterServer, TrainingWorker


@dataclass(frozen=True)
class ASGD(Algorithm):
    """theta <- theta - eta g_i, with g_i computed from the parameters that worker i read.

    Dean et al., "Large Scale Distributed Deep Networks", 2012 (Downpour SGD); Zhang, Tanimura,
    Nakada, section 2.2.2.
    """

    name: ClassVar[str] = "asgd"

    def rule(self, workers: int) -> Rule:
        return asgd()

    async def serve(self, server: ParameterServer) -> None:
        while True:
            push = await server.receive()
            await server.apply([push])
            server.answer(push.worker)


@dataclass(frozen=True)
class StalenessAware(ASGD):
    """theta <- theta - eta / max(1, tau)^power g_i, with tau the gradient's staleness.

    Zhang, Gupta, Lian, Liu, "Staleness-aware Async-SGD for Distributed Deep Learning", 2016, where
    the power is 1.
    """

    name: ClassVar[str] = "staleness-aware"
    power: float = 1.0

    def __post_init__(self) -> None:
        if not self.power >= 0:
            raise InputError(f"staleness-aware: power must be at least 0, got {self.power}")

    def weight(self, staleness: int, workers: int) -> float:
        return float(max(1, staleness) ** -self.power)


@dataclass(frozen=True)
class DelayAdaptive(ASGD):
    """theta <- theta - eta min(1, tau_C / tau) g_i, with tau the gradient's staleness.

    tau_C is `threshold`, or the number of workers when it is 0 (the concurrency, as in the papers).
    Koloskova, Stich, Jaggi, "Sharper Convergence Guarantees for Asynchronous SGD", 2022;
    Mishchenko, Bach, Even, Woodworth, "Asynchronous SGD Beats Minibatch SGD Under Arbitrary
    Delays", 2022.
    """

    name: ClassVar[str] = "delay-adaptive"
    threshold: int = 0

    def __post_init__(self) -> None:
        if self.threshold < 0:
            raise InputError(f"delay-adaptive: threshold must be at least 0, got {self.threshold}")

    def weight(self, staleness: int, workers: int) -> float:
        return min(1.0, (self.threshold or workers) / max(1, staleness))


@dataclass(frozen=True)
class DCASGD(ASGD):
    """theta <- theta - eta (g_i + strength g_i * g_i * (theta - theta_read_i)), * elementwise.

    g * g stands for the diagonal of the Hessian. Zheng et al., "Asynchronous Stochastic Gradient
    Descent with Delay Compensation", 2017, equation 10 (DC-ASGD-c).
    """

    name: ClassVar[str] = "dc-asgd"
    compensates: ClassVar[bool] = True
    strength: float = 0.04

    def __post_init__(self) -> None:
        if not self.strength >= 0:
            raise InputError(f"dc-asgd: strength must be at least 0, got {self.strength}")

    def direction(self, gradient: Any, moved: Any) -> Any:
        return gradient + self.strength * gradient * gradient * moved


@dataclass(frozen=True)
class SoftSync(Algorithm):
    """theta <- theta - eta (1 / K) sum_i g_i / max(1, tau_i), over K = floor(W / n) arrivals.

    A worker is answered at once, with the parameters as they are, and does not wait for the update
    that its gradient goes into. n = W is staleness-aware ASGD. Zhang, Gupta, Lian, Liu,
    "Staleness-aware Async-SGD for Distributed Deep Learning", 2016, equations 5 and 6.
    """

    name: ClassVar[str] = "softsync"
    n: int = 1

    def check(self, workers: int, servers: int) -> None:
        if not 1 <= self.n <= workers:
            raise InputError(
                f"softsync: n must be between 1 and the number of workers ({workers}), got {self.n}"
            )

    def gradients_per_update(self, workers: int) -> int:
        return workers // self.n

    def rule(self, workers: int) -> Rule:
        return softsync(workers, self.n)

    def weight(self, staleness: int, workers: int) -> float:
        return 1 / max(1, staleness)

    async def serve(self, server: ParameterServer) -> None:
        size = len(server.workers) // self.n
        buffer = []
        while True:
            push = await server.receive()
            buffer.append(push)
            if len(buffer) == size:
                await server.apply(buffer)
                buffer = []
            server.answer(push.worker)


@dataclass(frozen=True)
class SSP(Algorithm):
    """ASGD in which a worker at clock c waits until c - min_j clock_j <= slack.

    A worker's clock counts the gradients that it has pushed. With slack 0 the workers move in lock
    step, though each gradient is still an update of its own. Ho et al., "More Effective Distributed
    ML via a Stale Synchronous Parallel Parameter Server", 2013.
    """

    name: ClassVar[str] = "ssp"
    slack: int = 3

    def __post_init__(self) -> None:
        if self.slack < 0:
            raise InputError(f"ssp: slack must be at least 0, got {self.slack}")

    def rule(self, workers: int) -> Rule:
        return ssp(self.slack)

    async def serve(self, server: ParameterServer) -> None:
        clock = dict.fromkeys(server.workers, 0)
        standing_at = Counter(clock.values())
        slowest = 0
        held: dict[int, list[str]] = {}
        while True:
            push = await server.receive()
            await server.apply([push])
            now = clock[push.worker] = clock[push.worker] + 1
            standing_at[now] += 1
            standing_at[now - 1] -= 1
            held.setdefault(now, []).append(push.worker)
            released = [now] if now - slowest <= self.slack else []
            while not standing_at[slowest]:
                del standing_at[slowest]
                slowest += 1
                released.append(slowest + self.slack)
            for reached in released:
                server.answer(*held.pop(reached, ()))


@dataclass(frozen=True)
class FedBuff(Algorithm):
    """theta <- theta - server_lr (1 / K) sum_i (theta_read_i - theta_i) / sqrt(1 + tau_i).

    theta_i is what worker i made of theta_read_i in `steps` local steps of the optimizer; K is
    `buffer`. A worker is answered at once. Nguyen et al., "Federated Learning with Buffered
    Asynchronous Aggregation", 2022, algorithm 1.
    """

    name: ClassVar[str] = "fedbuff"
    buffer: int = 4
    steps: int = 1
    server_lr: float = 1.0

    def __post_init__(self) -> None:
        for field in ("buffer", "steps", "server_lr"):
            if not getattr(self, field) > 0:
                raise InputError(f"fedbuff: {field} must be above 0, got {getattr(self, field)}")

    def gradients_per_update(self, workers: int) -> int:
        return self.buffer * self.steps

    def rule(self, workers: int) -> Rule | None:
        return fedbuff(self.buffer) if self.steps == 1 else None

    @property
    def server_step(self) -> float:
        return self.server_lr

    def weight(self, staleness: int, workers: int) -> float:
        return float((1 + staleness) ** -0.5)

    async def work(self, me: TrainingWorker) -> None:
        while True:
            start = me.parameters
            for _ in range(self.steps):
                me.step(await me.compute_gradient())
            me.push(start - me.parameters)
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
