"""A database that takes the place of another one only when it is finished."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

from paracosm.files import replacing

__all__ = ["replacing_database"]


@contextlib.contextmanager
def replacing_database(path: Path) -> Iterator[Path]:
    """Yield a path to write to; at the end that file takes the place of `path`, at once.

    After an error or Ctrl-C it is removed, and what was at `path` is still there.

    Raises:
        InputError: it cannot be written.
    """
    with replacing(path) as unfinished:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            yield unfinished
            # The journal of a database that was here would be rolled back into the new one.
            _journal(path).unlink(missing_ok=True)
        finally:
            _journal(unfinished).unlink(missing_ok=True)


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")
