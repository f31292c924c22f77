"""Effects of faults: on numbers in memory (data faults), on a processor, or on messages."""

import re
from abc import ABC, abstractmethod
from dataclasses import MISSING, dataclass, fields
from math import inf, isfinite
from typing import Any, ClassVar, cast

import numpy as np

from paracosm.arrays import Floats, Ints
from paracosm.errors import InputError
from paracosm.timing.distribution import DURATION, Parameter, inside
from paracosm.units import format_number, parse_number

Indices = Ints


class FaultModel(ABC):
    """The effect of a fault, wherever and whenever it occurs.

    Subclasses are frozen dataclasses. `name` and `parameters` (one per field, in order) define
    their text: `str(model)` is `name(argument, ...)` and parses back to an equal one.
    """

    name: ClassVar[str]
    parameters: ClassVar[dict[str, Parameter]] = {}

    def __str__(self) -> str:
        pairs = zip(fields(cast(Any, self)), self.parameters.values(), strict=True)
        arguments = [
            kind.format(getattr(self, field.name))
            for field, kind in pairs
            if field.default is MISSING or getattr(self, field.name) != field.default
        ]
        return f"{self.name}({', '.join(arguments)})" if arguments else self.name


class DataFault(FaultModel):
    """A transient fault of memory: some numbers change, once, silently."""

    least_components: ClassVar[int] = 1  # with fewer, the fault changes nothing

    def corrupt(self, values: Floats, rows: Indices | None, rng: np.random.Generator) -> Indices:
        """Change `values` in place, shape (n,), at the indices `rows` (None: at all of them).

        Returns the changed indices, shape (k,). A value may become infinite or NaN, or, by chance,
        stay as it was.
        """
        touched = np.arange(len(values), dtype=np.int64) if rows is None else rows
        self._change(values, touched, rng)
        return touched

    @abstractmethod
    def _change(self, values: Floats, rows: Indices, rng: np.random.Generator) -> None: ...


class ProcessorFault(FaultModel):
    """A fault of one processor, worker or server, for `duration` seconds (inf: to the run's end).

    Raises:
        InputError: a duration that is not above 0.
    """

    duration: float

    def __post_init__(self) -> None:
        if not self.duration > 0:
            raise InputError(f"{self.name}: duration must be above 0, not {self.duration}")


_FIRST_OF_EXPONENT, _LAST_OF_EXPONENT, _SIGN = 52, 62, 63
Bits = tuple[int, int]  # first and last, both included


def _parse_bits(value: object) -> Bits:
    text = str(value).strip()
    if text == "random":
        return 0, _SIGN
    match = re.fullmatch(r"(-?\d{1,18})(?:\s*\.\.\s*(-?\d{1,18}))?", text)
    if match is None:
        raise InputError(f'write a bit ("52"), a range ("0..51") or "random", not "{text}"')
    first = int(match[1])
    return first, first if match[2] is None else int(match[2])


def _format_bits(bits: Bits) -> str:
    if bits == (0, _SIGN):
        return "random"
    return str(bits[0]) if bits[0] == bits[1] else f"{bits[0]}..{bits[1]}"


class _Flip(DataFault):
    bits: Bits

    def _change(self, values: Floats, rows: Indices, rng: np.random.Generator) -> None:
        first, last = self.bits
        bits = rng.integers(first, last + 1, len(rows)).astype(np.uint64)
        # Through integers from end to end: a signalling NaN may not survive a copy as a float.
        values.view(np.uint64)[rows] ^= np.uint64(1) << bits


@dataclass(frozen=True)
class BitFlip(_Flip):
    """One bit of each number is inverted: drawn for each, from the first to the last of `bits`.

    Flipping a mantissa bit changes a number by less than a factor of 2, an exponent bit k by the
    factor 2^(+-2^(k - 52)), up to infinity or NaN; bit 63 changes its sign.

    Raises:
        InputError: bits outside 0..63, or in the wrong order.
    """

    bits: Bits
    name: ClassVar[str] = "bitflip"
    parameters: ClassVar[dict[str, Parameter]] = {"bits": Parameter(_parse_bits, _format_bits)}

    def __post_init__(self) -> None:
        first, last = self.bits
        for bit in self.bits:
            if not 0 <= bit <= _SIGN:
                raise InputError(f"bitflip: a double has bits 0 to 63, not {bit}")
        if first > last:
            raise InputError(f"bitflip: write the lower bit first, {last}..{first}")


@dataclass(frozen=True)
class SignFlip(_Flip):
    """The sign of each number is inverted (bit 63)."""

    name: ClassVar[str] = "signflip"
    bits = (_SIGN, _SIGN)


@dataclass(frozen=True)
class ExponentFlip(_Flip):
    """One bit of the exponent of each number is inverted: drawn for each, from 52 to 62."""

    name: ClassVar[str] = "exponentflip"
    bits = (_FIRST_OF_EXPONENT, _LAST_OF_EXPONENT)


_SIGNED = Parameter(lambda value: parse_number(value, signed=True), format_number)


@dataclass(frozen=True)
class UniformPerturbation(DataFault):
    """x_i <- x_i + r_i with r_i uniform in (low, high), drawn for each component.

    Source: Coleman and Sosonkina, "Simulation Framework for Asynchronous Iterative Methods",
    eq. 22, where low = -epsilon and high = epsilon; their figure 11 has epsilon = 100, "which may
    be reflective of an exponent or sign bit flip".

    Raises:
        InputError: a bound that is not finite, or low not below high.
    """

    low: float
    high: float
    name: ClassVar[str] = "uniform"
    parameters: ClassVar[dict[str, Parameter]] = {"low": _SIGNED, "high": _SIGNED}

    def __post_init__(self) -> None:
        if not (isfinite(self.low) and isfinite(self.high)):
            raise InputError(
                f"uniform: low and high must be finite, not {self.low:g} and {self.high:g}"
            )
        if not self.low < self.high:
            raise InputError(f"uniform: low ({self.low:g}) must be below high ({self.high:g})")

    def _change(self, values: Floats, rows: Indices, rng: np.random.Generator) -> None:
        uniform = inside(rng.random(len(rows)))
        # Not low + (high - low) u: the difference of two large bounds may overflow.
        added = self.low * (1 - uniform) + self.high * uniform
        with np.errstate(over="ignore", invalid="ignore"):
            values[rows] += added


@dataclass(frozen=True)
class Shuffle(DataFault):
    """The components are permuted at random: the norm of the vector stays as it was.

    Source: Elliott, Hoemmen and Mueller, "A Numerical Soft Fault Model for Iterative Linear
    Solvers", HPDC 2015.
    """

    name: ClassVar[str] = "shuffle"
    least_components: ClassVar[int] = 2

    def _change(self, values: Floats, rows: Indices, rng: np.random.Generator) -> None:
        values[rows] = values[rng.permutation(rows)]


@dataclass(frozen=True)
class Stop(ProcessorFault):
    """The processor does nothing for `duration` seconds, then restarts; by default it never does.

    The update that it was computing is lost: it restarts by reading x again. A worker likewise
    loses its gradient; for stops of servers see `paracosm.training.failures.recovery`.
    """

    duration: float = inf
    name: ClassVar[str] = "stop"
    parameters: ClassVar[dict[str, Parameter]] = {"duration": DURATION}


@dataclass(frozen=True)
class Slow(ProcessorFault):
    """For `duration` seconds, computing takes the node `factor` times as long.

    Computations across a boundary of that time are slowed for the part within.

    Raises:
        InputError: a factor that is not above 1.
    """

    factor: float
    duration: float = inf
    name: ClassVar[str] = "slow"
    parameters: ClassVar[dict[str, Parameter]] = {
        "factor": Parameter(
            lambda value: parse_number(str(value).strip().removesuffix("x")),
            lambda value: f"{format_number(value)}x",
        ),
        "duration": DURATION,
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 < self.factor < inf:
            raise InputError(f"slow: factor must be above 1 and finite, not {self.factor:g}")


def _parse_percent(value: object) -> float:
    text = str(value).strip()
    if not text.endswith("%"):
        raise InputError(f'write a share in percent, such as "1%", not "{text}"')
    return parse_number(text[:-1])


@dataclass(frozen=True)
class Lose(FaultModel):
    """For `duration` seconds, each message is lost with a chance of `percent` in 100.

    A lost message still takes its time on the network.

    Raises:
        InputError: a percentage that is not above 0 and at most 100, or a duration that is not
            above 0.
    """

    percent: float
    duration: float = inf
    name: ClassVar[str] = "lose"
    parameters: ClassVar[dict[str, Parameter]] = {
        "share": Parameter(_parse_percent, lambda value: f"{format_number(value)}%"),
        "duration": DURATION,
    }

    def __post_init__(self) -> None:
        if not 0 < self.percent <= 100:
            raise InputError(f"lose: a share is above 0% and at most 100%, not {self.percent:g}%")
        if not self.duration > 0:
            raise InputError(f"lose: duration must be above 0, not {self.duration}")


@dataclass(frozen=True)
class Stale(ProcessorFault):
    """For `duration` seconds the processor writes values computed from the x at the fault's begin.

    It reads x when the fault begins and not again until it ends, so that every update in between
    overwrites the components with the same stale values.
    """

    duration: float
    name: ClassVar[str] = "stale"
    parameters: ClassVar[dict[str, Parameter]] = {"duration": DURATION}


MODELS: dict[str, type[FaultModel]] = {
    model.name: model
    for model in (
        *(UniformPerturbation, BitFlip, SignFlip, ExponentFlip, Shuffle),
        *(Stop, Stale, Slow, Lose),
    )
}
