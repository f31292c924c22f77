"""The tables of a profile database, and how a file of an older version comes to have them.

One row in `op_timings`, `link_timings`, `iteration_timings` is one set of samples. The views
`timings`, `links` and `iterations` join to them what they refer to: the columns of
`paracosm.profiling.database.rows`, and what a person with another SQLite program wants to see.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from pathlib import Path

from paracosm.errors import InputError

__all__ = ["APPLICATION_ID", "STEPS", "bring_up_to_date", "found_version", "latest"]

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
    ),
]
"""Statements that bring a file of version i to version i + 1; version 0 is an empty file.

A step that was released never changes: a later version is a step more.
"""


def latest() -> int:
    """Return the version that this Paracosm writes, and the last that it reads."""
    return len(STEPS)


def found_version(connection: sqlite3.Connection, path: Path) -> int:
    """Return the version of the schema in a file; 0 where nothing has been written to it.

    Raises:
        InputError: it is somebody else's database, or a newer Paracosm's.
    """
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
