"""The tables of a profile database, and how a file of an older version comes to have them.

One row in `op_timings`, `link_timings`, `iteration_timings` is one set of samples. The views
`timings`, `links` and `iterations` join to them what they refer to: the columns of
`paracosm.profiling.database.rows`, and what a person with another SQLite program wants to see.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator, Sequence
from pathlib import Path

from paracosm.errors import InputError


def connect(path: Path, *, create: bool, readonly: bool) -> sqlite3.Connection:
    """Return a connection to a file of the latest schema.

    A file of an older schema is brought up to date. One that must not or cannot be written is left
    as it is, and read through a copy in memory.

    The file keeps SQLite's rollback journal, not a write-ahead log: between two transactions
    everything stands in the one file, so that it may be copied, lie on a network drive or in a
    read-only folder. A journal lies beside it only while somebody writes, or after a crash, and the
    next one to open the file rolls it back.
    """
    _look(path, create)
    # Never mode=ro: after a crash, reading begins with rolling the journal back.
    address = f"{path.absolute().as_uri()}?mode={'rwc' if create else 'rw'}"
    with explained(path):
        connection = sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None)
        try:
            version = found_version(connection, path)
            if version == 0 and not create:
                raise InputError(f'"{path}" is empty, not a profile database')
            readonly = readonly or not os.access(path, os.W_OK)
            if version < latest() and readonly:
                with contextlib.closing(connection) as original:
                    connection = sqlite3.connect(":memory:", isolation_level=None)
                    original.backup(connection)
            if version < latest():
                with transaction(connection):
                    bring_up_to_date(connection)
            if readonly:
                connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
    return connection


@contextlib.contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Hold the right to write from here to the end: all of what is written, or nothing."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:  # Ctrl-C too
        if connection.in_transaction:  # where the disk is full, SQLite has rolled back itself
            connection.execute("ROLLBACK")
        raise


def _look(path: Path, create: bool) -> None:
    """Make the folder of a file that is to be made; refuse one that is not there otherwise."""
    try:
        if path.is_dir():
            raise InputError(f'"{path}" is a folder, not a profile database')
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        elif not path.exists():
            raise InputError(f'no profile database at "{path}": paracosm profile ops makes one')
    except OSError as error:
        raise InputError(f'"{path}" cannot be opened: {error.strerror}') from None


PATIENCE = 30.0
"""Seconds to wait for another process that is writing."""

# By the primary code; the other eight bits say which of many calls of the system failed.
_MEANINGS = {
    sqlite3.SQLITE_NOTADB: "is not a profile database",
    sqlite3.SQLITE_READONLY: "cannot be written: it was opened for reading, or is read-only",
    sqlite3.SQLITE_CANTOPEN: "cannot be opened, or no file be made beside it: see its permissions",
    sqlite3.SQLITE_PERM: "cannot be opened: see its permissions",
    sqlite3.SQLITE_FULL: "cannot be written: the disk is full; what was in it is still there",
    sqlite3.SQLITE_IOERR: "cannot be read or written: the disk reports an error",
    sqlite3.SQLITE_BUSY: f"has been locked by another process for {PATIENCE:.0f} s: try again",
    sqlite3.SQLITE_NOMEM: "cannot be read: out of memory",
}


@contextlib.contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn the errors of the file at `path` into an `InputError`; defects of ours pass."""
    try:
        yield
    except (sqlite3.IntegrityError, sqlite3.ProgrammingError, sqlite3.InterfaceError):
        raise
    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT) & 0xFF
        # What is left means that pages, the schema or texts are not what was written.
        reason = " ".join(str(error).split())
        meaning = _MEANINGS.get(code, f"is damaged ({reason}): go back to a copy of it")
        raise InputError(f'"{path}" {meaning}') from None


APPLICATION_ID = 0x50434F53
"""Stands in the file's header and says whose it is: "PCOS"."""

_SPREAD = """
    count INTEGER NOT NULL CHECK (count > 0), mean REAL NOT NULL, variance REAL NOT NULL,
    minimum REAL NOT NULL, p10 REAL NOT NULL, median REAL NOT NULL, p90 REAL NOT NULL"""

STEPS: list[Sequence[str]] = [
    (
        "CREATE TABLE environments (id INTEGER PRIMARY KEY, text TEXT NOT NULL UNIQUE)",
        """CREATE TABLE ops (
            id INTEGER PRIMARY KEY, name TEXT NOT NULL, arguments TEXT NOT NULL,
            flops INTEGER NOT NULL, bytes_read INTEGER NOT NULL, bytes_written INTEGER NOT NULL,
            counted_at TEXT NOT NULL, UNIQUE (name, arguments))""",
        f"""CREATE TABLE op_timings (
            key TEXT NOT NULL PRIMARY KEY,
            op INTEGER NOT NULL REFERENCES ops,
            environment INTEGER NOT NULL REFERENCES environments,
            cache TEXT NOT NULL, {_SPREAD}, probe REAL NOT NULL,
            source TEXT NOT NULL, measured_at TEXT NOT NULL)""",
        "CREATE INDEX op_timings_by_op ON op_timings (op, environment, cache)",
        f"""CREATE TABLE link_timings (
            key TEXT NOT NULL PRIMARY KEY, kind TEXT NOT NULL, scenario TEXT NOT NULL,
            size INTEGER NOT NULL, ranks INTEGER NOT NULL,
            environment INTEGER NOT NULL REFERENCES environments, {_SPREAD},
            source TEXT NOT NULL, measured_at TEXT NOT NULL)""",
        f"""CREATE TABLE iteration_timings (
            key TEXT NOT NULL PRIMARY KEY, fingerprint TEXT NOT NULL, model TEXT NOT NULL,
            environment INTEGER NOT NULL REFERENCES environments, {_SPREAD}, probe REAL NOT NULL,
            source TEXT NOT NULL, measured_at TEXT NOT NULL)""",
        """CREATE VIEW timings AS SELECT
            ops.name, ops.arguments, ops.flops, ops.bytes_read, ops.bytes_written,
            environments.text AS environment, t.cache,
            t.count, t.mean, t.variance, t.minimum, t.p10, t.median, t.p90,
            t.probe, t.source, t.measured_at, t.key
            FROM op_timings AS t JOIN ops ON ops.id = t.op
            JOIN environments ON environments.id = t.environment""",
        """CREATE VIEW links AS SELECT
            t.kind, t.scenario, t.size, t.ranks, environments.text AS environment,
            t.count, t.mean, t.variance, t.minimum, t.p10, t.median, t.p90,
            t.source, t.measured_at, t.key
            FROM link_timings AS t JOIN environments ON environments.id = t.environment""",
        """CREATE VIEW iterations AS SELECT
            t.fingerprint, t.model, environments.text AS environment,
            t.count, t.mean, t.variance, t.minimum, t.p10, t.median, t.p90,
            t.probe, t.source, t.measured_at, t.key
            FROM iteration_timings AS t JOIN environments ON environments.id = t.environment""",
    )
]
"""Statements that bring a file of version i to version i + 1; version 0 is an empty file.

A step that was released never changes: a later version is a step more.
"""


def latest() -> int:
    """Return the version that this Paracosm writes, and the last that it reads."""
    return len(STEPS)


def found_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the schema in a file; 0 where nothing has been written to it."""
    application, version = _header(connection)
    if application != APPLICATION_ID:
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if (application, version, tables) == (0, 0, 0):
            return 0
        raise InputError(f'"{path}" is an SQLite database, but no profile database of Paracosm')
    if version > latest():
        raise InputError(
            f'"{path}" has schema version {version}, and this Paracosm knows no version after '
            f"{latest()}: update Paracosm"
        )
    return version


def bring_up_to_date(connection: sqlite3.Connection) -> None:
    """Take every step that the file has not taken yet; the transaction is the caller's."""
    _, version = _header(connection)  # once more: another process may have been faster
    for step in STEPS[version:]:
        for statement in step:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
    connection.execute(f"PRAGMA user_version = {latest()}")


def _header(connection: sqlite3.Connection) -> tuple[int, int]:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    return application, version
