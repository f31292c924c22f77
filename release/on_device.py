"""A model for `paracosm train` that computes gradients on the device that CHECKED_DEVICE names."""

import os

import torch
from torch import Tensor, nn
from torch.func import functional_call

DEVICE = torch.device(os.environ["CHECKED_DEVICE"])


class OnDevice(nn.Module):
    """A module whose parameters are on the host, where they are updated, and computed with on the
    device, to which each call copies them."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module

    def forward(self, inputs: Tensor) -> Tensor:
        copies = {name: tensor.to(DEVICE) for name, tensor in self.module.named_parameters()}
        outputs: Tensor = functional_call(self.module, copies, inputs.to(DEVICE))
        return outputs.cpu()


def net(shape: tuple[int, ...], classes: int) -> nn.Module:
    """Return a network for images of digits."""
    pixels = torch.Size(shape).numel()
    layers = (nn.Flatten(), nn.Linear(pixels, 64), nn.ReLU(), nn.Linear(64, classes))
    return OnDevice(nn.Sequential(*layers))
