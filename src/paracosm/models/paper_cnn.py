"""The convolutional network of TensorFlow's CIFAR-10 tutorial, on which the paper experiments.

Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect".
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn
from torch._subclasses.fake_tensor import is_fake

__all__ = ["paper_cnn"]


def paper_cnn(shape: Sequence[int], classes: int) -> nn.Module:
    """Return the tutorial's network for images of any size (the tutorial's: 3x24x24).

    Two convolutions of 64 5x5 filters, each with 3x3/2 max pooling and local response
    normalisation (after the pooling in the first, before it in the second), dense layers of 384
    and 192, ReLU throughout, and a linear layer to the classes. Weights are drawn from a normal
    distribution truncated at two standard deviations: 0.05 for convolutions, 0.04 for dense
    layers, 1/192 for the last. Biases are 0 in the first and last layer, else 0.1. The tutorial's
    weight decay (0.004 in the dense layers) is no part of the network and is left out.
    """
    channels, height, width = shape
    halved = (height + 1) // 2, (width + 1) // 2
    quartered = (halved[0] + 1) // 2, (halved[1] + 1) // 2
    conv1 = nn.Conv2d(channels, 64, 5, padding=2)
    conv2 = nn.Conv2d(64, 64, 5, padding=2)
    dense3 = nn.Linear(64 * quartered[0] * quartered[1], 384)
    dense4 = nn.Linear(384, 192)
    linear = nn.Linear(192, classes)
    _initialise(conv1, 0.05, 0.0)
    _initialise(conv2, 0.05, 0.1)
    _initialise(dense3, 0.04, 0.1)
    _initialise(dense4, 0.04, 0.1)
    _initialise(linear, 1 / 192, 0.0)
    return nn.Sequential(
        conv1,
        nn.ReLU(),
        _pool(height, width),
        _normalise(),
        conv2,
        nn.ReLU(),
        _normalise(),
        _pool(*halved),
        nn.Flatten(),
        dense3,
        nn.ReLU(),
        dense4,
        nn.ReLU(),
        linear,
    )


def _initialise(layer: nn.Conv2d | nn.Linear, deviation: float, bias: float) -> None:
    if not is_fake(layer.weight):  # PyTorch draws again what is too large: it looks at values
        nn.init.trunc_normal_(layer.weight, std=deviation, a=-2 * deviation, b=2 * deviation)
    assert layer.bias is not None
    nn.init.constant_(layer.bias, bias)


def _pool(height: int, width: int) -> nn.MaxPool2d:
    """Return 3x3 pooling with stride 2 and TensorFlow's SAME padding: ceil(n / 2) outputs.

    An odd size is padded by one on both sides; an even one at its end only.
    """
    return nn.MaxPool2d(3, stride=2, padding=(height % 2, width % 2), ceil_mode=True)


def _normalise() -> nn.LocalResponseNorm:
    """Return TensorFlow's lrn(depth_radius=4, bias=1, alpha=0.001/9, beta=0.75).

    TensorFlow sums squares over 2 * 4 + 1 channels, where PyTorch takes their mean: alpha times 9.
    """
    return nn.LocalResponseNorm(9, alpha=0.001, beta=0.75, k=1.0)
