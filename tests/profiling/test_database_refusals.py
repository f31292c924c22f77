"""Files that are no profile databases, or not usable ones, are refused in one line."""

from __future__ import annotations

import random
import sqlite3
from pathlib import Path

import pytest
from some_timings import CPU, iteration, link, some

from paracosm.errors import InputError
from paracosm.profiling.database import ProfileDatabase
from paracosm.profiling.database import database as schema


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return a database with something of every kind."""
    with ProfileDatabase.open(tmp_path / "p.db", create=True) as database:
        database.add(some(300))
        database.add_links([link("link")])
        database.add_iterations([iteration("iteration")])
    return tmp_path / "p.db"


def refusal(path: Path, create: bool = False) -> str:
    with pytest.raises(InputError) as caught, ProfileDatabase.open(path, create=create) as opened:
        opened.contents()
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith((f'"{path}"', "no profile database"))
    return message


def test_a_file_that_is_not_there_is_not_made_unless_asked(tmp_path: Path) -> None:
    message = refusal(tmp_path / "none.db")
    assert message.startswith(f'no profile database at "{tmp_path / "none.db"}"')
    assert "paracosm profile ops" in message
    assert list(tmp_path.iterdir()) == []


def test_other_files_are_not_databases(tmp_path: Path) -> None:
    text, folder, empty = tmp_path / "text", tmp_path / "folder", tmp_path / "empty"
    text.write_text("op,seconds\n" * 100)
    folder.mkdir()
    empty.touch()
    assert "is not a profile database, which paracosm" in refusal(text)
    assert "is not a profile database, which paracosm" in refusal(text, create=True)
    assert refusal(folder).endswith("is a folder, not a profile database")
    assert refusal(empty).endswith("is empty, not a profile database")
    assert text.read_text() == "op,seconds\n" * 100


def test_an_empty_file_becomes_a_database_when_one_is_to_be_made(tmp_path: Path) -> None:
    (tmp_path / "p.db").touch()  # so the process that makes it leaves it, if it is killed at once
    with ProfileDatabase.open(tmp_path / "p.db", create=True) as database:
        assert database.add(some(1)) == 1


def test_somebody_elses_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as theirs:
        theirs.execute("CREATE TABLE ops (name)")
    theirs.close()
    before = other.read_bytes()
    for create in (False, True):
        assert refusal(other, create).endswith("but no profile database of Paracosm")
    assert other.read_bytes() == before


def test_a_newer_schema_asks_for_an_update(path: Path) -> None:
    with sqlite3.connect(path) as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    message = refusal(path)
    assert "schema version 99" in message
    assert f"this Paracosm supports {schema.VERSION}: update Paracosm" in message


def test_a_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    assert "cannot be opened: " in refusal(tmp_path / "file" / "p.db", create=True)
    assert "cannot be opened" in refusal(Path("/proc/p.db"), create=True)
    assert "cannot be opened: " in refusal(tmp_path / ("long" * 100))


def test_a_database_opened_for_reading_is_not_written(path: Path) -> None:
    with ProfileDatabase.open(path, readonly=True) as database:
        with pytest.raises(InputError, match="cannot be written: it was opened for reading"):
            database.add(some(1, "new"))
        assert len(database.timings()) == 300


def test_a_file_without_write_permission_can_be_read(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Permissions do not hold for root, whom tests may run as.
    monkeypatch.setattr(schema.os, "access", lambda *_: False)  # type: ignore[attr-defined]
    with ProfileDatabase.open(path) as database:
        assert len(database.find([each.op for each in some(300)], CPU, "cold")) == 300
        with pytest.raises(InputError, match="is read-only"):
            database.add(some(1, "new"))


def test_a_full_disk_is_said_and_what_was_there_stays(path: Path) -> None:
    with ProfileDatabase.open(path) as database:
        (pages,) = database._connection.execute("PRAGMA page_count").fetchone()
        database._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(OSError, match="the disk is full; the file is unchanged"):
            database.add(some(3000, "new"))
        assert len(database.timings()) == 300
        assert database.add(some(1, "small")) == 1


def test_a_lock_that_is_never_given_up_is_said(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "PATIENCE", 0.01)
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN IMMEDIATE")
    with ProfileDatabase.open(path) as database:
        with pytest.raises(InputError, match="has been locked by another process"):
            database.add(some(1, "new"))
        assert len(database.timings()) == 300
        holder.execute("ROLLBACK")
        assert database.add(some(1, "new")) == 1
    holder.close()


def test_a_database_that_was_cut_off_is_damaged(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    assert "is damaged" in refusal(path)


def test_flipped_bits_give_a_line_or_an_answer_and_never_a_traceback(
    path: Path, tmp_path: Path
) -> None:
    content = path.read_bytes()
    draw = random.Random(0)
    damaged = tmp_path / "damaged.db"
    lines = []
    for _ in range(150):
        broken = bytearray(content)
        for _ in range(20):
            broken[draw.randrange(len(broken))] ^= 1 << draw.randrange(8)
        damaged.write_bytes(broken)
        try:
            with ProfileDatabase.open(damaged, readonly=True) as database:
                database.contents()
        except InputError as error:
            lines.append(str(error))
    assert len(lines) > 20  # else nothing was tested
    assert all(str(damaged) in line and "\n" not in line for line in lines)


def test_defects_of_ours_keep_their_traceback(path: Path) -> None:
    with ProfileDatabase.open(path) as database:
        pass
    with pytest.raises(sqlite3.ProgrammingError, match="closed"):
        database.timings()


def test_a_file_of_another_version_is_refused(path: Path) -> None:
    with sqlite3.connect(path) as plain:
        plain.execute("PRAGMA user_version = 1")
    plain.close()
    with pytest.raises(InputError, match=r"schema version 1.*time the ops again"):
        ProfileDatabase.open(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("ALTER TABLE ops RENAME TO others; CREATE VIEW ops AS SELECT * FROM others", "table ops"),
        ("DROP VIEW timings; CREATE VIEW timings AS SELECT * FROM op_timings", "view timings"),
        ("ALTER TABLE op_timings ADD COLUMN more TEXT NOT NULL DEFAULT ''", "table op_timings"),
        ("DROP INDEX op_timings_by_op", "index op_timings_by_op"),
        (
            "CREATE TRIGGER late BEFORE INSERT ON op_timings BEGIN SELECT RAISE(ABORT, 'no'); END",
            "trigger late",
        ),
    ],
)
def test_another_schema_is_refused(path: Path, change: str, words: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.executescript(change)
    connection.close()
    assert words in refusal(path)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("DELETE FROM environments", "has a row of none of its environments"),
        ("DELETE FROM ops", "op_timings has a row of none of its ops"),
        ("UPDATE op_timings SET minimum = -1", "column minimum"),
        ("UPDATE op_timings SET mean = 9e999", "column mean"),
        ("UPDATE op_timings SET p10 = 2 * p90", "column p10"),
        ("UPDATE op_timings SET mean = minimum / 2", "column minimum"),
        ("UPDATE op_timings SET probe = 1e308", "column probe"),
        ("UPDATE op_timings SET p10 = 1e-300, minimum = 1e-300", "column minimum"),
        ("UPDATE op_timings SET variance = 1e300", "column variance"),
        ("UPDATE environments SET text = json_set(text, '$.threads', '1')", "threads is '1'"),
        ("UPDATE environments SET text = json_set(text, '$.device', json('[1]'))", "device is "),
    ],
)
def test_timings_that_nothing_has_are_refused(path: Path, change: str, words: str) -> None:
    with sqlite3.connect(path) as connection:
        connection.execute(change)
    connection.close()
    assert words in refusal(path)


def test_an_op_that_is_not_found_after_it_was_added_is_damage(path: Path) -> None:
    with ProfileDatabase.open(path) as database:
        database._connection.execute(
            "CREATE TEMP TRIGGER lost AFTER INSERT ON main.ops BEGIN"
            " DELETE FROM ops WHERE id = new.id; END"
        )  # as where a page of the index is not that of the table
        with pytest.raises(InputError, match="is damaged"):
            database.add(some(301, "new"))
