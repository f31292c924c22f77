"""Asynchronous SGD whose correction for what moved adapts to how large gradients are."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from paracosm.training.algorithms.asgd import ASGD
from paracosm.training.named import at_least, below_1
from paracosm.training.store import Direction

_LEAST = 1e-7  # epsilon


@dataclass(frozen=True)
class AdaptiveDCASGD(ASGD):
    """s <- decay s + (1 - decay) g_i * g_i,
    theta <- theta - eta (g_i + strength / sqrt(s + epsilon) * g_i * g_i * (theta - theta_read_i)).

    * , / and sqrt are elementwise; s (MeanSquare) is kept beside the parameters and begins as 0;
    epsilon is 1e-7. Zheng et al., "Asynchronous Stochastic Gradient Descent with Delay
    Compensation", 2017, section 6 (DC-ASGD-a, with strength 2 and decay 0.95 on CIFAR-10). Its
    authors' code (Multiverso) keeps an s of each worker's gradients instead.
    """

    name: ClassVar[str] = "dc-asgd-a"
    compensates: ClassVar[bool] = True
    strength: float = 2.0
    decay: float = 0.95

    def __post_init__(self) -> None:
        at_least(self, 0, "strength")
        below_1(self, "decay")

    def compensation(self) -> Direction:
        return _Adaptive(self.strength, self.decay)


class _Adaptive:
    def __init__(self, strength: float, decay: float) -> None:
        self._strength = strength
        self._decay = decay
        self._mean_square: Any = 0.0

    def __call__(self, gradient: Any, moved: Any) -> Any:
        square = gradient * gradient
        self._mean_square = self._decay * self._mean_square + (1 - self._decay) * square
        return gradient + self._strength * (self._mean_square + _LEAST) ** -0.5 * square * moved
