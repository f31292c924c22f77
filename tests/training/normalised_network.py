"""A small network with batch normalisation, and data whose scale differs by class."""

from __future__ import annotations

import numpy as np
from torch import nn


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.ReLU(), nn.Linear(4, 2))


def by_layer() -> nn.Module:
    """Return one without moving statistics, whose layers are not only dense."""
    return nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2))


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    y = rng.integers(2, size=80)
    x = (rng.normal(size=(80, 3)) * (1 + 3 * y[:, None]) + y[:, None]).astype(np.float32)
    return x[:60], y[:60], x[60:], y[60:]
