"""A multi-layer perceptron: the smallest model that has everything."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from torch import Tensor, nn

__all__ = ["MLP", "mlp"]


def mlp(shape: Sequence[int], classes: int) -> MLP:
    """Two hidden layers of 512."""
    return MLP(math.prod(shape), (512, 512), classes)


class MLP(nn.Module):
    """Examples [batch, ...] to logits [batch, classes]."""

    tensor_parallel: Mapping[str, str] = {"layers.0": "column", "layers.2": "row"}

    def __init__(self, inputs: int, hidden: Sequence[int], classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(inputs, width), nn.ReLU()]
            inputs = width
        self.layers = nn.Sequential(*layers, nn.Linear(inputs, classes))

    def forward(self, examples: Tensor) -> Tensor:
        logits: Tensor = self.layers(examples.flatten(1))
        return logits
