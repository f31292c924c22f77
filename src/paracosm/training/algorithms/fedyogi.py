"""Rounds of local training, with a step for each parameter that grows slowly."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paracosm.training.algorithms.fedadam import FedAdam


@dataclass(frozen=True)
class FedYogi(FedAdam):
    """FedAdam with v <- v - (1 - beta2) D^2 sign(v - D^2).

    Reddi et al., "Adaptive Federated Optimization", 2021, algorithm 2.
    """

    name: ClassVar[str] = "fedyogi"

    def second_moment(self, before: Any, squared: Any) -> Any:
        return before - (1 - self.beta2) * squared * (before - squared).sign()
