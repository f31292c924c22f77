"""Parameters that clients trained, mixed into the server's as they arrive."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from paracosm.errors import InputError
from paracosm.simulation.schedule import Rule as ScheduleRule
from paracosm.simulation.schedule import asgd
from paracosm.training.algorithms.asgd import ASGD
from paracosm.training.named import at_least
from paracosm.training.rules import SGD, outer_rule
from paracosm.training.store import Rule
from paracosm.training.worker import TrainingWorker

Decay = Literal["constant", "polynomial", "hinge"]


@dataclass(frozen=True)
class FedAsync(ASGD):
    """theta <- (1 - alpha s(d)) theta + alpha s(d) theta_i, as soon as theta_i arrives.

    theta_i is what client i made of theta_read in `steps` local steps on its loss plus
    mu/2 |theta - theta_read|^2; alpha is `mixing`. The delay d is the number of the update less
    that of the one which the client has read, so 1 where nothing came between; s(d), the `decay`,
    is

    - "constant": 1;
    - "polynomial": (d + 1)^-a;
    - "hinge": 1 where d <= b, else 1 / (a (d - b) + 1).

    Xie, Koyejo, Gupta, "Asynchronous Federated Optimization", 2019, algorithm 1 and section 5.2,
    whose experiments have a = 0.5 with "polynomial", a = 10 and b = 4 with "hinge".
    """

    name: ClassVar[str] = "fedasync"
    compensates: ClassVar[bool] = True
    steps: int = 8
    mixing: float = 0.6
    decay: Decay = "polynomial"
    a: float = 0.5
    b: float = 4.0
    mu: float = 0.0

    def __post_init__(self) -> None:
        at_least(self, 1, "steps")
        if not 0 < self.mixing <= 1:
            raise InputError(f"fedasync: mixing must be above 0 and at most 1, got {self.mixing}")
        if self.decay not in get_args(Decay):
            raise InputError(
                f'fedasync: decay must be constant, polynomial or hinge, got "{self.decay}"'
            )
        at_least(self, 0, "a", "b", "mu")

    def gradients_per_update(self, workers: int) -> int:
        return self.steps

    def rule(self, workers: int) -> ScheduleRule | None:
        return asgd() if self.steps == 1 else None

    def outer(self) -> Rule:
        return outer_rule(SGD, self.mixing)

    def weight(self, staleness: int, workers: int) -> float:
        delay = staleness + 1
        if self.decay == "constant":
            return 1.0
        if self.decay == "polynomial":
            return float((delay + 1) ** -self.a)
        return 1.0 if delay <= self.b else 1 / (self.a * (delay - self.b) + 1)

    def direction(self, gradient: Any, moved: Any) -> Any:
        """Return theta - theta_i, by what the client changed and what has moved meanwhile."""
        return moved + gradient

    async def work(self, me: TrainingWorker) -> None:
        while True:
            me.push(await me.local_steps(self.steps, mu=self.mu))
            await me.pull()
