"""Summaries as a person reads them, or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from paracosm.cli.display import grid, printer
from paracosm.report.figure import Figure
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
    say, words = printer(), words_of(kind)
    facts = [("status", str(summary["status"]))]
    for label, write in words.FIGURES.items():
        if (text := write(summary)) is not None:
            facts.append((_small(label), text))
    for what, how in (words.remarks(summary) | words.origins(summary)).items():
        if how not in said:
            facts.append((what, str(how)))
    say(grid([("", ""), *facts]))
    for part in words.tables(summary):
        say()
        # The title stands over the first column.
        say(grid([(part.title, *(f">{word}" for word in part.header[1:])), *part.rows]))
    if (why := trouble(kind, summary["status"], summary)) is not None:
        say(why, style="red")
    if out is not None:
        say(f"report: {out / 'report.html'}")


def show_sweep(kind: str, rows: Sequence[Mapping[str, Any]], out: Path, json: bool) -> None:
    """Print a line for each run of a sweep, or all summaries as JSON."""
    if json:
        sys.stdout.write(to_json(rows))
        return
    say = printer()
    columns = [*_varied(rows), *_figures(kind, rows)]
    headers = [f">{header}" for header, _ in columns]
    say(grid([headers, *([cell(row) for _, cell in columns] for row in rows)]))
    for row in rows:
        if (why := trouble(kind, row["status"], row)) is not None:
            say(f"{row['point']}: {why}", style="red")
    say(f"report: {out / 'report.html'}")


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
