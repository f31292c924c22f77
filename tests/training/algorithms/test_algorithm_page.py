"""The page of algorithms says what their classes say; run as a program, this writes it anew.

What an algorithm is, in a few words, stands in the page alone; docs/made_pages.py adds docstrings.
"""

from __future__ import annotations

import re
from dataclasses import fields
from pathlib import Path

from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.algorithms.registry import ALGORITHMS

PAGE = Path(__file__).parents[3] / "docs" / "algorithms.md"
BEGIN = "<!-- From the classes; tests/training/algorithms/test_algorithm_page.py writes it. -->\n"
WORKERS = 8  # for which an algorithm is asked whether it has a schedule


def signature(kind: type[Algorithm]) -> str:
    """Return how the algorithm is written with all of its parameters."""
    ordered = sorted(fields(kind), key=lambda field: bool(field.kw_only))
    given = ", ".join(f"{field.name}={field.default}" for field in ordered)
    return f"{kind.name}({given})" if given else kind.name


def listed() -> str:
    """Return a table of all algorithms, and what each is."""
    words = dict(re.findall(r"^\| `([\w-]+)[^`]*` \| ([^|]+) \|", PAGE.read_text(), re.M))
    lines = ["| name | what it is | topology | schedule |", "|---|---|---|---|"]
    for name, kind in ALGORITHMS.items():
        alone = kind().rule(1 if name == "sequential" else WORKERS) is None
        topologies = ", ".join(kind.topologies)
        made = "engine" if alone else "compiled"
        lines.append(f"| `{signature(kind)}` | {words[name]} | {topologies} | {made} |")
    return "\n".join(lines) + "\n"


def test_the_page_lists_what_there_is() -> None:
    assert PAGE.read_text().partition(BEGIN)[2].partition("\n## ")[0] == listed()


if __name__ == "__main__":
    before, _, old = PAGE.read_text().partition(BEGIN)
    after = "".join(old.partition("\n## ")[1:])
    PAGE.write_text(before + BEGIN + listed() + after)
