"""VGG networks (Simonyan and Zisserman 2015): 3x3 convolutions, then three wide linear layers.

Pooling to 7x7 before the linear layers lets images of any size of 32 pixels or more in, and keeps
the number of parameters.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

__all__ = ["VGG", "vgg11", "vgg16", "vgg19", "vgg19_bn"]


def vgg11(shape: Sequence[int], classes: int) -> VGG:
    """Configuration A: 8 convolutions."""
    return VGG((1, 1, 2, 2, 2), shape[0], classes)


def vgg16(shape: Sequence[int], classes: int) -> VGG:
    """Configuration D: 13 convolutions."""
    return VGG((2, 2, 3, 3, 3), shape[0], classes)


def vgg19(shape: Sequence[int], classes: int) -> VGG:
    """Configuration E: 16 convolutions."""
    return VGG((2, 2, 4, 4, 4), shape[0], classes)


def vgg19_bn(shape: Sequence[int], classes: int) -> VGG:
    """Configuration E, with batch normalisation after every convolution."""
    return VGG((2, 2, 4, 4, 4), shape[0], classes, normalise=True)


class VGG(nn.Module):
    """Images [batch, channels, height, width] to logits [batch, classes]."""

    def __init__(
        self, depths: Sequence[int], channels: int, classes: int, normalise: bool = False
    ) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for depth, width in zip(depths, (64, 128, 256, 512, 512), strict=True):
            for _ in range(depth):
                layers.append(nn.Conv2d(channels, width, kernel_size=3, padding=1))
                layers += [nn.BatchNorm2d(width)] if normalise else []
                layers.append(nn.ReLU(inplace=True))
                channels = width
            layers.append(nn.MaxPool2d(kernel_size=2, stride=2))
        self.features = nn.Sequential(*layers)
        self.avgpool = nn.AdaptiveAvgPool2d(7)
        self.classifier = nn.Sequential(
            nn.Linear(512 * 7 * 7, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, 4096),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(4096, classes),
        )
        for module in self.features:
            if isinstance(module, nn.Conv2d):
                assert module.bias is not None
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")
                nn.init.zeros_(module.bias)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.classifier(self.avgpool(self.features(images)).flatten(1))
        return logits
