"""f(w) = mean |w - x|^2 / 2 over examples x: gradients are as noisy as x is spread."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor, nn

DIMENSIONS, EXAMPLES, START = 64, 4096, 3.0


class Mean(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.full((DIMENSIONS,), START))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.w - inputs


def model() -> tuple[nn.Module, object]:
    return Mean(), lambda away, targets: away.square().sum() / 2 / len(away)


def examples() -> np.ndarray:
    """Return what the data are: standard deviations from 0.5 to 2 around zero."""
    rng = np.random.default_rng(7)
    spread = np.linspace(0.5, 2.0, DIMENSIONS)
    return (spread * rng.standard_normal((EXAMPLES, DIMENSIONS))).astype(np.float32)


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    x = examples()
    targets = np.zeros(EXAMPLES, dtype=np.float32)
    return x, targets, x[:8], targets[:8]
