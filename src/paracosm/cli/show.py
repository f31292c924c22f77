"""Summaries as a person reads them, or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

from paracosm.cli.display import grid, printer
from paracosm.report.kinds import view_of
from paracosm.report.view import SUCCESSES, Figure, View, trouble
from paracosm.results import Summary, to_json
from paracosm.studies import SweepRow

__all__ = ["show_summary", "show_sweep"]


def show_summary(
    summary: Summary, out: Path | None, json: bool, said: Collection[str] = ()
) -> None:
    """Print a run's key figures, and where the rest is; or the whole summary as JSON.

    Remarks that were `said` before the run are not repeated.
    """
    if json:
        sys.stdout.write(to_json(summary))
        return
    say, view = printer(), view_of(summary)
    facts = [("status", summary.status)]
    for label, write in view.figures.items():
        if (text := write(summary)) is not None:
            facts.append((_small(label), text))
    for what, how in (view.remarks(summary) | view.origins(summary)).items():
        if how not in said:
            facts.append((what, str(how)))
    say(grid([("", ""), *facts]))
    for part in view.tables(summary):
        say()
        # The title stands over the first column.
        say(grid([(part.title, *(f">{word}" for word in part.header[1:])), *part.rows]))
    if (why := trouble(view, summary)) is not None:
        say(why, style="red")
    if out is not None:
        say(f"report: {out / 'report.html'}")


def show_sweep(rows: Sequence[SweepRow], out: Path, json: bool) -> None:
    """Print a line for each run of a sweep, or all summaries as JSON."""
    if json:
        sys.stdout.write(to_json([row.to_dict() for row in rows]))
        return
    say, view = printer(), view_of(rows[0].summary)
    columns = [*_varied(rows), *_figures(view, rows)]
    headers = [f">{header}" for header, _ in columns]
    say(grid([headers, *([cell(row) for _, cell in columns] for row in rows)]))
    for row in rows:
        if (why := trouble(view, row.summary)) is not None:
            say(f"{row.point}: {why}", style="red")
    say(f"report: {out / 'report.html'}")


Column = tuple[str, Callable[[SweepRow], str]]


def _small(label: str) -> str:
    return label[0].lower() + label[1:]


def _varied(rows: Sequence[SweepRow]) -> list[Column]:
    """Return a column for each argument that the sweep varies.

    Where values are too long for a table (a cluster, say), the names of the points stand for them.
    """
    if any(isinstance(value, Mapping | list) for row in rows for value in row.varied.values()):
        return [("point", lambda row: row.point)]

    def column(key: str) -> Column:
        return key.replace("_", " "), lambda row: str(row.varied.get(key, ""))

    return [column(key) for key in dict.fromkeys(key for row in rows for key in row.varied)]


def _figures(view: View, rows: Sequence[SweepRow]) -> list[Column]:
    """Return a column for each key figure, but for those that go without saying."""

    def column(label: str, write: Figure) -> Column:
        return _small(label), lambda row: write(row.summary) or ""

    varied = {key.replace("_", " ") for row in rows for key in row.varied}
    columns: list[Column] = []
    if any(row.summary.status not in SUCCESSES for row in rows):
        columns.append(("status", lambda row: row.summary.status))
    for label, write in view.figures.items():
        known = any(write(row.summary) is not None for row in rows)
        if known and label != "Wall time" and _small(label) not in varied:
            columns.append(column(label, write))
    return columns
