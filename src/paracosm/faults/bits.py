"""Bit flips in IEEE 754 double precision numbers.

Bit 0 is the lowest of the mantissa, 51 the highest; 52 to 62 are the exponent, 63 is the sign.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.faults.model import DataFault, all_or
from paracosm.timing.distribution import Parameter

__all__ = ["BitFlip", "ExponentFlip", "SignFlip"]

_FIRST_OF_EXPONENT, _LAST_OF_EXPONENT, _SIGN = 52, 62, 63
Bits = tuple[int, int]  # first and last, both included


def _parse_bits(value: object) -> Bits:
    text = str(value).strip()
    if text == "random":
        return 0, _SIGN
    match = re.fullmatch(r"(-?\d+)(?:\s*\.\.\s*(-?\d+))?", text)
    if match is None:
        raise InputError(f'write a bit ("52"), a range ("0..51") or "random", not "{text}"')
    first = int(match[1])
    return first, first if match[2] is None else int(match[2])


def _format_bits(bits: Bits) -> str:
    if bits == (0, _SIGN):
        return "random"
    return str(bits[0]) if bits[0] == bits[1] else f"{bits[0]}..{bits[1]}"


@dataclass(frozen=True)
class BitFlip(DataFault):
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

    def corrupt(
        self, values: NDArray[np.float64], rows: NDArray[np.int64] | None, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Flip one bit of each value; see `DataFault.corrupt`."""
        return _flip(values, rows, *self.bits, rng)


@dataclass(frozen=True)
class SignFlip(DataFault):
    """The sign of each number is inverted (bit 63)."""

    name: ClassVar[str] = "signflip"

    def corrupt(
        self, values: NDArray[np.float64], rows: NDArray[np.int64] | None, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Flip the sign of each value; see `DataFault.corrupt`."""
        return _flip(values, rows, _SIGN, _SIGN, rng)


@dataclass(frozen=True)
class ExponentFlip(DataFault):
    """One bit of the exponent of each number is inverted: drawn for each, from 52 to 62."""

    name: ClassVar[str] = "exponentflip"

    def corrupt(
        self, values: NDArray[np.float64], rows: NDArray[np.int64] | None, rng: np.random.Generator
    ) -> NDArray[np.int64]:
        """Flip one exponent bit of each value; see `DataFault.corrupt`."""
        return _flip(values, rows, _FIRST_OF_EXPONENT, _LAST_OF_EXPONENT, rng)


def _flip(
    values: NDArray[np.float64],
    rows: NDArray[np.int64] | None,
    first: int,
    last: int,
    rng: np.random.Generator,
) -> NDArray[np.int64]:
    rows = all_or(rows, values)
    bits = rng.integers(first, last + 1, len(rows)).astype(np.uint64)
    # Through integers from end to end: a signalling NaN may not survive a copy as a float.
    values.view(np.uint64)[rows] ^= np.uint64(1) << bits
    return rows
