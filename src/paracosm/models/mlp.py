"""A multilayer perceptron: the smallest model that has everything."""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, nn

__all__ = ["MLP", "mlp"]


def mlp(shape: Sequence[int], classes: int, hidden: int = 64, layers: int = 1) -> MLP:
    """Return inputs -> `layers` times `hidden` ReLU units -> classes, for inputs of any shape."""
    return MLP(math.prod(shape), (hidden,) * layers, classes)


class MLP(nn.Module):
    """Examples [batch, ...] to logits [batch, classes].

    Weights are drawn as by He, Zhang, Ren, Sun, "Delving Deep into Rectifiers", 2015: normal with
    variance 2 / fan-in; biases are zero.
    """

    def __init__(self, inputs: int, hidden: Sequence[int], classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for width in hidden:
            layers += [nn.Linear(inputs, width), nn.ReLU()]
            inputs = width
        self.layers = nn.Sequential(*layers, nn.Linear(inputs, classes))
        linear = [i for i, layer in enumerate(self.layers) if isinstance(layer, nn.Linear)]
        # Layers are split in pairs, by outputs and then by inputs; an odd last one is not split.
        self.tensor_parallel = {
            f"layers.{i}": style
            for pair in zip(linear[::2], linear[1::2], strict=False)
            for i, style in zip(pair, ("column", "row"), strict=True)
        }
        for layer in self.layers:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
                nn.init.zeros_(layer.bias)

    def forward(self, examples: Tensor) -> Tensor:
        logits: Tensor = self.layers(examples.flatten(1))
        return logits
