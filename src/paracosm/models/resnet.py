"""Residual networks (He et al. 2016) with the stem for ImageNet, as commonly implemented.

The stride of a bottleneck is in its 3x3 convolution. Images need sides of 32 pixels or more only
for the last stage to have something to do: smaller ones work down to a single pixel.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

__all__ = ["ResNet", "resnet18", "resnet34", "resnet50", "resnet101", "resnet152"]


def resnet18(shape: Sequence[int], classes: int) -> ResNet:
    """Two basic blocks a stage."""
    return ResNet(BasicBlock, (2, 2, 2, 2), shape[0], classes)


def resnet34(shape: Sequence[int], classes: int) -> ResNet:
    """As many blocks as ResNet-50, basic ones."""
    return ResNet(BasicBlock, (3, 4, 6, 3), shape[0], classes)


def resnet50(shape: Sequence[int], classes: int) -> ResNet:
    """Bottlenecks."""
    return ResNet(Bottleneck, (3, 4, 6, 3), shape[0], classes)


def resnet101(shape: Sequence[int], classes: int) -> ResNet:
    """Bottlenecks, most of them in the third stage."""
    return ResNet(Bottleneck, (3, 4, 23, 3), shape[0], classes)


def resnet152(shape: Sequence[int], classes: int) -> ResNet:
    """Bottlenecks, more of them in the second and third stage."""
    return ResNet(Bottleneck, (3, 8, 36, 3), shape[0], classes)


class ResNet(nn.Module):
    """Images [batch, channels, height, width] to logits [batch, classes]."""

    def __init__(
        self,
        block: type[BasicBlock | Bottleneck],
        depths: Sequence[int],
        channels: int,
        classes: int,
    ) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, 64, kernel_size=7, stride=2, padding=3, bias=False)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        wide = 64 * block.expansion
        self.layer1 = _stage(block, 64, 64, depths[0], stride=1)
        self.layer2 = _stage(block, wide, 128, depths[1], stride=2)
        self.layer3 = _stage(block, 2 * wide, 256, depths[2], stride=2)
        self.layer4 = _stage(block, 4 * wide, 512, depths[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d(1)
        self.fc = nn.Linear(8 * wide, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(images))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        logits: Tensor = self.fc(self.avgpool(x).flatten(1))
        return logits


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside the shortcut."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(channels, width, 3, stride, padding=1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, width, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        y += x if self.downsample is None else self.downsample(x)
        out: Tensor = self.relu(y)
        return out


class Bottleneck(nn.Module):
    """A 3x3 convolution between two 1x1 ones, beside the shortcut."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        wide = width * self.expansion
        self.conv1 = nn.Conv2d(channels, width, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, padding=1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = nn.Conv2d(width, wide, 1, bias=False)
        self.bn3 = nn.BatchNorm2d(wide)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = _shortcut(channels, wide, stride)

    def forward(self, x: Tensor) -> Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        y += x if self.downsample is None else self.downsample(x)
        out: Tensor = self.relu(y)
        return out


def _shortcut(channels: int, wide: int, stride: int) -> nn.Sequential | None:
    if stride == 1 and channels == wide:
        return None
    return nn.Sequential(
        nn.Conv2d(channels, wide, 1, stride, bias=False),
        nn.BatchNorm2d(wide),
    )


def _stage(
    block: type[BasicBlock | Bottleneck], channels: int, width: int, depth: int, stride: int
) -> nn.Sequential:
    first = block(channels, width, stride)
    rest = (block(width * block.expansion, width, 1) for _ in range(depth - 1))
    return nn.Sequential(first, *rest)
