"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paracosm.errors import InputError

__all__ = ["written_beside"]


@contextmanager
def written_beside(path: str | Path) -> Iterator[Path]:
    """Yield the name of a file beside `path` to write, which then takes the place of `path`.

    Raises:
        InputError: the file cannot be written; what `path` held before is as it was.
    """
    path = Path(path)
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            yield beside
            beside.replace(path)
        finally:
            beside.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
