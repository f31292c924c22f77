"""The page of the reproduction: checks first, then figures and tables."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from checks import Check, counts
from tables import Table

__all__ = ["Picture", "write_page"]

STYLE = """
:root { color-scheme: light dark }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums }
td, th { text-align: left; vertical-align: top; padding: .35rem .6rem;
  border-top: 1px solid #8884 }
th { border-top: 0; font-weight: 600 }
.numbers td, .numbers th { text-align: right; font-size: .85rem; padding: .35rem .5rem }
.numbers td:first-child { text-align: left } .numbers td { white-space: nowrap }
.scroll { overflow-x: auto; margin: 1rem 0 2rem }
.verdict, .where { white-space: nowrap } .verdict { font-weight: 600 }
figure { margin: 2rem 0 } img { max-width: 100%; background: white; border-radius: 4px }
.yes { color: #009e73 } .no { color: #d55e00 } .open { color: #888 }
"""
MARKS = {True: "yes", False: "no", None: "open"}


@dataclass(frozen=True)
class Picture:
    """A figure: its name, a sentence, its file."""

    name: str
    caption: str
    file: Path


def write_page(
    checks: Sequence[Check],
    pictures: Sequence[Picture],
    tables: Sequence[Table],
    setting: str,
    path: Path,
) -> None:
    """Write one self-contained HTML page."""
    path.write_text(
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        f"<title>Offline profiling, reproduced</title><style>{STYLE}</style>"
        "<h1>Offline profiling, reproduced</h1>"
        "<p>Huang, Cheng, Xu, Xiong: "
        "<i>Simulating Performance of ML Systems with Offline Profiling</i>. "
        f"Measured on {escape(setting)}</p>"
        f"<h2>Findings</h2><p>{counts(checks)}.</p>{_checks(checks)}"
        f"<h2>Figures</h2>{''.join(map(_picture, pictures))}"
        f"<h2>Tables</h2>{''.join(map(_table, tables))}</html>",
        encoding="utf-8",
    )


def _checks(checks: Sequence[Check]) -> str:
    rows = "".join(
        f'<tr><td class="verdict {MARKS[check.holds]}">{check.verdict}</td>'
        f'<td class="where">{escape(check.where)}</td><td>{escape(check.what)}</td>'
        f"<td>{escape(check.expected)}</td><td>{escape(check.found)}</td></tr>"
        for check in checks
    )
    return (
        '<div class="scroll"><table><tr><th></th><th>Where</th><th>What</th><th>Paper</th>'
        f"<th>Here</th></tr>{rows}</table></div>"
    )


def _picture(picture: Picture) -> str:
    image = base64.b64encode(picture.file.read_bytes()).decode()
    return (
        f'<figure><img alt="{escape(picture.name)}" src="data:image/png;base64,{image}">'
        f"<figcaption><b>{escape(picture.name)}.</b> {escape(picture.caption)}.</figcaption>"
        "</figure>"
    )


def _table(table: Table) -> str:
    header = "".join(f"<th>{escape(cell)}</th>" for cell in table.header)
    rows = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in table.rows
    )
    return (
        f"<p><b>{escape(table.name)}.</b> {escape(table.caption)}.</p>"
        f'<div class="scroll"><table class="numbers"><tr>{header}</tr>{rows}</table></div>'
    )
