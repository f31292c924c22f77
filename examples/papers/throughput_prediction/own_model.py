"""A small network of AlexNet's shape: convolutions that compute, linear layers that weigh."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from paracosm.models import Workload


def make_model(batch: int) -> Workload:
    """Images of 3x32x32, ten classes, 5.1 MB of parameters."""
    return _workload(_layers(), batch)


def make_model_without_biases(batch: int) -> Workload:
    """The same without biases: two servers, which take weights in turn, hold 41 and 59 % of it."""
    module = _layers()
    for layer in module:
        if isinstance(layer, nn.Conv2d | nn.Linear):
            layer.bias = None
    return _workload(module, batch)


def _layers() -> nn.Sequential:
    return nn.Sequential(
        *_convolution(3, 32, pooled=True),
        *_convolution(32, 64, pooled=True),
        *_convolution(64, 96),
        *_convolution(96, 96),
        *_convolution(96, 64, pooled=True),
        nn.Flatten(),
        nn.Linear(64 * 4 * 4, 640),
        nn.ReLU(),
        nn.Linear(640, 640),
        nn.ReLU(),
        nn.Linear(640, 10),
    )


def _workload(module: nn.Module, batch: int) -> Workload:
    targets = torch.randint(10, (batch,))

    def loss(logits: Tensor) -> Tensor:
        return cross_entropy(logits, targets)

    return Workload(module, (torch.randn(batch, 3, 32, 32),), loss, batch)


def _convolution(channels: int, width: int, pooled: bool = False) -> list[nn.Module]:
    layers: list[nn.Module] = [nn.Conv2d(channels, width, 3, padding=1), nn.ReLU()]
    return [*layers, nn.MaxPool2d(2)] if pooled else layers
