"""One bit for each number, and two values for each output unit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from paracosm.training.compression.codec import (
    FLOAT,
    Codec,
    Shapes,
    as_matrix,
    elements,
    tensors_of,
)

if TYPE_CHECKING:
    from numpy.random import Generator
    from torch import Tensor


@dataclass(frozen=True)
class OneBit(Codec):
    """C(x)_i is the mean of those numbers of its row that have the sign of x_i (zero: positive).

    These are the values of least squared error. Rows are the weights into one output unit (columns
    in the paper, whose layers are W^T v + a), a vector is one row. A message has 1 bit of each
    number and 64 of each row. Seide, Fu, Droppo, Li, Yu, "1-Bit Stochastic Gradient Descent and
    its Application to Data-Parallel Distributed Training of Speech DNNs", 2014, section 3.
    """

    name: ClassVar[str] = "one-bit"
    feedback: bool = True

    def bits(self, shapes: Shapes) -> tuple[int, ...]:
        rows = sum(as_matrix(shape)[0] for shape in shapes)
        return (elements(shapes) + 2 * FLOAT * rows,)

    def decoded(self, vector: Tensor, shapes: Shapes, rng: Generator) -> Tensor:
        found = vector.new_empty(vector.shape)
        for shape, part, kept in zip(
            shapes, tensors_of(vector, shapes), tensors_of(found, shapes), strict=True
        ):
            rows = part.view(as_matrix(shape))
            is_positive = rows >= 0
            positive = is_positive.sum(1, keepdim=True)
            high = rows.clamp(min=0).sum(1, keepdim=True) / positive.clamp(min=1)
            low = rows.clamp(max=0).sum(1, keepdim=True) / (rows.shape[1] - positive).clamp(min=1)
            kept.view_as(rows).copy_(high.where(is_positive, low))
        return found
