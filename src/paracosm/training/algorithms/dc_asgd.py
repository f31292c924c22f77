"""Asynchronous SGD with gradients corrected for what moved meanwhile."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paracosm.training.algorithms.asgd import ASGD
from paracosm.training.named import at_least


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
