"""A small network and random data: six parameters' tensors, gradients in microseconds."""

from __future__ import annotations

import numpy as np
import torch
from torch import nn


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 7), nn.ReLU(), nn.Linear(7, 6), nn.Tanh(), nn.Linear(6, 3))


def data() -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    x = rng.normal(size=(90, 5)).astype(np.float32)
    y = (x @ rng.normal(size=(5, 3))).argmax(1).astype(np.int64)
    return x[:60], y[:60], x[60:], y[60:]


TENSORS = tuple(name for name, _ in model().named_parameters())


def initial(seed: int) -> nn.Module:
    """Return the network that PyTorch draws from a seed."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return model()
