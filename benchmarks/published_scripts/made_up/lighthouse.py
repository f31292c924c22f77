"""The server that torchft's replica groups meet at, for one group, and made-up images."""

import os

import torchvision
from torchft.coordination import LighthouseServer

server = LighthouseServer(bind="127.0.0.1:0", min_replicas=1)
os.environ["TORCHFT_LIGHTHOUSE"] = server.address()


class CIFAR10(torchvision.datasets.FakeData):  # type: ignore[misc]  # not installed here
    def __init__(self, root, train=True, transform=None, download=False):  # type: ignore[no-untyped-def]
        super().__init__(48, (3, 32, 32), 10, transform)


torchvision.datasets.CIFAR10 = CIFAR10
