"""Many local steps, then a step of Nesterov's momentum against the mean of what they changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from itertools import count
from typing import Any, ClassVar

from paracosm.engine import Future
from paracosm.errors import InputError
from paracosm.models.optimizers import Optimizer
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.failures.recovery import SYNCHRONOUS, Recovery
from paracosm.training.named import above_0, at_least, below_1
from paracosm.training.numerics.rules import outer_rule
from paracosm.training.numerics.store import Rule
from paracosm.training.run_state import Topology
from paracosm.training.server import ParameterServer
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class DiLoCo(Algorithm):
    """Delta = mean_i (theta - theta_i); v <- momentum v + Delta; theta <- theta - outer_lr D.

    theta_i is what worker i makes of theta in `steps` steps of the inner optimizer, which is the
    run's (the paper's is AdamW) and keeps its state from round to round. D = Delta + momentum v:
    Nesterov's momentum as PyTorch has it. An update, in the count of the run, is one round.
    Douillard et al., "DiLoCo: Distributed Low-Communication Training of Language Models", 2023,
    algorithm 1; it takes 500 steps, outer_lr 0.7 and momentum 0.9.
    """

    name: ClassVar[str] = "diloco"
    topologies: ClassVar[tuple[Topology, ...]] = ("all-reduce", "server")
    has_rounds: ClassVar[bool] = True
    recoveries: ClassVar[tuple[Recovery, ...] | None] = SYNCHRONOUS
    steps: int = 8
    outer_lr: float = 0.7
    momentum: float = 0.9

    def __post_init__(self) -> None:
        at_least(self, 1, "steps")
        above_0(self, "outer_lr")
        below_1(self, "momentum")

    def outer(self) -> Rule:
        options = {"momentum": self.momentum, "nesterov": True} if self.momentum else {}
        return outer_rule(Optimizer("sgd", options), self.outer_lr)

    def gradients_per_update(self, workers: int) -> int:
        return workers * self.steps

    async def work(self, me: TrainingWorker) -> None:
        while True:
            change = await me.local_steps(self.steps)
            if me.topology == "server":
                me.push(change)
                await me.pull()
            else:
                await me.all_reduce_gradient(change)


@dataclass(frozen=True)
class StreamingDiLoCo(DiLoCo):
    """DiLoCo of each fragment p of the parameters, every `steps` steps from step t_p on.

    The mean of theta_p - theta_{i,p} is sent for at step t; when it is there, theta_p makes its
    outer step. At step t + `overlap` worker i takes it, and waits for it if it is late:
    theta_{i,p} <- mixing theta_{i,p} + (1 - mixing) theta_p. Fragment p of P has every P-th layer,
    from layer p on, and t_p = p steps / P, rounded down (0 is `steps`, the end of a round). An
    update, in the count of the run, is one of every fragment; what is evaluated are the shared
    theta_p. Douillard et al., "Streaming DiLoCo with overlapping communication", 2025, algorithm 2.
    """

    name: ClassVar[str] = "streaming-diloco"
    topologies: ClassVar[tuple[Topology, ...]] = ("all-reduce",)
    recoveries: ClassVar[tuple[Recovery, ...] | None] = ("restart",)
    fragments: int = 2
    overlap: int = 1
    mixing: float = 0.5

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.fragments <= self.steps:
            raise InputError(
                f"{self.name}: fragments must be between 1 and the number of steps, {self.steps}, "
                f"got {self.fragments}"
            )
        if not 0 <= self.overlap < self.steps:
            raise InputError(
                f"{self.name}: overlap must be at least 0 and below the number of steps, "
                f"{self.steps}, got {self.overlap}"
            )
        below_1(self, "mixing")

    async def work(self, me: TrainingWorker) -> None:
        under_way: dict[int, Future] = {}
        made = 0
        for step, is_taken, fragment in self._exchanges():
            if step > made:
                change = await me.local_steps(step - made, of=self.steps)
                me.parameters = change.result().parameters
                made = step
            if is_taken:
                await under_way.pop(fragment)
                mine, shared = me.part(fragment), me.shared_part(fragment)
                me.replace_part(fragment, self.mixing * mine + (1 - self.mixing) * shared)
            else:
                change = me.shared_part(fragment) - me.part(fragment)
                under_way[fragment] = me.all_reduce_begin(fragment, change)

    def _exchanges(self) -> Iterator[tuple[int, bool, int]]:
        """Yield step, whether the mean is taken (or sent for), and fragment, without end."""

        def at(delay: int, is_taken: bool) -> Iterator[tuple[int, bool, int]]:
            for begin in count(0, self.steps):
                for fragment in range(self.fragments):
                    step = begin + fragment * self.steps // self.fragments
                    if step:
                        yield step + delay, is_taken, fragment

        return merge(at(0, False), at(self.overlap, True))


@dataclass(frozen=True)
class DelayedNesterov(Algorithm):
    """Delta = theta_read - theta_i, as it arrives; every N-th time v <- momentum v + mean Delta.

    theta <- theta - outer_lr (Delta / N + a momentum v), where the mean is that of the last N
    changes, and a is 1 - c N + c every N-th time and c at others. theta_i is what worker i made of
    theta_read in `steps` steps of the inner optimizer; N is `buffer`, c is `activation`. An update,
    in the count of the run, is one arrival, which is answered at once. Liu et al., "Asynchronous
    Local-SGD Training for Language Modeling", 2024, algorithm 3 (its workers' steps by speed are
    not modelled: all make as many).
    """

    name: ClassVar[str] = "delayed-nesterov"
    in_checkpoints: ClassVar[bool] = False  # the velocity is not
    steps: int = 8
    buffer: int = 4
    outer_lr: float = 0.7
    momentum: float = 0.9
    activation: float = 0.0

    def __post_init__(self) -> None:
        at_least(self, 1, "steps", "buffer")
        above_0(self, "outer_lr")
        below_1(self, "momentum")
        if not 0 <= self.activation <= 1 / self.buffer:
            raise InputError(
                f"{self.name}: activation must be between 0 and 1 / buffer, {1 / self.buffer:g}, "
                f"got {self.activation}"
            )

    def gradients_per_update(self, workers: int) -> int:
        return self.steps

    async def work(self, me: TrainingWorker) -> None:
        while True:
            me.push(await me.local_steps(self.steps))
            await me.pull()

    async def serve(self, server: ParameterServer) -> None:
        size, active = self.buffer, self.activation
        gathered: Any = 0.0
        velocity: Any = 0.0
        for number in count(1):
            push = await server.receive()
            change, share = push.value, active
            gathered = gathered + change
            if number % size == 0:
                velocity = self.momentum * velocity + gathered / size
                gathered, share = 0.0, 1 - active * size + active
            step = change / size + share * self.momentum * velocity
            await server.replace([push], server.parameters - self.outer_lr * step)
            server.answer(push.worker)
