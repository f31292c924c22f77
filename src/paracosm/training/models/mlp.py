"""A multilayer perceptron with one hidden layer."""

from __future__ import annotations

import math

from torch import nn

__all__ = ["mlp"]

HIDDEN = 64


def mlp(input_shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return inputs -> 64 ReLU units -> classes, for inputs of any shape.

    Weights are drawn as by He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", 2015: normal with
    variance 2 / fan-in; biases are zero.
    """
    module = nn.Sequential(
        nn.Flatten(),
        nn.Linear(math.prod(input_shape), HIDDEN),
        nn.ReLU(),
        nn.Linear(HIDDEN, classes),
    )
    for layer in module:
        if isinstance(layer, nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            nn.init.zeros_(layer.bias)
    return module
