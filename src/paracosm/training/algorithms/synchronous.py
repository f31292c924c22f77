"""An update by the gradients of all workers, or of those that are in time."""

from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from paracosm.errors import InputError
from paracosm.models.optimizers import Optimizer
from paracosm.simulation.rules import Rule as ScheduleRule
from paracosm.simulation.rules import asgd, backup, ssgd
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.algorithms.averaging import check_own_optimizer
from paracosm.training.failures.recovery import SYNCHRONOUS, Recovery
from paracosm.training.named import above_0, at_least, below_1
from paracosm.training.numerics.store import Contribution
from paracosm.training.numerics.store import Rule as StoreRule
from paracosm.training.run_state import Topology
from paracosm.training.server import ParameterServer
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class Sequential(Algorithm):
    """One worker, no exchange: theta <- theta - eta g(theta)."""

    name: ClassVar[str] = "sequential"
    topologies: ClassVar[tuple[Topology, ...]] = ("local",)
    recoveries: ClassVar[tuple[Recovery, ...] | None] = ("restart",)

    def rule(self, workers: int) -> ScheduleRule:
        return asgd()

    async def work(self, me: TrainingWorker) -> None:
        while True:
            await me.apply(await me.compute_gradient())

    def check(self, workers: int, servers: int) -> None:
        if workers != 1:
            raise InputError(f"sequential runs on 1 worker, not {workers}: use ssgd or asgd")


@dataclass(frozen=True)
class SSGD(Algorithm):
    """theta <- theta - eta mean_i g_i(theta), through parameter servers or by an all-reduce.

    With `reduce` "sum" it is theta <- theta - eta sum_i g_i(theta): the optimizer is given the sum,
    which is as if plain SGD had an eta W times as large. Zhang, Tanimura, Nakada, section 2.2.1.
    """

    name: ClassVar[str] = "ssgd"
    topologies: ClassVar[tuple[Topology, ...]] = ("server", "all-reduce")
    recoveries: ClassVar[tuple[Recovery, ...] | None] = SYNCHRONOUS
    has_rounds: ClassVar[bool] = True
    reduce: Literal["mean", "sum"] = "mean"

    def __post_init__(self) -> None:
        if self.reduce not in ("mean", "sum"):
            raise InputError(f'ssgd: reduce must be "mean" or "sum", got "{self.reduce}"')

    @property
    def sums(self) -> bool:
        return self.reduce == "sum"

    def gradients_per_update(self, workers: int) -> int:
        return workers

    def rule(self, workers: int) -> ScheduleRule:
        return ssgd(workers)

    async def work(self, me: TrainingWorker) -> None:
        if me.topology == "server":
            await super().work(me)
        while True:
            await me.all_reduce_gradient(await me.compute_gradient())


@dataclass(frozen=True)
class OneBitAdam(Algorithm):
    """m_i <- beta1 m + (1 - beta1) g_i, m <- mean_i C(m_i),
    theta <- theta - eta m / (sqrt(v) + epsilon).

    C is --compress, such as signsgd: "signsgd(start=100)" where v is what it was after the first
    `freeze` = 100 updates. Those are Adam's, by the mean of whole gradients and without bias
    correction. What all have sent is gathered at all, so that the mean is not compressed once more
    (in the paper a server does so). Tang et al., "1-bit Adam: Communication Efficient Large-Scale
    Training with Adam's Convergence Speed", 2021, algorithm 1.
    """

    name: ClassVar[str] = "one-bit-adam"
    topologies: ClassVar[tuple[Topology, ...]] = ("all-reduce",)
    recoveries: ClassVar[tuple[Recovery, ...] | None] = ("restart",)
    freeze: int = 100
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        at_least(self, 1, "freeze")
        below_1(self, "beta1", "beta2")
        above_0(self, "epsilon")

    def check_optimizer(self, optimizer: Optimizer) -> None:
        check_own_optimizer(self, optimizer)

    def stepper(self, lr: float) -> StoreRule:
        return _FreezingAdam(self, lr)

    def gradients_per_update(self, workers: int) -> int:
        return workers

    async def work(self, me: TrainingWorker) -> None:
        while True:
            gradient = await me.compute_gradient()
            if me.version < self.freeze:
                await me.all_reduce_gradient(gradient)
                continue
            before = me.shared_rule.momentum if gradient.value.shape[0] else 0.0
            momentum = self.beta1 * before + (1 - self.beta1) * gradient.value
            await me.all_reduce_begin(0, momentum)
            me.replace_part(0, me.shared_part(0))


class _FreezingAdam:
    def __init__(self, by: OneBitAdam, lr: float) -> None:
        self.momentum: Any = 0.0
        self._by = by
        self._lr = lr
        self._second: Any = 0.0
        self._made = 0

    def __call__(self, parameters: Any, direction: Any, step: float) -> Any:
        by = self._by
        if self._made < by.freeze:
            self.momentum = by.beta1 * self.momentum + (1 - by.beta1) * direction
            square = direction * direction
            self._second = by.beta2 * self._second + (1 - by.beta2) * square
        else:
            self.momentum = direction
        self._made += 1
        return parameters - self._lr * step * self.momentum / (self._second.sqrt() + by.epsilon)


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

    def rule(self, workers: int) -> ScheduleRule | None:
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
