"""Tables and folders of data, for the benchmarks beside this file."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterable, Sequence
from pathlib import Path

__all__ = ["folder_of", "mape", "mape_of_known", "percent", "print_table", "signed"]


def folder_of(parsed: argparse.Namespace, name: str, what: str) -> Path | None:
    """Return the folder that was given, or `name` in the one that PARACOSM_DATA names.

    Where there is neither, say what is missing and return None.
    """
    if parsed.folder is not None:
        return Path(parsed.folder)
    if (data := os.environ.get("PARACOSM_DATA")) is not None:
        return Path(data) / name
    print(f"no {what}: give a folder, or set PARACOSM_DATA to the one that holds {name}")
    return None


def print_table(header: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> None:
    """Print cells in columns, the first `left` ones flush left."""
    lines = [tuple(header), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    for line in lines:
        cells = (
            cell.ljust(width) if number < left else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join(cells).rstrip())


def signed(error: float) -> str:
    """Return a relative error, "+3.1%"; "-" where it is not known (NaN)."""
    return "-" if math.isnan(error) else f"{error:+.1%}"


def percent(share: float) -> str:
    """Return a share, "3.1%"; "-" where it is not known (NaN)."""
    return "-" if math.isnan(share) else f"{share:.1%}"


def mape(errors: Iterable[float]) -> float:
    """Return the mean absolute (percentage) error of relative errors."""
    values = [abs(error) for error in errors]
    return sum(values) / len(values)


def mape_of_known(errors: Iterable[float]) -> str:
    """Return the mean absolute error of those that are known, "3.1%"; "-" where none is."""
    known = [error for error in errors if not math.isnan(error)]
    return percent(mape(known)) if known else "-"
