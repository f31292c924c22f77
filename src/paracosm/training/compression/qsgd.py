"""Numbers rounded at random to a few levels."""

from __future__ import annotations

from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING, ClassVar

from paracosm.training.compression.codec import FLOAT, Codec, Shapes, elements
from paracosm.training.named import at_least

if TYPE_CHECKING:
    from numpy.random import Generator
    from torch import Tensor


@dataclass(frozen=True)
class QSGD(Codec):
    """C(x)_i = |x|_2 sign(x_i) xi_i, where xi_i is |x_i| / |x|_2 rounded to a multiple of 1 / s.

    It is rounded up or down at random, such that the mean is right: unbiased, with omega =
    min(b / s^2, sqrt(b) / s) for b numbers. s is `levels`; norms are those of buckets of b =
    `bucket` consecutive numbers. A message has, of each number, its sign and ceil(log2(s + 1)) bits
    (the paper's coding of variable width saves more), of each bucket 32 bits. With `feedback` it is
    divided by 1 + omega. Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD", 2017, section 3.1 and
    lemma 3.1; buckets: section 4.
    """

    name: ClassVar[str] = "qsgd"
    levels: int = 7
    bucket: int = 512
    feedback: bool = False

    def __post_init__(self) -> None:
        at_least(self, 1, "levels", "bucket")

    @property
    def omega(self) -> float:
        """The bound of the variance, relative to |x|^2."""
        return min(self.bucket / self.levels**2, sqrt(self.bucket) / self.levels)

    def bits(self, shapes: Shapes) -> tuple[int, ...]:
        total = elements(shapes)
        return (total * (1 + self.levels.bit_length()) + FLOAT * -(-total // self.bucket),)

    def decoded(self, vector: Tensor, shapes: Shapes, rng: Generator) -> Tensor:
        import numpy as np
        import torch
        from torch.nn.functional import pad

        rows = pad(vector, (0, -len(vector) % self.bucket)).view(-1, self.bucket)
        norms = rows.norm(dim=1, keepdim=True)
        # A bucket of zeros has the norm zero, whatever it is divided by.
        exact = rows.abs() / norms.where(norms > 0, 1.0) * self.levels
        drawn = torch.from_numpy(rng.random(rows.shape, np.float32))
        level = exact.floor()
        level += drawn < exact - level
        found: Tensor = (norms / self.levels * rows.sign() * level).view(-1)[: len(vector)]
        if self.feedback:
            found /= 1 + self.omega
        return found
