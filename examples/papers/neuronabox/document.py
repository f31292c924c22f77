"""What was measured as Markdown, to stand between two marks of a page."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import cost
import figure4
import figures
import modelled
import table1
import table3

from paracosm.errors import InputError

__all__ = ["draw", "put_into", "results"]

BEGIN = "<!-- results: begin (run.py --document writes what follows) -->"
END = "<!-- results: end -->"
FIGURES, MEASURED = "figures", "measured"

DRAWN = {
    "table1": (figures.draw_table1, "Table 1: emulated over real, medians and quartiles of rounds"),
    "table3": (figures.draw_table3, "Table 3: iterations, medians and quartiles of rounds"),
    "figure4": (figures.draw_figure4, "Figure 4: what hides under the backward pass"),
}
"""By part: what draws it, and its caption. Grey is what is aimed at."""

ON_NETWORK = ("table1", "table3", "cost")

TITLES = {
    "table1": "Table 1: single collectives",
    "table3": "Table 3: training",
    "cost": "What the emulator costs",
    "modelled": "Backend mode",
    "figure4": "Figure 4: what if all-reduces took longer",
}


def results(measured: Mapping[str, Mapping[str, Any]]) -> str:
    """Return Markdown of all parts that were measured.

    Args:
        measured: by part.
    """
    parts = []
    for part, title in TITLES.items():
        if part not in measured:
            continue
        own = measured[part]
        parts.append(f"### {title}")
        quick = " Measured with --quick." if own["quick"] else ""
        where = f" {own['network']}." if part in ON_NETWORK else ""
        parts.append(f"{own['environment']}.{where}{quick}")
        if part in DRAWN:
            parts.append(f"![{DRAWN[part][1]}]({FIGURES}/{part}.png)")
        parts += [table.markdown() for table in _tables(part, measured)]
    return "\n\n".join(part.rstrip() for part in parts) + "\n"


def _tables(part: str, measured: Mapping[str, Mapping[str, Any]]) -> Sequence[Any]:
    own = measured[part]
    if part == "cost":
        return cost.tables_of(own, measured.get("table1"))
    module = {"table1": table1, "table3": table3, "modelled": modelled, "figure4": figure4}[part]
    return module.tables_of(own)


def draw(measured: Mapping[str, Mapping[str, Any]], folder: Path) -> list[Path]:
    """Draw what has a picture; return the files."""
    folder.mkdir(parents=True, exist_ok=True)
    return [
        drawn(measured[part], folder / f"{part}.png")
        for part, (drawn, _) in DRAWN.items()
        if part in measured
    ]


def put_into(page: Path, text: str, pictures: Sequence[Path], measured: Path) -> None:
    """Replace what is between the marks of a page; copy pictures and measurements beside it.

    Raises:
        InputError: the page cannot be read or lacks the marks.
    """
    try:
        old = page.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f'--document: "{page}": {error.strerror}') from None
    if old.count(BEGIN) != 1 or old.count(END) != 1 or old.index(END) < old.index(BEGIN):
        raise InputError(
            f'--document: "{page}" needs the lines "{BEGIN}" and "{END}", in this order'
        )
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n\n{text}\n{END}{after}", encoding="utf-8")
    files = {FIGURES: pictures, MEASURED: [measured / f"{part}.json" for part in TITLES]}
    for name, sources in files.items():
        folder = page.parent / name
        folder.mkdir(exist_ok=True)
        for source in sources:
            if source.is_file() and source.resolve() != (folder / source.name).resolve():
                shutil.copyfile(source, folder / source.name)
