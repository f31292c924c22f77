"""Lines and tables on standard output: as wide as the terminal, never truncated."""

from __future__ import annotations

import contextlib
import re
import shutil
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    ProgressColumn,
    Task,
    TextColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from paracosm.results import to_json
from paracosm.units import format_duration

_WIDEST = 10_000  # of a line that goes to a file or another program, which must not be folded
_LONG = 24  # letters: longer texts may be folded, numbers are shorter and may not
_GAP = 2  # spaces between columns
_LINE = 100  # letters of a line of text, where no terminal has another width
_NARROWEST = 80
_BEFORE_UNIT = re.compile(r"(?<=\d) (?=[A-Za-z%])")


def printer() -> Callable[..., None]:
    """Return the console that prints a line or a table without markup: a path may hold [brackets]
    or :colons:.

    On a terminal a table is folded to its width, but never so far that a number is cut. Elsewhere
    a row is one line, without spaces at its end.
    """
    terminal = sys.stdout.isatty()
    width = None if terminal else _WIDEST
    console = Console(width=width, highlight=False, markup=False, emoji=False)

    def say(content: str | Table = "", style: str | None = None) -> None:
        wide = max(console.width, _minimum_width(content)) if isinstance(content, Table) else None
        if terminal:
            console.print(content, style=style, width=wide, soft_wrap=wide is None, crop=False)
            return
        with console.capture() as captured:
            console.print(content, style=style, width=wide, soft_wrap=wide is None, crop=False)
        sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())

    return say


def paragraph(text: str, label: str = "", indent: int = 0) -> str:
    """Return a text in lines as wide as the terminal, behind a label in a margin of so many spaces.

    No word is broken, as it may be a path, and no number is parted from its unit.
    """
    lines = textwrap.fill(
        _BEFORE_UNIT.sub("\0", text),
        max(_NARROWEST, shutil.get_terminal_size((_LINE, 0)).columns),
        initial_indent=label.ljust(indent),
        subsequent_indent=" " * indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return lines.replace("\0", " ")


def labelled(rows: Sequence[tuple[str, str]]) -> str:
    """Return texts below each other, each behind its label."""
    indent = max(len(label) for label, _ in rows) + _GAP
    return "\n".join(paragraph(text, label, indent) for label, text in rows)


def aligned(rows: Sequence[Sequence[str]]) -> Table:
    """Return a table; the first row has headers, ">" before those of numbers; empty: none."""
    bare = not any(rows[0])
    table = Table(
        box=None, padding=(0, _GAP, 0, 0), pad_edge=False, show_header=not bare, header_style=""
    )
    for column, header in enumerate(rows[0]):
        number, title = header.startswith(">"), header.removeprefix(">")
        longest = max(len(text) for text in (title, *(row[column] for row in rows[1:])))
        table.add_column(
            title,
            justify="right" if number else "left",
            no_wrap=longest <= _LONG,
            overflow="fold",
            min_width=min(longest, _LONG),
        )
    for row in rows[1:]:
        table.add_row(*row)
    return table


def show_result(summary: Any, json: bool, quiet: bool, show: Callable[[], None]) -> None:
    """Print a summary as JSON or with `show`, or not at all if quiet."""
    if json:
        sys.stdout.write(to_json(summary))
    elif not quiet:
        show()


def _minimum_width(table: Table) -> int:
    """Return the width below which a number would be cut."""
    return sum((column.min_width or 0) + _GAP for column in table.columns)


_REFRESH = 0.1


class _Speed(ProgressColumn):
    def __init__(self, unit: str) -> None:
        super().__init__()
        self._unit = unit

    def render(self, task: Task) -> Text:
        return Text(f"{task.speed:,.0f} {self._unit}/s" if task.speed else "", style="cyan")


@contextlib.contextmanager
def progress_bar(
    total: int | None, hidden: bool, unit: str = "updates"
) -> Iterator[Callable[[int, float | None], None]]:
    """Yield a function of the number done and the virtual time, cheap enough to call often. `total`
    is None where it is not known beforehand.
    """
    console = Console(stderr=True)
    if hidden or not console.is_terminal:
        yield lambda done, virtual_time: None
        return
    bar = Progress(
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn(unit),
        _Speed(unit),
        TimeRemainingColumn(),
        TextColumn("{task.fields[clock]}"),
        console=console,
        transient=True,
    )
    with bar:
        task = bar.add_task("", total=total, clock="")
        drawn = 0.0

        def progress(done: int, virtual_time: float | None) -> None:
            nonlocal drawn
            now = time.perf_counter()
            if now - drawn < _REFRESH and done != total:
                return
            drawn = now
            clock = "" if virtual_time is None else f"virtual time {format_duration(virtual_time)}"
            bar.update(task, completed=done, clock=clock)

        yield progress


@contextlib.contextmanager
def counter(total: int | None, hidden: bool, unit: str) -> Iterator[Callable[..., None]]:
    """Yield a function of the number done; it ignores other arguments."""
    with progress_bar(total, hidden, unit) as progress:
        yield lambda done, *_: progress(done, None)
