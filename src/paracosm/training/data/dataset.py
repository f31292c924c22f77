"""A data set: examples to train on and examples to test on, held in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["DataSet"]


@dataclass(frozen=True)
class DataSet:
    """Training and test examples; the first axis of every tensor counts examples."""

    name: str
    train_x: Tensor
    train_y: Tensor
    test_x: Tensor
    test_y: Tensor
    classes: int  # 0 where the targets are no class labels

    @property
    def input_shape(self) -> tuple[int, ...]:
        """The shape of one example."""
        return tuple(self.train_x.shape[1:])

    @property
    def classification(self) -> bool:
        """Whether the targets are class labels."""
        return not torch.is_floating_point(self.train_y)
