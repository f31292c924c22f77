"""What a training step works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["Workload"]


@dataclass
class Workload:
    """A module with what it is fed and how far off it is.

    Attributes:
        module: on the device, with the dtype of its parameters.
        inputs: positional arguments of the module.
        loss: from what the module returns to a scalar.
        examples: how many of them are in `inputs`.
    """

    module: torch.nn.Module
    inputs: tuple[Any, ...]
    loss: Callable[[Any], torch.Tensor]
    examples: int
