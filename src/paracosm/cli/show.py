"""Summaries as a person reads them, or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rich.console import Console
from rich.table import Table

from paracosm.report.figure import Figure
from paracosm.report.table import Table as Text
from paracosm.report.words import SUCCESSES, trouble, words_of
from paracosm.study.plain import to_json

__all__ = ["show_summary", "show_sweep"]


def show_summary(
    kind: str,
    summary: Mapping[str, Any],
    out: Path | None,
    json: bool,
    said: Collection[str] = (),
) -> None:
    """Print a run's key figures, and where the rest is; or the whole summary as JSON.

    Remarks that were `said` before the run are not repeated.
    """
    if json:
        sys.stdout.write(to_json(summary))
        return
    console = _console()
    words = words_of(kind)
    table = Table.grid(padding=(0, 2))
    table.add_row("status", str(summary["status"]))
    for label, write in words.FIGURES.items():
        if (text := write(summary)) is not None:
            table.add_row(_small(label), text)
    for what, how in (words.remarks(summary) | words.origins(summary)).items():
        if how not in said:
            table.add_row(what, str(how))
    console.print(table)
    for part in words.tables(summary):
        _print_table(part, console)
    if (why := trouble(kind, summary["status"], summary)) is not None:
        console.print(why, style="red", soft_wrap=True)
    if out is not None:
        console.print(f"report: {out / 'report.html'}", soft_wrap=True)


def show_sweep(kind: str, rows: Sequence[Mapping[str, Any]], out: Path, json: bool) -> None:
    """Print a line for each run of a sweep, or all summaries as JSON."""
    if json:
        sys.stdout.write(to_json(rows))
        return
    console = _console(width=None if sys.stdout.isatty() else _WIDTH)
    table = Table(box=None, padding=(0, 2, 0, 0))
    columns = [*_varied(rows), *_figures(kind, rows)]
    for header, _ in columns:
        table.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(cell(row) for _, cell in columns))
    console.print(table)
    for row in rows:
        if (why := trouble(kind, row["status"], row)) is not None:
            console.print(f"{row['point']}: {why}", style="red", soft_wrap=True)
    console.print(f"report: {out / 'report.html'}", soft_wrap=True)


def _print_table(part: Text, console: Console) -> None:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="")
    for position, word in enumerate((part.title, *part.header[1:])):
        side: Literal["left", "right"] = "right" if position else "left"
        # Names may be cut, numbers may not.
        width = max(len(row[position]) for row in part.rows) if position and part.rows else None
        table.add_column(word, justify=side, no_wrap=True, min_width=width)
    for row in part.rows:
        table.add_row(*row)
    console.print()
    console.print(table)


def _console(width: int | None = None) -> Console:
    """Return a console that prints what it is given: a path may hold [brackets] or :colons:."""
    return Console(width=width, highlight=False, markup=False, emoji=False)


_WIDTH = 160  # of a line that no terminal has to show

Column = tuple[str, Callable[[Mapping[str, Any]], str]]


def _small(label: str) -> str:
    return label[0].lower() + label[1:]


def _varied(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return a column for each argument that the sweep varies.

    Where values are too long for a table (a cluster, say), the names of the points stand for them.
    """
    if any(isinstance(value, Mapping | list) for row in rows for value in row["varied"].values()):
        return [("point", lambda row: str(row["point"]))]

    def column(key: str) -> Column:
        return key.replace("_", " "), lambda row: str(row["varied"].get(key, ""))

    return [column(key) for key in dict.fromkeys(key for row in rows for key in row["varied"])]


def _figures(kind: str, rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return a column for each key figure, but for those that go without saying."""

    def column(label: str, write: Figure) -> Column:
        return _small(label), lambda row: write(row) or ""

    varied = {key.replace("_", " ") for row in rows for key in row["varied"]}
    columns: list[Column] = []
    if any(row["status"] not in SUCCESSES for row in rows):
        columns.append(("status", lambda row: str(row["status"])))
    for label, write in words_of(kind).FIGURES.items():
        known = any(write(row) is not None for row in rows)
        if known and label != "Wall time" and _small(label) not in varied:
            columns.append(column(label, write))
    return columns
