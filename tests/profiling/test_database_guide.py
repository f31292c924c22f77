"""docs/profiling.md against the database."""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

import pytest
from some_timings import RELU, timing

from paracosm.profiling.database import ProfileDatabase

PAGE = (Path(__file__).parents[2] / "docs" / "profiling.md").read_text()
GUIDE = PAGE.partition("\n## The database\n")[2].partition("\n## ")[0]


@pytest.fixture
def plain(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> sqlite3.Connection:
    """Return a plain connection to the profiles.db of the current folder."""
    monkeypatch.chdir(tmp_path)
    with ProfileDatabase.open("profiles.db", create=True) as database:
        database.add([timing("a"), timing("b")])
    return sqlite3.connect("profiles.db")


def test_the_program_of_the_guide_prints_what_is_known(
    plain: sqlite3.Connection, capsys: pytest.CaptureFixture[str]
) -> None:
    plain.close()
    (program,) = re.findall(r"```python\n(.*?)```", GUIDE, re.DOTALL)
    exec(program, {})
    name, median, _ = capsys.readouterr().out.split()
    assert (name, float(median)) == (RELU.name, 2e-3)


def test_the_query_of_the_guide_runs(plain: sqlite3.Connection) -> None:
    (query,) = re.findall(r'sqlite3 profiles.db "(.*?)"', GUIDE)
    assert plain.execute(query).fetchall() == [(RELU.name, 2e-3, RELU.flops / 2e-3)] * 2
    plain.close()


def test_the_guide_names_every_column_of_every_table(plain: sqlite3.Connection) -> None:
    (samples,) = re.findall(r"\*samples\*: (.*?)\. ", GUIDE)
    told = {
        table: re.findall(r"`(\w+)`", columns.replace("*samples*", samples))
        for table, columns in re.findall(r"^\| `(\w+)` \| (.*) \|$", GUIDE, re.MULTILINE)
    }
    tables = plain.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall()
    there = {
        name: [row[1] for row in plain.execute(f"PRAGMA table_info({name})")] for (name,) in tables
    }
    plain.close()
    assert told == there
