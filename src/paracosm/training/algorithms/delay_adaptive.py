"""Asynchronous SGD that shortens the steps of the stalest gradients alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.training.algorithms.asgd import ASGD
from paracosm.training.named import at_least


@dataclass(frozen=True)
class DelayAdaptive(ASGD):
    """theta <- theta - eta min(1, tau_C / tau) g_i, with tau the gradient's staleness.

    tau_C is `threshold`, or the number of workers when it is 0 (the concurrency, as in the papers).
    Koloskova, Stich, Jaggi, "Sharper Convergence Guarantees for Asynchronous SGD", 2022;
    Mishchenko, Bach, Even, Woodworth, "Asynchronous SGD Beats Minibatch SGD Under Arbitrary
    Delays", 2022.
    """

    name: ClassVar[str] = "delay-adaptive"
    threshold: int = 0

    def __post_init__(self) -> None:
        at_least(self, 0, "threshold")

    def weight(self, staleness: int, workers: int) -> float:
        return min(1.0, (self.threshold or workers) / max(1, staleness))
