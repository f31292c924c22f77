"""A table in a run's summary: what is to be read line by line, not looked at."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Table"]


@dataclass(frozen=True)
class Table:
    """Rows of text under headers.

    Attributes:
        title: what they are.
        header: one word for each column; the first column is flush left, the others right.
        rows: as many texts each.
    """

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
