"""Rounds of local training, with a step for each parameter at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paracosm.training.algorithms.fedavg import FedAvg
from paracosm.training.named import above_0, below_1
from paracosm.training.store import PseudoGradient, Rule
from paracosm.training.worker import TrainingWorker


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
        return _Adaptive(self)

    def second_moment(self, before: Any, squared: Any) -> Any:
        """Return v from its last value and D^2."""
        return self.beta2 * before + (1 - self.beta2) * squared

    async def train(self, me: TrainingWorker) -> PseudoGradient:
        return await me.local_steps(self.count(me), keep_state=False)


class _Adaptive:
    def __init__(self, by: FedAdam) -> None:
        self._by = by
        self._mean: Any = 0.0
        self._second: Any = by.tau**2

    def __call__(self, parameters: Any, direction: Any, step: float) -> Any:
        by = self._by
        self._mean = by.beta1 * self._mean + (1 - by.beta1) * direction
        self._second = by.second_moment(self._second, direction * direction)
        return parameters - by.server_lr * step * self._mean / (self._second.sqrt() + by.tau)
