"""f(x) = sum of a_i x_i^2 / 2 over a matrix and a vector, as a model that ignores its data."""

from __future__ import annotations

import numpy as np
import torch
from quadratic import data
from torch import Tensor, nn

__all__ = ["CURVATURE", "START", "data", "model"]

rng = np.random.default_rng(7)
CURVATURE = rng.uniform(0.1, 1, 54).astype(np.float32)
START = rng.standard_normal(54).astype(np.float32)


class Valley(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.matrix = nn.Parameter(torch.from_numpy(START[:48].copy()).view(8, 6))
        self.vector = nn.Parameter(torch.from_numpy(START[48:].copy()))

    def forward(self, inputs: Tensor) -> Tensor:
        flat = torch.cat([self.matrix.view(-1), self.vector])
        return flat * torch.from_numpy(CURVATURE).sqrt()


def model() -> tuple[nn.Module, object]:
    return Valley(), lambda x, targets: (x * x).sum() / 2
