"""Merging: nothing lost, nothing doubled, whenever it was interrupted."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import pytest
from some_timings import CPU, GPU, RELU, iteration, link, some, timing

from paracosm.errors import InputError
from paracosm.profiling.database import database as database_module
from paracosm.profiling.database.database import ProfileDatabase
from paracosm.profiling.database.files import export, merge
from paracosm.profiling.database.rows import Added, Timings, insert


def made(path: Path, timings: Timings) -> Path:
    with ProfileDatabase.open(path, create=True) as database:
        database.add_everything(timings)
    return path


def held(path: Path) -> Timings:
    with ProfileDatabase.open(path, readonly=True) as database:
        return database.everything()


def test_databases_of_two_devices_stand_side_by_side(tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", Timings((timing("a"),), (link("l"),)))
    other = Timings((timing("b", environment=GPU),), (), (iteration("i", GPU),))
    second = made(tmp_path / "b.db", other)
    counts = merge(tmp_path / "all.db", [first, second])
    assert counts == {CPU: Added(2, 0), GPU: Added(2, 0)}
    assert held(tmp_path / "all.db") == Timings(
        (timing("b", environment=GPU), timing("a")), (link("l"),), (iteration("i", GPU),)
    )


def test_merging_again_adds_nothing(tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", Timings(tuple(some(30)), (link("l"),)))
    second = made(tmp_path / "b.db", Timings((*some(40), timing("x", environment=GPU))))
    into = tmp_path / "all.db"
    assert merge(into, [first, second]) == {CPU: Added(41, 30), GPU: Added(1, 0)}
    before = held(into)
    assert merge(into, [second, first, second]) == {CPU: Added(0, 111), GPU: Added(0, 2)}
    assert held(into) == before


def test_the_order_of_merging_does_not_matter(tmp_path: Path) -> None:
    older = timing("a", RELU, measured_at="2025-01-01T00:00:00+00:00")
    parts = [
        made(tmp_path / "a.db", Timings((older, *some(5, "p")))),
        made(tmp_path / "b.db", Timings((timing("b"), *some(5, "q", GPU)), (link("l"),))),
    ]
    merge(tmp_path / "ab.db", parts)
    merge(tmp_path / "ba.db", parts[::-1])
    assert held(tmp_path / "ab.db") == held(tmp_path / "ba.db")


def test_a_database_is_not_merged_into_itself(tmp_path: Path) -> None:
    path = made(tmp_path / "a.db", Timings(tuple(some(3))))
    (tmp_path / "link.db").symlink_to(path)
    for name in ("a.db", "link.db"):
        with pytest.raises(InputError, match="cannot be merged into itself"):
            merge(path, [tmp_path / name])


def test_sources_are_looked_at_before_anything_is_written(tmp_path: Path) -> None:
    good = made(tmp_path / "a.db", Timings(tuple(some(3))))
    (tmp_path / "text").write_text("no database")
    for bad in ("text", "none.db"):
        with pytest.raises(InputError):
            merge(tmp_path / "all.db", [good, tmp_path / bad])
    assert not (tmp_path / "all.db").exists()


def test_sources_are_not_changed(tmp_path: Path) -> None:
    source = made(tmp_path / "a.db", Timings(tuple(some(3))))
    before = source.read_bytes()
    merge(tmp_path / "all.db", [source])
    assert source.read_bytes() == before


def test_an_error_in_the_middle_leaves_whole_files_and_the_next_merge_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = made(tmp_path / "a.db", Timings(tuple(some(10))))
    second = made(tmp_path / "b.db", Timings((*some(10, "b"), timing("x", environment=GPU))))
    into, calls = tmp_path / "all.db", 0

    def interrupted(*arguments: object) -> int:
        nonlocal calls
        calls += 1
        new = insert(*arguments)  # type: ignore[arg-type]
        if calls == 5:  # the second file: three kinds of the first, then one
            raise KeyboardInterrupt
        return new

    with monkeypatch.context() as patched:
        patched.setattr(database_module, "insert", interrupted)
        with pytest.raises(KeyboardInterrupt):
            merge(into, [first, second])
    assert held(into) == held(first)
    assert merge(into, [first, second]) == {CPU: Added(10, 10), GPU: Added(1, 0)}
    assert len(held(into)) == 21


KILLED = """
import os, signal, sys
from paracosm.profiling.database import database, merge

def spilled(connection, kind, rows):
    connection.execute("PRAGMA cache_size = 5")  # so that the file itself is being changed
    new = insert(connection, kind, rows)
    if rows and rows[0]["key"].startswith("b"):
        os.kill(os.getpid(), signal.SIGKILL)
    return new

insert, database.insert = database.insert, spilled
merge(sys.argv[1], sys.argv[2:])
"""


def test_a_process_killed_in_the_middle_loses_and_doubles_nothing(tmp_path: Path) -> None:
    first = made(tmp_path / "a.db", Timings(tuple(some(500))))
    second = made(tmp_path / "b.db", Timings(tuple(some(500, "b"))))
    into = tmp_path / "all.db"
    whole = merge(tmp_path / "whole.db", [first, second])
    command = [sys.executable, "-c", KILLED, str(into), str(first), str(second)]
    assert subprocess.run(command).returncode == -signal.SIGKILL
    # The file is half written, and what it was before lies beside it.
    assert into.stat().st_size > first.stat().st_size
    assert (tmp_path / "all.db-journal").stat().st_size > 0
    assert held(into) == held(first)
    assert merge(into, [first, second]) == {CPU: Added(500, 500)}
    assert held(into) == held(tmp_path / "whole.db")
    assert whole == {CPU: Added(1000, 0)}
    assert not (tmp_path / "all.db-journal").exists()


def test_an_export_is_merged_like_the_database_that_it_is_of(tmp_path: Path) -> None:
    source = made(tmp_path / "a.db", Timings((timing("a"),), (link("l"),), (iteration("i"),)))
    with ProfileDatabase.open(source) as database:
        export(database, tmp_path / "a.parquet")
    assert merge(tmp_path / "b.db", [tmp_path / "a.parquet"]) == {CPU: Added(3, 0)}
    assert merge(tmp_path / "b.db", [source]) == {CPU: Added(0, 3)}
    assert held(tmp_path / "b.db") == held(source)
