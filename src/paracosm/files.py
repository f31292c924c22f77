"""Files that appear under their name only when they are complete."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from paracosm.errors import InputError

__all__ = ["replacing"]


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield the name of a file to write in the same folder, which then takes the place of `path`.

    Whoever reads `path` finds what was there before or all of the new file, at every instant; after
    an error or Ctrl-C it is as it was.

    Raises:
        InputError: the file cannot be written.
    """
    path = Path(path)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            yield unfinished
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None
