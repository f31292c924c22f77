"""Rounds of local training that is held near where it began."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.training.algorithms.fedavg import FedAvg
from paracosm.training.store import PseudoGradient
from paracosm.training.worker import TrainingWorker


@dataclass(frozen=True)
class FedProx(FedAvg):
    """FedAvg whose clients minimise F_k(theta_k) + mu/2 |theta_k - theta|^2.

    A local step is one against g + mu (theta_k - theta). Li et al., "Federated Optimization in
    Heterogeneous Networks", 2020, algorithm 2 and equation 2. There clients are drawn in proportion
    to their examples and count equally; here they are weighted by them, which is the same on
    average.
    """

    name: ClassVar[str] = "fedprox"
    mu: float = 0.01

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.mu > 0:
            raise InputError(f"fedprox: mu must be above 0, got {self.mu}: without it, use fedavg")

    async def train(self, me: TrainingWorker) -> PseudoGradient:
        count = self.count(me)
        return await me.local_steps(count, keep_state=False, mu=self.mu, weight=me.examples)
