"""CIFAR-10 and MNIST as a script finds them, of made-up images."""

import os

import torchvision

COUNT = 6 * max(8, int(os.environ["WORLD_SIZE"]))  # images: a few batches of each rank


class CIFAR10(torchvision.datasets.FakeData):  # type: ignore[misc]  # not installed here
    def __init__(self, root, train=True, transform=None, download=False):  # type: ignore[no-untyped-def]
        super().__init__(COUNT, (3, 32, 32), 10, transform)


class MNIST(torchvision.datasets.FakeData):  # type: ignore[misc]
    def __init__(self, root, train=True, transform=None, download=False):  # type: ignore[no-untyped-def]
        super().__init__(COUNT, (1, 28, 28), 10, transform)


torchvision.datasets.CIFAR10, torchvision.datasets.MNIST = CIFAR10, MNIST
