"""Asynchronous SGD with steps that shrink with staleness."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.training.algorithms.asgd import ASGD
from paracosm.training.named import at_least


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
