"""The residual network of 20 layers for CIFAR-10.

He, Zhang, Ren, Sun, "Deep Residual Learning for Image Recognition", 2015, section 4.2.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

__all__ = ["resnet20"]

BLOCKS = 3  # a stage: 6n + 2 layers with n = 3


def resnet20(shape: Sequence[int], classes: int) -> nn.Module:
    """Return the network with 16, 32, 64 filters, batch normalisation and shortcuts of kind A.

    Shortcuts have no parameters: where a stage halves the image, they take every second pixel and
    fill the new channels with zeros. Weights are drawn as by He et al.
    """
    channels, _, _ = shape
    layers: list[nn.Module] = [_convolution(channels, 16), nn.BatchNorm2d(16), nn.ReLU()]
    width = 16
    for stage, filters in enumerate((16, 32, 64)):
        for block in range(BLOCKS):
            stride = 2 if stage > 0 and block == 0 else 1
            layers.append(_Block(width, filters, stride))
            width = filters
    module = nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)
    )
    for layer in module.modules():
        if isinstance(layer, nn.Conv2d | nn.Linear):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
            if layer.bias is not None:
                nn.init.zeros_(layer.bias)
    return module


def _convolution(channels: int, filters: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(channels, filters, 3, stride=stride, padding=1, bias=False)


class _Block(nn.Module):
    """Two convolutions and the shortcut around them."""

    def __init__(self, channels: int, filters: int, stride: int) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            _convolution(channels, filters, stride),
            nn.BatchNorm2d(filters),
            nn.ReLU(),
            _convolution(filters, filters),
            nn.BatchNorm2d(filters),
        )
        self.stride = stride
        self.added = filters - channels

    def forward(self, x: Tensor) -> Tensor:
        shortcut = x
        if self.added:
            shortcut = functional.pad(
                x[:, :, :: self.stride, :: self.stride], (0, 0, 0, 0, 0, self.added)
            )
        return functional.relu(self.residual(x) + shortcut)
