"""Handwritten digits of which every fifth has a wrong label, so that no model fits them all."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from paracosm.models import load_data


def load() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    digits = load_data("digits")
    labels = digits.train_y.clone()
    rng = np.random.default_rng(0)
    wrong = rng.choice(len(labels), len(labels) // 5, replace=False)
    labels[wrong] = (labels[wrong] + torch.from_numpy(rng.integers(1, 10, len(wrong)))) % 10
    return digits.train_x, labels, digits.test_x, digits.test_y
