"""Connections to the file of a profile database, and transactions that write to it.

The file keeps SQLite's rollback journal, not a write-ahead log: between two transactions everything
stands in the one file, so that it may be copied, lie on a network drive or in a read-only folder.
A writer waits for the other one; a journal lies beside the file only while somebody writes, or
after a crash, and the next one to open the file rolls it back.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from paracosm.errors import InputError
from paracosm.profiling.database.refusals import PATIENCE, explained
from paracosm.profiling.database.schema import bring_up_to_date, found_version, latest

__all__ = ["connect", "transaction"]


def connect(path: Path, *, create: bool, readonly: bool) -> sqlite3.Connection:
    """Return a connection to a file of the latest schema.

    A file of an older schema is brought up to date. One that must not or cannot be written is left
    as it is, and read through a copy in memory.

    Raises:
        InputError: there is no such file, it is no profile database, a newer one, or unreadable.
    """
    _look(path, create)
    with explained(path):
        connection = _opened(path, "rwc" if create else "rw")
        try:
            version = found_version(connection, path)
            if version == 0 and not create:
                raise InputError(f'"{path}" is empty, not a profile database')
            readonly = readonly or not os.access(path, os.W_OK)
            if version < latest() and readonly:
                connection = _copy(connection)
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


def _opened(path: Path, mode: str) -> sqlite3.Connection:
    # Never mode=ro: after a crash, reading begins with rolling the journal back.
    address = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(address, uri=True, timeout=PATIENCE, isolation_level=None)


def _copy(connection: sqlite3.Connection) -> sqlite3.Connection:
    copy = sqlite3.connect(":memory:", isolation_level=None)
    with contextlib.closing(connection):
        connection.backup(copy)
    return copy


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
