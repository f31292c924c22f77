"""f(x) = x^2 / 2, as a model that ignores its data: what is known about SGD on it is exact."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from paracosm.training import TrainConfig, TrainingResult, train

LR = 0.25


class Quadratic(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.x = nn.Parameter(torch.ones(1))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.x


def model() -> tuple[nn.Module, object]:
    return Quadratic(), lambda x, targets: (x * x).sum() / 2


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    inputs, targets = np.zeros((4, 1), dtype=np.float32), np.zeros(4, dtype=np.float32)
    return inputs, targets, inputs, targets


def run(seed: int = 0, **arguments: Any) -> TrainingResult:
    """Train on it, a gradient a second."""
    common = {
        "model": "quadratic:model",
        "data": "quadratic:data",
        "lr": LR,
        "compute": "1s",
        "lookahead": "off",
        "evaluate_every": 1,
        "batch": 1,
    }
    return train(TrainConfig.model_validate({**common, **arguments}), seed)
