"""The signs of a message alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from paracosm.training.compression.codec import FLOAT, Codec, Shapes, elements, tensors_of

if TYPE_CHECKING:
    from numpy.random import Generator
    from torch import Tensor


@dataclass(frozen=True)
class SignSGD(Codec):
    """C(x) = |x|_1 / d sign(x), of each tensor, with error feedback: delta = |x|_1^2 / (d |x|_2^2).

    Karimireddy, Rebjock, Stich, Jaggi, "Error Feedback Fixes SignSGD and other Gradient Compression
    Schemes", 2019, algorithm 1 and section 4.1 (by layer, as there). With feedback=false it is
    Bernstein, Wang, Azizzadenesheli, Anandkumar, "signSGD", 2018, algorithm 3: C(x) = sign(x), and
    where several are averaged the step is against the sign of the mean, a majority vote, in which a
    tie moves nothing. The step is then the learning rate in every number, so that it has to be
    small. A message has 1 bit of each number (zero counts as positive) and, with feedback, 32 of
    each tensor.
    """

    name: ClassVar[str] = "signsgd"
    feedback: bool = True

    def bits(self, shapes: Shapes) -> tuple[int, ...]:
        return (elements(shapes) + (FLOAT * len(shapes) if self.feedback else 0),)

    def decoded(self, vector: Tensor, shapes: Shapes, rng: Generator) -> Tensor:
        found = vector.new_ones(vector.shape)
        found[vector < 0] = -1
        if self.feedback:
            for part, kept in zip(
                tensors_of(vector, shapes), tensors_of(found, shapes), strict=True
            ):
                kept *= part.abs().mean()
        return found

    def aggregate(self, mean: Any) -> Any:
        return mean if self.feedback else mean.sign()
