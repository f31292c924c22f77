"""Rounds of local training, with momentum at the server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.errors import InputError
from paracosm.models import Optimizer
from paracosm.training.algorithms.fedavg import FedAvg
from paracosm.training.named import above_0
from paracosm.training.rules import outer_rule
from paracosm.training.store import Rule


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
        if not 0 < self.momentum < 1:
            raise InputError(f"fedavgm: momentum must be between 0 and 1, got {self.momentum}")
        above_0(self, "server_lr")

    def outer(self) -> Rule:
        return outer_rule(Optimizer("sgd", {"momentum": self.momentum}), self.server_lr)
