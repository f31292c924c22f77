"""Summaries as a person reads them, or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from paracosm.study.plain import to_json
from paracosm.training import Divergence
from paracosm.units import format_duration

__all__ = ["show_summary", "show_sweep"]

_LABELS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "status": ("status", str),
    "updates": ("updates", lambda value: f"{value:,}"),
    "final_loss": ("final loss", lambda value: f"{value:.4g}"),
    "final_accuracy": ("final accuracy", lambda value: f"{value:.1%}"),
    "mean_staleness": ("mean staleness", lambda value: f"{value:.3g}"),
    "virtual_time": ("virtual time", format_duration),
    "examples_per_second": ("examples/s", lambda value: f"{value:,.0f}"),
    "wall_time": ("wall time", format_duration),
}


def show_summary(summary: Mapping[str, Any], out: Path | None, json: bool) -> None:
    """Print a run's key figures, and where the rest is; or the whole summary as JSON."""
    if json:
        sys.stdout.write(to_json(summary))
        return
    console = _console()
    table = Table.grid(padding=(0, 2))
    for key, (label, form) in _LABELS.items():
        if summary.get(key) is not None:
            table.add_row(label, form(summary[key]))
    for what, how in summary["durations"].items():
        table.add_row(what, str(how))
    table.add_row("look-ahead", str(summary["lookahead"]))
    console.print(table)
    if summary.get("divergence"):
        console.print(str(Divergence(**summary["divergence"])), style="red", soft_wrap=True)
    if out is not None:
        console.print(f"report: {out / 'report.html'}", soft_wrap=True)


def show_sweep(rows: Sequence[Mapping[str, Any]], out: Path, json: bool) -> None:
    """Print a line for each run of a sweep, or all summaries as JSON."""
    if json:
        sys.stdout.write(to_json(rows))
        return
    console = _console(width=None if sys.stdout.isatty() else _WIDTH)
    table = Table(box=None, padding=(0, 2, 0, 0))
    columns = [*_varied(rows), *_figures(rows)]
    for header, _ in columns:
        table.add_column(header, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(*(cell(row) for _, cell in columns))
    console.print(table)
    for row in rows:
        if row.get("divergence"):
            console.print(f"{row['point']}: {Divergence(**row['divergence'])}", soft_wrap=True)
    console.print(f"report: {out / 'report.html'}", soft_wrap=True)


def _console(width: int | None = None) -> Console:
    """Return a console that prints what it is given: a path may hold [brackets] or :colons:."""
    return Console(width=width, highlight=False, markup=False, emoji=False)


_WIDTH = 160  # of a line that no terminal has to show

Column = tuple[str, Callable[[Mapping[str, Any]], str]]


def _varied(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return a column for each argument that the sweep varies.

    Where values are too long for a table (a cluster, say), the names of the points stand for them.
    """
    if any(isinstance(value, Mapping | list) for row in rows for value in row["varied"].values()):
        return [("point", lambda row: str(row["point"]))]

    def column(key: str) -> Column:
        return key.replace("_", " "), lambda row: str(row["varied"].get(key, ""))

    return [column(key) for key in dict.fromkeys(key for row in rows for key in row["varied"])]


def _figures(rows: Sequence[Mapping[str, Any]]) -> list[Column]:
    """Return a column for each key figure, but for those that go without saying."""

    def column(key: str, label: str, form: Callable[[Any], str]) -> Column:
        return label, lambda row: "" if row.get(key) is None else form(row[key])

    return [
        column(key, label, form)
        for key, (label, form) in _LABELS.items()
        if key != "wall_time" and not (key == "status" and all(r["status"] == "done" for r in rows))
    ]
