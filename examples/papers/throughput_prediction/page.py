"""Findings and figures as Markdown, to stand between two marks of a page, and tables beside it."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from finding import Finding, counts

from paracosm.errors import InputError

__all__ = ["BEGIN", "END", "Picture", "Table", "put_into", "write_markdown", "write_tables"]

BEGIN = "<!-- results: begin (reproduce.py --document writes what follows) -->"
END = "<!-- results: end -->"
IMAGES = "figures"
TABLES = "tables.md"


@dataclass(frozen=True)
class Picture:
    """A figure: its name, a sentence, its file."""

    name: str
    caption: str
    file: Path


@dataclass(frozen=True)
class Table:
    """A table: its title, the names of its columns, its rows."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]


def write_markdown(findings: Sequence[Finding], pictures: Sequence[Picture], setting: str) -> str:
    """Return what came out in short and the figures, named as `put_into` copies them."""
    parts = [
        setting,
        f"{counts(findings).capitalize()}. Each of them, and all numbers: [{TABLES}]({TABLES}).",
        *(f"![{p.name}]({IMAGES}/{p.file.name})\n\n**{p.name}.** {p.caption}." for p in pictures),
    ]
    return "\n\n".join(parts) + "\n"


def write_tables(findings: Sequence[Finding], tables: Sequence[Table]) -> str:
    """Return the page of all findings and of the numbers behind the figures."""
    rows = [
        [finding.verdict, finding.where, finding.what, finding.expected, finding.found]
        for finding in findings
    ]
    parts = [
        "# Throughput prediction: findings and numbers",
        _table(["", "where", "what", "paper", "here"], rows),
        *(f"**{table.title}**\n\n{_table(table.header, table.rows)}" for table in tables),
    ]
    return "\n\n".join(parts) + "\n"


def put_into(document: Path, text: str, tables: str, pictures: Sequence[Picture]) -> None:
    """Replace what is between the marks of a page; write tables and figures beside it.

    Raises:
        InputError: the page cannot be read or lacks the marks.
    """
    try:
        page = document.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f'--document: "{document}": {error.strerror}') from None
    if page.count(BEGIN) != 1 or page.count(END) != 1 or page.index(END) < page.index(BEGIN):
        raise InputError(
            f'--document: "{document}" needs the lines "{BEGIN}" and "{END}", in this order'
        )
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    document.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")
    (document.parent / TABLES).write_text(tables, encoding="utf-8")
    images = document.parent / IMAGES
    images.mkdir(exist_ok=True)
    for picture in pictures:
        shutil.copyfile(picture.file, images / picture.file.name)


def _table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(cell.replace('|', '/') for cell in line)} |" for line in lines)
