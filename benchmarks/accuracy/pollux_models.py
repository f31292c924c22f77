"""The model of Pollux's job cifar10, which is not one of the built-in models."""

from __future__ import annotations

from torch import nn

from paracosm.models.images import BasicBlock, ResNet

__all__ = ["resnet18_of_cifar"]


def resnet18_of_cifar(classes: int = 10) -> nn.Module:
    """Return the ResNet-18 whose stem keeps the resolution: a 3x3 convolution, no pooling.

    As in kuangliu/pytorch-cifar (models/resnet.py), which Pollux's example trains.
    """
    model = ResNet(BasicBlock, (2, 2, 2, 2), 3, classes)
    model.conv1 = nn.Conv2d(3, 64, kernel_size=3, padding=1, bias=False)
    model.maxpool = nn.Identity()  # type: ignore[assignment]  # takes and gives images
    return model
