"""Tables as the verbs of `paracosm db` print them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.table import Table

__all__ = ["grid", "printer"]

_WIDEST = 10_000  # of a line that goes to a file or another program: it is not to be folded


def printer() -> Callable[..., None]:
    """Return what prints a line or a table as it is: a path may hold [brackets] or :colons:."""
    width = None if sys.stdout.isatty() else _WIDEST
    return Console(width=width, highlight=False, markup=False, emoji=False, soft_wrap=True).print


def grid(rows: Sequence[Sequence[str]]) -> Table:
    """Return a table; the first row has the headers, with ">" before those of numbers."""
    table = Table(box=None, padding=(0, 2, 0, 0), pad_edge=False)
    for header in rows[0]:
        number = header.startswith(">")
        table.add_column(header.removeprefix(">"), justify="right" if number else "left")
    for row in rows[1:]:
        table.add_row(*row)
    return table
