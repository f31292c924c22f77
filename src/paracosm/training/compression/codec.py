"""What a codec is: how a worker's message is made smaller, and what its receiver makes of it.

A codec is a frozen dataclass whose fields are its parameters. Only what is decoded is computed, not
the bits: their number is known from the shapes of the tensors alone, since all encodings have a
fixed width, so that the times of messages depend on no value.

With error feedback what a message has left out is added to the client's next one: p = g + e, the
message is C(p), e <- p - C(p) (Karimireddy, Rebjock, Stich, Jaggi, "Error Feedback Fixes SignSGD
and other Gradient Compression Schemes", 2019, algorithm 2; here as in Vogels et al. 2019, algorithm
2, before the learning rate, so that the optimizer may be any). That converges where C is a
contraction, E |C(x) - x|^2 <= (1 - delta) |x|^2. An unbiased C with E |C(x) - x|^2 <= omega |x|^2
becomes one when it is divided by 1 + omega (Beznosikov, Horvath, Richtarik, Safaryan, "On Biased
Compression for Distributed Learning", 2023, lemma 4), which such codecs here do with feedback.

Adding one: write the class, list it in `codecs.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from math import prod
from typing import TYPE_CHECKING, Any, ClassVar

from paracosm.errors import InputError

if TYPE_CHECKING:
    from numpy.random import Generator
    from torch import Tensor

Shapes = Sequence[Sequence[int]]
"""Of the tensors that a message consists of, in the order of its flat vector."""

FLOAT = 32  # bits of a number that is sent as it is


class Codec:
    """Base of all codecs."""

    name: ClassVar[str]
    feedback: bool  # whether a client adds what was left out to its next message

    # Whether the sum of messages is as large as one of them, so that a ring can reduce them.
    # Otherwise an all-reduce gathers those of all workers at each.
    adds_up: ClassVar[bool] = False
    # Whether what a message comes to depends on those that the client sent before.
    remembers: ClassVar[bool] = False

    @property
    def depends_on_before(self) -> bool:
        """Whether a message says something of those that its client sent before."""
        return self.feedback or self.remembers

    def bits(self, shapes: Shapes) -> tuple[int, ...]:
        """Return the bits of a message, by the rounds in which an all-reduce has to send it."""
        raise NotImplementedError

    def compress(
        self, vectors: Sequence[Tensor], shapes: Shapes, rng: Generator, memory: dict[int, Any]
    ) -> list[Tensor]:
        """Return what the receiver of each of several messages decodes.

        Several are those of an all-reduce, where the codec `remembers`; otherwise it is one.

        Args:
            vectors: flat vectors, which are not changed.
            shapes: of their tensors.
            rng: of these messages.
            memory: what the codec keeps from a client's messages, or all workers', to the next.
        """
        return [self.decoded(vector, shapes, rng) for vector in vectors]

    def decoded(self, vector: Tensor, shapes: Shapes, rng: Generator) -> Tensor:
        """Return what the receiver of one message decodes, where it depends on no other."""
        raise NotImplementedError

    def aggregate(self, mean: Any) -> Any:
        """Return what is stepped against, given the weighted mean of what was decoded."""
        return mean

    def check(self, shapes: Shapes) -> None:
        """Raise InputError if it makes no sense for messages of such tensors."""

    def __str__(self) -> str:
        """Write it with all its numbers, so that a summary says what was used."""
        known = [(each, getattr(self, each.name)) for each in fields(self)]  # type: ignore[arg-type]
        shown = [
            f"{each.name}={value}"
            for each, value in known
            if type(value) is not bool or value != each.default
        ]
        return f"{self.name}({', '.join(shown)})" if shown else self.name


def elements(shapes: Shapes) -> int:
    """Return how many numbers there are in tensors of these shapes."""
    return sum(map(prod, shapes))


def as_matrix(shape: Sequence[int]) -> tuple[int, int]:
    """Return rows and columns of a tensor: a row for each output unit; one of a vector."""
    return (1, prod(shape)) if len(shape) < 2 else (shape[0], prod(shape[1:]))


def tensors_of(vector: Tensor, shapes: Shapes) -> Iterator[Tensor]:
    """Yield the tensors of a flat vector, each as one: views, no copies."""
    import torch

    return iter(torch.split(vector, [prod(shape) for shape in shapes]))


def check_share(codec: str, share: float) -> None:
    """Raise InputError unless it is a share of numbers that may be sent."""
    if not 0 < share < 1:
        raise InputError(f"{codec}: share must be above 0 and below 1, got {share:g}")


def count_of(share: float, total: int) -> int:
    """Return how many of `total` numbers a share is: rounded, at least one."""
    return max(1, round(share * total))


def index_bits(total: int) -> int:
    """Return the bits that say which of `total` numbers one is."""
    return (total - 1).bit_length()
