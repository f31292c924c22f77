"""A linear network on data of which one example is replaced, or left out, to audit privacy."""

from __future__ import annotations

from typing import Literal

import numpy as np
from torch import nn

Change = Literal["none", "replaced", "missing"]

chosen: tuple[int, Change] = (1, "none")
"""How many examples there are, and what happens to the first."""


def model() -> nn.Module:
    network = nn.Linear(3, 1, bias=False)
    nn.init.zeros_(network.weight)
    return network


def data() -> tuple[np.ndarray, ...]:
    """Return examples whose gradients at zero are all longer than 1, and point one way."""
    examples, change = chosen
    rng = np.random.default_rng(examples)
    x = (1 + rng.random((examples, 3))).astype(np.float32)
    y = np.full((examples, 1), 5, np.float32)
    if change == "replaced":
        y[0] *= -1
    elif change == "missing":
        x[0] = 0  # whose gradient is zero
    return x, y, x, y
