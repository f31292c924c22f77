"""Asynchronous local steps, whose outer momentum waits for several of them."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any, ClassVar

from paracosm.errors import InputError
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.named import above_0, at_least, below_1
from paracosm.training.server import ParameterServer
from paracosm.training.worker import TrainingWorker


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
