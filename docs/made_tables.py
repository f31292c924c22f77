"""Write the tables of results into the pages that show them: benchmarks/results/*.json say which.

A page has `<!-- results -->` and `<!-- end of results -->` around its table.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
BEGIN, END = "<!-- results -->", "<!-- end of results -->"


def table(stored: dict[str, Any]) -> str:
    """Return the Markdown of a file of results: its columns, date and machine of each row."""
    more = [key for key in ("date", "machine") if any(key in row for row in stored["rows"])]
    columns = [*stored["columns"], *more]
    lines = [columns, ["---"] * len(columns)]
    lines += [[row.get(column, "") for column in columns] for row in stored["rows"]]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def pages() -> dict[Path, str]:
    """Return the text that each page with a table should have.

    Raises:
        ValueError: a page has no place for its table.
    """
    found = {}
    for file in sorted((ROOT / "benchmarks" / "results").glob("*.json")):
        stored = json.loads(file.read_text())
        if "columns" not in stored:  # measurements that a benchmark reads again, no table
            continue
        page = ROOT / "docs" / f"{file.stem}.md"
        before, begin, rest = page.read_text().partition(BEGIN)
        _, end, after = rest.partition(END)
        if not (begin and end):
            raise ValueError(f"{page}: no {BEGIN} and {END}")
        made = table(stored)
        found[page] = f"{before}{begin}\n\n{made}\n\n{end}{after}"
    return found


if __name__ == "__main__":
    for path, text in pages().items():
        path.write_text(text)
