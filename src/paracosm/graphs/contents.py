"""The bytes of a file, whether it is gzipped or not."""

from __future__ import annotations

import gzip
import zlib
from pathlib import Path

from paracosm.errors import InputError

__all__ = ["contents"]


def contents(path: Path, most: int = -1) -> bytes:
    """Return the bytes of a file, unpacked if it is gzipped, whatever its name ends in.

    Args:
        path: the file.
        most: how many bytes of its beginning are read; -1 for all.

    Raises:
        InputError: it is not there, cannot be read, or its gzip stream is not whole.
    """
    try:
        with path.open("rb") as file:
            packed = file.read(2) == b"\x1f\x8b"
            file.seek(0)
            return gzip.GzipFile(fileobj=file).read(most) if packed else file.read(most)
    except FileNotFoundError:
        raise InputError(f"{path}: no such file") from None
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise InputError(f"{path}: the gzipped file is cut off or damaged") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
