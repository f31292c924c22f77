"""The largest numbers of a message alone."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, ClassVar

from paracosm.training.compression.codec import (
    FLOAT,
    Codec,
    Shapes,
    check_share,
    count_of,
    elements,
    index_bits,
)

if TYPE_CHECKING:
    from numpy.random import Generator
    from torch import Tensor


@dataclass(frozen=True)
class TopK(Codec):
    """C(x) has the k numbers of x of largest magnitude, and zeros: delta = k / d.

    k is `share` of the d numbers of a message or, `by_tensor`, of each tensor. Of each, a message
    has 32 bits and its place, ceil(log2 d) bits. Stich, Cordonnier, Jaggi, "Sparsified SGD with
    Memory", 2018, definition 2.1 and lemma A.1.
    """

    name: ClassVar[str] = "topk"
    share: float = 0.01
    by_tensor: bool = False
    feedback: bool = True

    def __post_init__(self) -> None:
        check_share(self.name, self.share)

    def bits(self, shapes: Shapes) -> tuple[int, ...]:
        groups = self._groups(shapes)
        return (sum(count_of(self.share, n) * (FLOAT + index_bits(n)) for n in groups),)

    def decoded(self, vector: Tensor, shapes: Shapes, rng: Generator) -> Tensor:
        import torch

        groups = self._groups(shapes)
        found = vector.new_zeros(vector.shape)
        pairs = zip(torch.split(vector, groups), torch.split(found, groups), strict=True)
        for part, kept in pairs:
            places = part.abs().topk(count_of(self.share, len(part)), sorted=False).indices
            kept[places] = part[places]
        return found

    def _groups(self, shapes: Shapes) -> list[int]:
        """Return how many numbers each vector has of which a share is sent."""
        return [prod(shape) for shape in shapes] if self.by_tensor else [elements(shapes)]
