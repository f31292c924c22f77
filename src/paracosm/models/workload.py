"""What is trained: a module with a loss, and what a single step works on."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor, nn

__all__ = ["Loss", "Model", "Workload"]

Loss = Callable[["Tensor", "Tensor"], "Tensor"]
"""From outputs and targets of a minibatch to the mean loss, a scalar tensor."""


@dataclass(frozen=True)
class Model:
    """A module and the loss that judges its outputs, for data that come from elsewhere."""

    module: nn.Module
    loss: Loss


@dataclass
class Workload:
    """A module with what it is fed and how far off it is.

    Attributes:
        module: on the device, with the dtype of its parameters.
        inputs: positional arguments of the module.
        loss: from what the module returns to a scalar.
        examples: how many of them are in `inputs`.
    """

    module: nn.Module
    inputs: tuple[Any, ...]
    loss: Callable[[Any], Tensor]
    examples: int
