"""The table of the five papers: every row is judged, and what it names to show it is there."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer

from paracosm.cli.app import app
from paracosm.errors import InputError

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "papers.md").read_text(encoding="utf-8")
SECTIONS = re.split(r"^## ", PAGE, flags=re.M)[1:]
STATE = re.compile(r"reproduced|(?:differs|not possible here)\b.*[:,;] ?\S")


def rows_of(section: str) -> list[list[str]]:
    """Return the cells of each row: where, what, state, shown by."""
    lines = [line for line in section.splitlines() if line.startswith("| ")]
    return [re.split(r"(?<!\\)\|", line.strip("| ")) for line in lines[1:]]


def words_of(section: str) -> dict[str, str]:
    """Return what `RUN` and the like stand for in a section."""
    return dict(re.findall(r"`([A-Z]+)`\s+(?:stands\s+)?for\s+`([^`]+)`", section))


@pytest.mark.parametrize("section", SECTIONS, ids=lambda section: section.split(",")[0])
def test_every_row_is_judged_and_shown(section: str) -> None:
    short = words_of(section)
    rows = rows_of(section)
    assert len(rows) >= 35
    for row in rows:
        where, what, state, shown = map(str.strip, row)
        assert all((where, what)), row
        assert STATE.match(state), (where, state)
        (command,) = re.findall(r"^`([^`]+)`", shown)
        first, _, rest = command.partition(" ")
        check_exists(f"{short.get(first, first)} {rest}".strip())


def test_the_page_has_the_five_papers_in_120_rows_and_more() -> None:
    assert len(SECTIONS) == 5
    assert sum(len(rows_of(section)) for section in SECTIONS) >= 120
    assert "not judged" not in PAGE


def test_the_first_table_counts_the_states_of_each_paper() -> None:
    head = PAGE.partition("## ")[0]
    counted = re.findall(r"\| (\d+) \| (\d+) \| (\d+) \|", head)
    states = ("reproduced", "differs", "not possible here")
    for section, counts in zip(SECTIONS, counted, strict=True):
        judged = [row[2].strip() for row in rows_of(section)]
        found = tuple(str(sum(state.startswith(word) for state in judged)) for word in states)
        assert counts == found, section.split(",")[0]


def check_exists(command: str) -> None:
    """Check a test, a script with its flags, or a line for `paracosm`."""
    words = shlex.split(command)
    if words[0] == "python":
        script = (ROOT / words[1]).read_text(encoding="utf-8")
        for flag in (word for word in words[2:] if word.startswith("--")):
            assert f'"{flag}"' in script, command
    elif words[0] == "paracosm":
        parse(words[1:])
    else:
        path, _, name = words[0].partition("::")
        assert f"def {name}(" in (ROOT / "tests" / path).read_text(encoding="utf-8"), command


def parse(arguments: list[str]) -> None:
    """Read the arguments of a verb as the program does, which refuses flags that it lacks."""
    program = typer.main.get_command(app)
    context = program.make_context("paracosm", list(arguments))
    name, verb, rest = program.resolve_command(context, [*context._protected_args, *context.args])
    verb.make_context(name, rest, parent=context)


@pytest.mark.parametrize(
    "command",
    [
        "python examples/papers/hybrid_simulator/no_such_file.py",
        "python examples/papers/hybrid_simulator/run.py --no-such-flag",
        "paracosm train --no-such-flag 3",
        "paracosm no-such-verb",
        "engine/test_ports.py::test_that_is_not_there",
    ],
)
def test_what_is_not_there_is_found_out(command: str) -> None:
    with pytest.raises((AssertionError, OSError, InputError, typer.exceptions.TyperException)):
        check_exists(command)
