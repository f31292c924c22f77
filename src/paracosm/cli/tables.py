"""Lines and tables on standard output: as wide as a terminal is, and nothing of them cut."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

__all__ = ["grid", "printer"]

_WIDEST = 10_000  # of a line that goes to a file or another program: it is not to be folded
_LONG = 24  # letters: longer texts may be folded, numbers are shorter and may not
_GAP = 2  # spaces between columns


def printer() -> Callable[..., None]:
    """Return what prints a line or a table as it is: a path may hold [brackets] or :colons:.

    On a terminal a table is folded to its width, but never below what its numbers take. Elsewhere
    a row is one line, without spaces at its end.
    """
    terminal = sys.stdout.isatty()
    width = None if terminal else _WIDEST
    console = Console(width=width, highlight=False, markup=False, emoji=False)

    def say(what: str | Table = "", style: str | None = None) -> None:
        wide = max(console.width, _least(what)) if isinstance(what, Table) else None
        if terminal:
            console.print(what, style=style, width=wide, soft_wrap=wide is None, crop=False)
            return
        with console.capture() as captured:
            console.print(what, style=style, width=wide, soft_wrap=wide is None, crop=False)
        sys.stdout.writelines(f"{line.rstrip()}\n" for line in captured.get().splitlines())

    return say


def grid(rows: Sequence[Sequence[str]]) -> Table:
    """Return a table; the first row has the headers, with ">" before those of numbers.

    Without headers, where all are empty, the row of headers is left out.
    """
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


def _least(table: Table) -> int:
    """Return the width below which a number would be cut."""
    return sum((column.min_width or 0) + _GAP for column in table.columns)
