"""What SQLite has to say about a file, as a line that a user can act on."""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from pathlib import Path

from paracosm.errors import InputError

__all__ = ["PATIENCE", "explained"]

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
