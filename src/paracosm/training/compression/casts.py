"""Numbers of half the width."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from paracosm.training.compression.codec import Codec, Shapes, elements

if TYPE_CHECKING:
    from numpy.random import Generator
    from torch import Tensor


@dataclass(frozen=True)
class FP16(Codec):
    """C(x)_i is x_i rounded to IEEE 754 binary16: 11 significant bits, 16 in all.

    Numbers beyond 65,504 become infinite and those below 3e-8 zero. They add up in an all-reduce,
    where sums are taken here with full width.
    """

    name: ClassVar[str] = "fp16"
    adds_up: ClassVar[bool] = True
    feedback: bool = False

    def bits(self, shapes: Shapes) -> tuple[int, ...]:
        return (16 * elements(shapes),)

    def decoded(self, vector: Tensor, shapes: Shapes, rng: Generator) -> Tensor:
        return vector.half().float()


@dataclass(frozen=True)
class BF16(FP16):
    """C(x)_i is x_i rounded to bfloat16: 8 significant bits, 16 in all, the range of float32.

    Rounded to nearest, ties to even (Kalamkar et al., "A Study of BFLOAT16 for Deep Learning
    Training", 2019). They add up in an all-reduce, where sums are taken here with full width.
    """

    name: ClassVar[str] = "bf16"

    def decoded(self, vector: Tensor, shapes: Shapes, rng: Generator) -> Tensor:
        return vector.bfloat16().float()
