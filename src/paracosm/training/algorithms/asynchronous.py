"""Servers that apply gradients as they come, however old they are."""

from collections import Counter
from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

from paracosm.errors import InputError
from paracosm.simulation.rules import Rule as ScheduleRule
from paracosm.simulation.rules import asgd, rennala, softsync, ssp
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.failures.recovery import Recovery
from paracosm.training.named import at_least, below_1
from paracosm.training.numerics.rules import SGD, outer_rule
from paracosm.training.numerics.store import Direction, Rule
from paracosm.training.run_state import Topology
from paracosm.training.server import ParameterServer
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class ASGD(Algorithm):
    """theta <- theta - eta g_i, with g_i computed from the parameters that worker i read.

    Dean et al., "Large Scale Distributed Deep Networks", 2012 (Downpour SGD); Zhang, Tanimura,
    Nakada, section 2.2.2.
    """

    name: ClassVar[str] = "asgd"

    def rule(self, workers: int) -> ScheduleRule | None:
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
        at_least(self, 0, "power")

    def weight(self, staleness: int, workers: int) -> float:
        return float(max(1, staleness) ** -self.power)


@dataclass(frozen=True)
class DelayAdaptive(ASGD):
    """theta <- theta - eta min(1, tau_C / tau) g_i, with tau the gradient's staleness.

    tau_C is `threshold`, or the number of workers when it is 0 (the concurrency, as in the papers).
    Koloskova, Stich, Jaggi, "Sharper Convergence Guarantees for Asynchronous SGD", 2022, theorem 8,
    whose bound on the steps this is where eta = 1 / (4 L tau_C), L being the gradients' Lipschitz
    constant; Mishchenko, Bach, Even, Woodworth, "Asynchronous SGD Beats Minibatch SGD Under
    Arbitrary Delays", 2022.
    """

    name: ClassVar[str] = "delay-adaptive"
    threshold: int = 0

    def __post_init__(self) -> None:
        at_least(self, 0, "threshold")

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
        at_least(self, 0, "strength")

    def direction(self, gradient: Any, moved: Any) -> Any:
        return gradient + self.strength * gradient * gradient * moved


_LEAST = 1e-7  # epsilon


@dataclass(frozen=True)
class AdaptiveDCASGD(ASGD):
    """s <- decay s + (1 - decay) g_i * g_i,
    theta <- theta - eta (g_i + strength / sqrt(s + epsilon) * g_i * g_i * (theta - theta_read_i)).

    * , / and sqrt are elementwise; s (MeanSquare) is kept with the parameters and begins as 0;
    epsilon is 1e-7. Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay
    Compensation", 2017 (DC-ASGD-a). Its authors' code (Multiverso) keeps an s of each worker's
    gradients instead, and has an epsilon of 1e-10.
    """

    name: ClassVar[str] = "dc-asgd-a"
    compensates: ClassVar[bool] = True
    strength: float = 2.0
    decay: float = 0.95

    def __post_init__(self) -> None:
        at_least(self, 0, "strength")
        below_1(self, "decay")

    def compensation(self) -> Direction:
        return _Compensation(self.strength, self.decay)


class _Compensation:
    def __init__(self, strength: float, decay: float) -> None:
        self._strength = strength
        self._decay = decay
        self._mean_square: Any = 0.0

    def __call__(self, gradient: Any, moved: Any) -> Any:
        square = gradient * gradient
        self._mean_square = self._decay * self._mean_square + (1 - self._decay) * square
        return gradient + self._strength * (self._mean_square + _LEAST) ** -0.5 * square * moved


@dataclass(frozen=True)
class SoftSync(Algorithm):
    """theta <- theta - eta (1 / K) sum_i g_i / max(1, tau_i), over K = floor(W / n) arrivals.

    A worker is answered at once, with the parameters as they are, and does not wait for the update
    that its gradient goes into. n = W is staleness-aware ASGD. Zhang, Gupta, Lian, Liu,
    "Staleness-aware Async-SGD for Distributed Deep Learning", 2016, equations 2 and 3.
    """

    name: ClassVar[str] = "softsync"
    n: int = 1

    def __post_init__(self) -> None:
        at_least(self, 1, "n")

    def check(self, workers: int, servers: int) -> None:
        if not 1 <= self.n <= workers:
            raise InputError(
                f"softsync: n must be between 1 and the number of workers ({workers}), got {self.n}"
            )

    def gradients_per_update(self, workers: int) -> int:
        return workers // self.n

    def rule(self, workers: int) -> ScheduleRule:
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


@dataclass(frozen=True)
class Rennala(Algorithm):
    """theta <- theta - eta mean of the first `gradients` gradients at theta, from any worker.

    A worker is answered at once with the parameters as they are: a fast one brings several of the
    gradients. One of older parameters is ignored. Tyurin, Richtarik, "Optimal Time Complexities of
    Parallel Stochastic Optimization Methods Under a Fixed Computation Model", 2023 (Rennala SGD;
    there S, and the worker that completes an update is asked for another gradient before it, whose
    result is ignored, here after it).
    """

    name: ClassVar[str] = "rennala"
    gradients: int = 4

    def __post_init__(self) -> None:
        at_least(self, 1, "gradients")

    def check(self, workers: int, servers: int) -> None:
        if servers > 1:
            raise InputError(
                f"rennala runs on 1 server, not {servers}: several would not agree on which "
                "gradients come late"
            )

    def rule(self, workers: int) -> ScheduleRule:
        return rennala(self.gradients)

    def gradients_per_update(self, workers: int) -> int:
        return self.gradients

    async def serve(self, server: ParameterServer) -> None:
        fresh = []
        while True:
            push = await server.receive()
            if push.staleness:
                server.drop(push)
            else:
                fresh.append(push)
            if len(fresh) == self.gradients:
                await server.apply(fresh)
                fresh = []
            server.answer(push.worker)
