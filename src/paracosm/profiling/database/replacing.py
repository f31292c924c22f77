"""A file that takes the place of another one only when it is finished."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterator
from pathlib import Path

from paracosm.errors import InputError

__all__ = ["replacing"]


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a path to write to; at the end that file takes the place of `path`, at once.

    After an error or Ctrl-C it is removed, and what was at `path` is still there.

    Raises:
        InputError: it cannot be written.
    """
    unfinished = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        yield unfinished
        # The journal of a database that was here would be rolled back into the new one.
        _journal(path).unlink(missing_ok=True)
        os.replace(unfinished, path)
    except OSError as error:
        raise InputError(f'"{path}" cannot be written: {error.strerror or error}') from None
    finally:
        unfinished.unlink(missing_ok=True)
        _journal(unfinished).unlink(missing_ok=True)


def _journal(path: Path) -> Path:
    return path.with_name(f"{path.name}-journal")
