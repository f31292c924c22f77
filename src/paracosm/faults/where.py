"""Where a fault strikes: which components, or which processor."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from paracosm.errors import InputError
from paracosm.units import format_number

__all__ = [
    "Count",
    "OnProcessor",
    "Rows",
    "Share",
    "Where",
    "choose_components",
    "choose_processor",
]


@dataclass(frozen=True)
class Share:
    """`percent` of the components, chosen at random, rounded to a whole number, at least one."""

    percent: float

    def __post_init__(self) -> None:
        if not 0 < self.percent <= 100:
            raise InputError(
                f"on: a share must be above 0% and at most 100%, not {self.percent:g}%"
            )

    def __str__(self) -> str:
        return f"{format_number(self.percent)}%"


@dataclass(frozen=True)
class Count:
    """`number` components, chosen at random."""

    number: int

    def __post_init__(self) -> None:
        if self.number < 1:
            raise InputError(f"on: at least 1 component, not {self.number}")

    def __str__(self) -> str:
        return f"{self.number} component{'s' if self.number > 1 else ''}"


@dataclass(frozen=True)
class Rows:
    """The components of the rows `first` to `last`, both included, counted from 0."""

    first: int
    last: int

    def __post_init__(self) -> None:
        if self.first < 0:
            raise InputError(f"on: rows count from 0, not from {self.first}")
        if self.last < self.first:
            raise InputError(f"on: write the lower row first, rows {self.last}-{self.first}")

    def __str__(self) -> str:
        if self.first == self.last:
            return f"row {self.first}"
        return f"rows {self.first}-{self.last}"


@dataclass(frozen=True)
class OnProcessor:
    """The processor `index`, counted from 0; for a data fault the components of its block."""

    index: int

    def __post_init__(self) -> None:
        if self.index < 0:
            raise InputError(f"on: processors count from 0, not from {self.index}")

    def __str__(self) -> str:
        return f"processor {self.index}"


Where = Share | Count | Rows | OnProcessor


def choose_components(
    where: Where | None,
    size: int,
    rng: np.random.Generator,
    *,
    rows: NDArray[np.int64] | None = None,
    owned: NDArray[np.int64] | None = None,
) -> NDArray[np.int64] | None:
    """Return the indices of the values that a data fault strikes, ascending; None: all `size`.

    Args:
        where: as in `Fault.where`.
        size: how many values there are: n for x and b, the non-zeros for A, a message's length.
        rng: the fault's own generator.
        rows: the row of each value, shape (size,); None where value i belongs to row i.
        owned: the rows of the processor of an `OnProcessor`.

    More components than there are means all: a halo message may be short. The result is empty when
    none of the values belongs to the rows or the processor asked for.
    """
    match where:
        case None:
            return None
        case Share(percent):
            return _sample(max(1, round(size * percent / 100)), size, rng)
        case Count(number):
            return _sample(number, size, rng)
        case Rows(first, last):
            if rows is None:
                return np.arange(min(first, size), min(last + 1, size), dtype=np.int64)
            return np.flatnonzero((rows >= first) & (rows <= last))
        case OnProcessor():
            if owned is None:
                raise TypeError("the rows of the processor are needed: owned=")
            return np.sort(owned) if rows is None else np.flatnonzero(np.isin(rows, owned))


def choose_processor(where: Where | None, processors: int, rng: np.random.Generator) -> int:
    """Return the processor that a fault strikes: that of an `OnProcessor`, or a random one.

    For a fault in halo messages it is the one whose message is corrupted.
    """
    return where.index if isinstance(where, OnProcessor) else int(rng.integers(processors))


def _sample(number: int, size: int, rng: np.random.Generator) -> NDArray[np.int64]:
    return np.sort(rng.choice(size, min(number, size), replace=False, shuffle=False))
