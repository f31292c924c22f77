"""Tables, as Markdown, and numbers as they stand in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

__all__ = ["Table", "apart", "middle", "milliseconds", "quartiles", "size_of", "spread"]


@dataclass(frozen=True)
class Table:
    """A table.

    Attributes:
        title: a sentence.
        header: names of the columns.
        rows: as many cells each.
        note: what to know about it.
    """

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    note: str = ""

    def markdown(self) -> str:
        """Return it with columns of equal width, so that it can be read as it is, too."""
        lines = [self.header, *self.rows]
        wide = [max(len(line[place]) for line in lines) for place in range(len(self.header))]
        written = [
            "| " + " | ".join(cell.ljust(w) for cell, w in zip(line, wide, strict=True)) + " |"
            for line in lines
        ]
        written.insert(1, "|" + "|".join("-" * (w + 2) for w in wide) + "|")
        note = f"\n{self.note}\n" if self.note else ""
        return f"**{self.title}**\n\n" + "\n".join(written) + f"\n{note}"


def middle(values: Sequence[float]) -> float:
    """Return the median."""
    return float(np.median(values))


def quartiles(values: Sequence[float]) -> tuple[float, float]:
    """Return the first and the third quartile."""
    low, high = np.quantile(values, (0.25, 0.75))
    return float(low), float(high)


def apart(ratios: Sequence[float]) -> str:
    """Return the median of ratios and their quartiles as percentages above or below 1."""
    return f"{_percent(middle(ratios))} % ({spread(ratios)})"


def spread(ratios: Sequence[float]) -> str:
    """Return the quartiles of ratios as percentages above or below 1; nothing of none."""
    if not ratios:
        return ""
    low, high = quartiles(ratios)
    return f"{_percent(low)} to {_percent(high)}"


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f}"


def milliseconds(seconds: float) -> str:
    """Return three digits or more: "0.435", "59.0", "470"."""
    value = 1e3 * seconds
    return f"{value:.3f}" if value < 10 else f"{value:.1f}" if value < 100 else f"{value:.0f}"


def size_of(count: int) -> str:
    """Return "32 kB", of 1,024 bytes, as the paper counts."""
    return f"{count >> 20} MB" if count >= 1 << 20 else f"{count >> 10} kB"
