"""What is trained: a module, and the loss that judges its outputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor, nn

__all__ = ["Loss", "Model"]

Loss = Callable[[Tensor, Tensor], Tensor]
"""From outputs and targets of a minibatch to the mean loss, a scalar."""


@dataclass(frozen=True)
class Model:
    """A module and its loss."""

    module: nn.Module
    loss: Loss
