"""The same as Markdown, to stand between two marks of a page of the documentation."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from checks import Check, counts
from page import Picture
from tables import Table

from paracosm.errors import InputError

if TYPE_CHECKING:
    from results import Results

__all__ = ["BEGIN", "END", "put_into", "write_markdown"]

BEGIN = "<!-- results: begin (run.py --document writes what follows) -->"
END = "<!-- results: end -->"


def write_markdown(
    results: Results,
    checks: Sequence[Check],
    tables: Sequence[Table],
    pictures: Sequence[Picture],
) -> str:
    """Return findings, figures and tables, pictures named as `put_into` copies them."""
    rows = [[c.verdict, c.where, c.what, c.expected, c.found] for c in checks]
    parts = [
        f"Measured on {results.setting}",
        f"{counts(checks).capitalize()}.",
        _table(["", "where", "what", "paper", "here"], rows),
        *(f"![{p.name}. {p.caption}](images/{_name(p)})" for p in pictures),
        *(f"**{t.name}.** {t.caption}.\n\n{_table(t.header, t.rows)}" for t in tables),
    ]
    return "\n\n".join(parts) + "\n"


def put_into(document: Path, text: str, pictures: Sequence[Picture]) -> None:
    """Replace what is between the marks of a page; copy the figures beside it.

    Raises:
        InputError: the page does not exist or lacks the marks.
    """
    try:
        page = document.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f'"{document}": {error.strerror}') from None
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(END) < page.index(BEGIN):
        raise InputError(f'"{document}" needs the lines "{BEGIN}" and "{END}", in this order')
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    document.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")
    images = document.parent / "images"
    images.mkdir(exist_ok=True)
    for picture in pictures:
        shutil.copyfile(picture.file, images / _name(picture))


def _name(picture: Picture) -> str:
    return f"offline-{picture.file.name}"


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
