"""All codecs: what they make of a message, and how many bits it has.

Only what is decoded is computed, not the bits: their number is known from the shapes of the tensors
alone, since all encodings have a fixed width, so that the times of messages depend on no value.

With error feedback what a message has left out is added to the client's next one: p = g + e, the
message is C(p), e <- p - C(p) (Karimireddy, Rebjock, Stich, Jaggi, "Error Feedback Fixes SignSGD
and other Gradient Compression Schemes", 2019, algorithm 2; here as in Vogels et al. 2019, algorithm
2, before the learning rate, so that the optimizer may be any). That converges where C is a
contraction, E |C(x) - x|^2 <= (1 - delta) |x|^2. An unbiased C with E |C(x) - x|^2 <= omega |x|^2
becomes one when it is divided by 1 + omega (Beznosikov, Horvath, Richtarik, Safaryan, "On Biased
Compression for Distributed Learning", 2023, lemma 4), which such codecs here do with feedback.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from math import prod, sqrt
from typing import TYPE_CHECKING, Any, ClassVar

from paracosm.errors import InputError, unknown
from paracosm.expression import parse_expression
from paracosm.training.named import arguments_of, at_least

if TYPE_CHECKING:
    from numpy.random import Generator
    from torch import Tensor


Shapes = Sequence[Sequence[int]]
"""Of the tensors that a message consists of, in the order of its flat vector."""

FLOAT = 32  # bits of a number that is sent as it is


@dataclass(frozen=True)
class Codec:
    """Base of all codecs. Messages of before the run's first `start` updates are sent as they are.

    PyTorch's `start_powerSGD_iter`; the package of PowerSGD's authors and Tang et al., "1-bit
    Adam", 2021, begin likewise.
    """

    name: ClassVar[str]
    start: int = field(default=0, kw_only=True)

    # Whether the sum of messages is as large as one of them, so that a ring can reduce them.
    # Otherwise an all-reduce gathers those of all workers at each.
    adds_up: ClassVar[bool] = False
    # Whether the result of a message depends on those that the client sent before.
    remembers: ClassVar[bool] = False

    def __post_init__(self) -> None:
        at_least(self, 0, "start")

    @property
    def feedback(self) -> bool:
        """Whether a client adds what was left out to its next message."""
        raise NotImplementedError

    def at(self, updates: int) -> Codec:
        """Return the codec of a message that knows of so many updates."""
        return self if updates >= self.start else AS_IT_IS

    @property
    def changes(self) -> bool:
        """Whether messages are compressed otherwise at some updates than at others."""
        return self.start > 0

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
        ordered = sorted(fields(self), key=lambda each: bool(each.kw_only))
        known = [(field, getattr(self, field.name)) for field in ordered]
        shown = [
            f"{field.name}={value}"
            for field, value in known
            if value != field.default or not (type(value) is bool or field.kw_only)
        ]
        return f"{self.name}({', '.join(shown)})" if shown else self.name


@dataclass(frozen=True)
class _AsItIs(Codec):
    """C(x) = x."""

    name: ClassVar[str] = "none"
    adds_up: ClassVar[bool] = True
    feedback: bool = False

    def bits(self, shapes: Shapes) -> tuple[int, ...]:
        return (FLOAT * elements(shapes),)

    def decoded(self, vector: Tensor, shapes: Shapes, rng: Generator) -> Tensor:
        return vector


AS_IT_IS = _AsItIs()


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


@dataclass(frozen=True)
class TopK(Codec):
    """C(x) has the k numbers of x of largest magnitude, and zeros: delta = k / d.

    k is `share` of the d numbers of a message or, `by_tensor`, of each tensor. Of each, a message
    has 32 bits and its place, ceil(log2 d) bits. Stich, Cordonnier, Jaggi, "Sparsified SGD with
    Memory", 2018, definitions 2.1 and 2.2.

    In the four quarters of `warmup` updates the share is its power of 1/5, 2/5, 3/5, 4/5: 0.25,
    0.063, 0.016, 0.004 and then 0.001. Lin, Han, Mao, Wang, Dally, "Deep Gradient Compression",
    2018, section 3.3 (four epochs), as in its authors' code.
    """

    name: ClassVar[str] = "topk"
    share: float = 0.01
    by_tensor: bool = False
    feedback: bool = True
    warmup: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.name, self.share)
        at_least(self, 0, "warmup")

    def at(self, updates: int) -> Codec:
        made = updates - self.start
        if not 0 <= made < self.warmup:
            return super().at(updates)
        quarter = 4 * made // self.warmup
        return replace(self, share=self.share ** ((quarter + 1) / 5), start=0, warmup=0)

    @property
    def changes(self) -> bool:
        return self.warmup > 0 or super().changes

    def bits(self, shapes: Shapes) -> tuple[int, ...]:
        groups = self._groups(shapes)
        return (sum(count_of(self.share, n) * (FLOAT + index_bits(n)) for n in groups),)

    def decoded(self, vector: Tensor, shapes: Shapes, rng: Generator) -> Tensor:
        import torch

        groups = self._groups(shapes)
        tensor = vector.new_zeros(vector.shape)
        pairs = zip(torch.split(vector, groups), torch.split(tensor, groups), strict=True)
        for part, kept in pairs:
            places = part.abs().topk(count_of(self.share, len(part)), sorted=False).indices
            kept[places] = part[places]
        return tensor

    def _groups(self, shapes: Shapes) -> list[int]:
        """Return how many numbers each vector has of which a share is sent."""
        return [prod(shape) for shape in shapes] if self.by_tensor else [elements(shapes)]


_SEED = 64  # bits that say which numbers were drawn


@dataclass(frozen=True)
class RandomK(Codec):
    """C(x) has k of the d numbers of x, drawn without replacement, times d / k, and zeros.

    So it is unbiased, with omega = d / k - 1. With `feedback` the numbers are sent as they are,
    which is a contraction with delta = k / d. k is `share` of the message. A message has 32 bits
    for each number and 64 for the seed that says which they are; in an all-reduce all workers draw
    the same, so that their messages add up (as in Vogels et al. 2019, appendix). Stich, Cordonnier,
    Jaggi, "Sparsified SGD with Memory", 2018, definitions 2.1 and 2.2.
    """

    name: ClassVar[str] = "randomk"
    adds_up: ClassVar[bool] = True
    share: float = 0.01
    feedback: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        check_share(self.name, self.share)

    def bits(self, shapes: Shapes) -> tuple[int, ...]:
        return (FLOAT * count_of(self.share, elements(shapes)) + _SEED,)

    def decoded(self, vector: Tensor, shapes: Shapes, rng: Generator) -> Tensor:
        import torch

        total = len(vector)
        count = count_of(self.share, total)
        places = torch.from_numpy(rng.choice(total, count, replace=False, shuffle=False))
        tensor = vector.new_zeros(total)
        tensor[places] = vector[places] if self.feedback else vector[places] * (total / count)
        return tensor


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
        super().__post_init__()
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
        tensor: Tensor = (norms / self.levels * rows.sign() * level).view(-1)[: len(vector)]
        if self.feedback:
            tensor /= 1 + self.omega
        return tensor


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
        tensor = vector.new_ones(vector.shape)
        tensor[vector < 0] = -1
        if self.feedback:
            for part, kept in zip(
                tensors_of(vector, shapes), tensors_of(tensor, shapes), strict=True
            ):
                kept *= part.abs().mean()
        return tensor

    def aggregate(self, mean: Any) -> Any:
        return mean if self.feedback else mean.sign()


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
        tensor = vector.new_empty(vector.shape)
        for shape, part, kept in zip(
            shapes, tensors_of(vector, shapes), tensors_of(tensor, shapes), strict=True
        ):
            rows = part.view(as_matrix(shape))
            is_positive = rows >= 0
            positive = is_positive.sum(1, keepdim=True)
            high = rows.clamp(min=0).sum(1, keepdim=True) / positive.clamp(min=1)
            low = rows.clamp(max=0).sum(1, keepdim=True) / (rows.shape[1] - positive).clamp(min=1)
            kept.view_as(rows).copy_(high.where(is_positive, low))
        return tensor


@dataclass(frozen=True)
class PowerSGD(Codec):
    """P = M Q, orthogonalised; Q <- M^T P; C(M) = P Q^T, for each tensor M as a matrix [n, m].

    One step of subspace iteration from the Q of the message before; the first is drawn from a
    normal distribution. In an all-reduce P is averaged over workers before it is orthogonalised,
    and then Q: two rounds, and C(M_w) = P (M_w^T P)^T, whose mean is the result. At a server each
    message has factors of its own. It has 32 r (n + m) bits of a matrix, r = `rank`; vectors, and
    matrices that would not get smaller, travel as they are, in the first round. Vogels,
    Karimireddy, Jaggi, "PowerSGD", 2019, algorithm 1; errors are those of algorithm 2 (the program
    of the paper and PyTorch's hook take them from the mean: their sum over workers is the same).
    """

    name: ClassVar[str] = "powersgd"
    adds_up: ClassVar[bool] = True
    remembers: ClassVar[bool] = True
    rank: int = 2
    feedback: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
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
        self, vectors: Sequence[Tensor], shapes: Shapes, rng: Generator, memory: dict[int, Any]
    ) -> list[Tensor]:
        import torch

        compressed = [vector.clone() for vector in vectors]
        tensors = zip(*(tensors_of(tensor, shapes) for tensor in compressed), strict=True)
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
        return compressed

    def _is_factored(self, shape: Sequence[int]) -> bool:
        n, m = as_matrix(shape)
        return self.rank * (n + m) < prod(shape)


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


CODECS: Mapping[str, type[Codec]] = {
    codec.name: codec for codec in (TopK, RandomK, QSGD, SignSGD, OneBit, PowerSGD, FP16, BF16)
}


def parse_codec(text: str) -> Codec:
    """Read a codec with its parameters: `topk(0.01)`, `topk(0.01, feedback=false)`, `fp16`.

    An InputError names the codec or parameter that is not known, with the nearest one, or the value
    that a parameter cannot have.
    """
    name, positional, named = parse_expression(text, "codec")
    if name not in CODECS:
        raise unknown("codec", name, CODECS)
    return CODECS[name](**arguments_of(CODECS[name], name, positional, named))
