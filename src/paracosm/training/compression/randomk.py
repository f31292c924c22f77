"""Some numbers of a message, drawn at random."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from paracosm.training.compression.codec import (
    FLOAT,
    Codec,
    Shapes,
    check_share,
    count_of,
    elements,
)

if TYPE_CHECKING:
    from numpy.random import Generator
    from torch import Tensor

_SEED = 64  # bits that say which numbers were drawn


@dataclass(frozen=True)
class RandomK(Codec):
    """C(x) has k of the d numbers of x, drawn without replacement, times d / k, and zeros.

    So it is unbiased, with omega = d / k - 1. With `feedback` the numbers are sent as they are,
    which is a contraction with delta = k / d. k is `share` of the message. A message has 32 bits
    for each number and 64 for the seed that says which they are; in an all-reduce all workers draw
    the same, so that their messages add up (as in Vogels et al. 2019, appendix). Stich, Cordonnier,
    Jaggi, "Sparsified SGD with Memory", 2018, definition 2.1 and lemma A.1.
    """

    name: ClassVar[str] = "randomk"
    adds_up: ClassVar[bool] = True
    share: float = 0.01
    feedback: bool = False

    def __post_init__(self) -> None:
        check_share(self.name, self.share)

    def bits(self, shapes: Shapes) -> tuple[int, ...]:
        return (FLOAT * count_of(self.share, elements(shapes)) + _SEED,)

    def decoded(self, vector: Tensor, shapes: Shapes, rng: Generator) -> Tensor:
        import torch

        total = len(vector)
        count = count_of(self.share, total)
        places = torch.from_numpy(rng.choice(total, count, replace=False, shuffle=False))
        found = vector.new_zeros(total)
        found[places] = vector[places] if self.feedback else vector[places] * (total / count)
        return found
