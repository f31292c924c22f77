"""Write the tables of results into the pages that show them: benchmarks/results/*.json say which.

A page has `<!-- results of NAME -->` and `<!-- end of results -->` around the table of a file.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "benchmarks" / "results"
PLACE = re.compile(r"<!-- results of (\w+) -->.*?<!-- end of results -->", re.S)


def table(stored: dict[str, Any]) -> str:
    """Return the Markdown of a file of results: its columns, date and machine of each row."""
    more = [key for key in ("date", "machine") if any(key in row for row in stored["rows"])]
    columns = [*stored["columns"], *more]
    lines = [columns, ["---"] * len(columns)]
    lines += [[row.get(column, "") for column in columns] for row in stored["rows"]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def pages() -> dict[Path, str]:
    """Return the text that each page with tables should have.

    Raises:
        ValueError: no page has a place for a file of results.
    """
    found = dict[Path, str]()
    shown = set[str]()
    for page in sorted((ROOT / "docs").glob("*.md")):
        before = page.read_text()
        names = PLACE.findall(before)
        if names:
            found[page] = PLACE.sub(_filled, before)
            shown.update(names)
    tables = {file.stem for file in RESULTS.glob("*.json") if "columns" in _stored(file.stem)}
    if missing := tables - shown:
        raise ValueError(f"no page of docs/ shows the results of {', '.join(sorted(missing))}")
    return found


def _filled(place: re.Match[str]) -> str:
    made = table(_stored(place[1]))
    return f"<!-- results of {place[1]} -->\n\n{made}\n\n<!-- end of results -->"


def _stored(name: str) -> dict[str, Any]:
    """Return a file of results; one without columns has what a benchmark reads again."""
    stored: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text())
    return stored


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
