"""Matrices of low rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from paracosm.errors import InputError
from paracosm.training.compression.codec import FLOAT, Codec, Shapes, as_matrix, tensors_of
from paracosm.training.named import at_least

if TYPE_CHECKING:
    from numpy.random import Generator
    from torch import Tensor


@dataclass(frozen=True)
class PowerSGD(Codec):
    """P = M Q, orthogonalised; Q <- M^T P; C(M) = P Q^T, for each tensor M as a matrix [n, m].

    One step of subspace iteration from the Q of the message before; the first is drawn from a
    normal distribution. In an all-reduce P is averaged over workers before it is orthogonalised,
    and then Q: two rounds, and C(M_w) = P (M_w^T P)^T, whose mean is the result. At a server each
    message has factors of its own. It has 32 r (n + m) bits of a matrix, r = `rank`; vectors, and
    matrices that would not get smaller, travel as they are, in the first round. Vogels,
    Karimireddy, Jaggi, "PowerSGD", 2019, algorithm 1; errors are those of algorithm 2 (the authors'
    program takes them from the mean instead: their sum over workers is the same).
    """

    name: ClassVar[str] = "powersgd"
    adds_up: ClassVar[bool] = True
    remembers: ClassVar[bool] = True
    rank: int = 2
    feedback: bool = True

    def __post_init__(self) -> None:
        at_least(self, 1, "rank")

    def check(self, shapes: Shapes) -> None:
        if any(map(self._is_factored, shapes)):
            return
        n, m = max(map(as_matrix, shapes), key=min)
        raise InputError(
            f"powersgd: no tensor gets smaller with rank {self.rank}: the widest matrix is "
            f"{n} x {m}, and rank (n + m) has to be below n m"
        )

    def bits(self, shapes: Shapes) -> tuple[int, ...]:
        first = second = 0
        for shape in shapes:
            n, m = as_matrix(shape)
            is_factored = self._is_factored(shape)
            first += self.rank * n if is_factored else n * m
            second += self.rank * m if is_factored else 0
        return FLOAT * first, FLOAT * second

    def compress(
        self,
        vectors: Sequence[Tensor],
        shapes: Shapes,
        rng: Generator,
        memory: dict[int, Any],
    ) -> list[Tensor]:
        import torch

        found = [vector.clone() for vector in vectors]
        tensors = zip(*(tensors_of(each, shapes) for each in found), strict=True)
        for place, (shape, parts) in enumerate(zip(shapes, tensors, strict=True)):
            if not self._is_factored(shape):
                continue
            matrices = [part.view(as_matrix(shape)) for part in parts]
            q = memory.get(place)
            if q is None:
                drawn = rng.standard_normal((as_matrix(shape)[1], self.rank), "float32")
                q = torch.from_numpy(drawn)
            mean = sum(matrix @ q for matrix in matrices) / len(matrices)
            # Only what the columns span matters, so that any way to orthogonalise them will do.
            p = torch.linalg.qr(mean).Q
            factors = [matrix.mT @ p for matrix in matrices]
            memory[place] = sum(factors) / len(factors)
            for matrix, factor in zip(matrices, factors, strict=True):
                matrix.copy_(p @ factor.mT)
        return found

    def _is_factored(self, shape: Sequence[int]) -> bool:
        n, m = as_matrix(shape)
        return self.rank * (n + m) < prod(shape)
