"""Files that appear only when complete and notice damage, and folders of one writer."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import BinaryIO, Self

from paracosm.errors import InputError


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield the name of a file to write in the same folder, which then takes the place of `path`.

    Whoever reads `path` finds what was there before or all of the new file, at every instant; after
    an error or Ctrl-C it is as it was. What a killed process has left of it goes as well.

    Raises:
        InputError: the file cannot be written.
        OSError: the disk is full; with the name of the file.
    """
    path = Path(path)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        try:
            yield unfinished
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
            for left in path.parent.glob(f".{escape(path.name)}.*"):
                if left.suffix[1:].isdecimal() and not _is_running(int(left.suffix[1:])):
                    left.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in FULL:
            raise OSError(error.errno, os.strerror(error.errno), str(path)) from None
        raise unwritable(f"{path}: cannot be written", error) from None


def unwritable(where: str, error: OSError) -> Exception:
    """Return what to raise: an `InputError`, or the error itself where the disk is full."""
    reason = " ".join((error.strerror or str(error)).split())
    return error if error.errno in FULL else InputError(f"{where}: {reason}")


def _is_running(process: int) -> bool:
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except (ProcessLookupError, OverflowError):
        return False
    return True


FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Errors of a disk that takes nothing more: of the machine, not of what a user asked for."""


@contextmanager
def sealing(path: str | Path) -> Iterator[Path]:
    """Do as `replacing` with a Parquet or Arrow file, and put a checksum of all its bytes into it.

    It stands between the data and the footer, where readers of these formats do not look.
    """
    with replacing(path) as unfinished:
        yield unfinished
        with unfinished.open("r+b") as file:
            footer = _footer(file)
            checksum = _checksum(file, footer)
            file.seek(footer)
            rest = file.read()
            file.seek(footer)
            file.write(SEAL + checksum.to_bytes(4, "little") + rest)


def check_seal(path: str | Path) -> None:
    """Compare a file that `sealing` wrote with its checksum; one without passes.

    Raises:
        InputError: a byte of it has changed since it was written.
        OSError: it cannot be read.
    """
    with Path(path).open("rb") as file:
        footer = _footer(file)
        begin = footer - len(SEAL) - 4
        if begin < 0:
            return
        file.seek(begin)
        seal, found = file.read(len(SEAL)), file.read(4)
        if seal == SEAL and int.from_bytes(found, "little") != _checksum(file, footer, begin):
            raise InputError(f"{path}: damaged: its bytes do not match its checksum")


SEAL = b"paracosm"


def _footer(file: BinaryIO) -> int:
    """Return where the footer of a Parquet or Arrow file begins; 0 if it is neither."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 10))
    end = file.read()
    magic = next((each for each in (b"PAR1", b"ARROW1") if end.endswith(each)), None)
    if magic is None:
        return 0
    tail = len(magic) + 4
    return max(0, size - tail - int.from_bytes(end[-tail : 4 - tail], "little"))


def _checksum(file: BinaryIO, footer: int, data: int | None = None) -> int:
    """Return the CRC-32 of the first `data` bytes and of the footer."""
    file.seek(0)
    left = footer if data is None else data
    checksum = 0
    while left > 0 and (block := file.read(min(left, 1 << 20))):
        checksum = zlib.crc32(block, checksum)
        left -= len(block)
    file.seek(footer)
    return zlib.crc32(file.read(), checksum)


class Lock:
    """The right to write into a folder, which one process has at a time.

    It ends with `release`, the end of a `with` block, or with the process. Who has it
    is in the file `.lock` of the folder.

    Raises:
        InputError: another process has it.
        OSError: the file cannot be made.
    """

    NAME = ".lock"

    def __init__(self, folder: Path) -> None:
        import fcntl

        self._path = folder / self.NAME
        while True:
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                owner = os.read(self._file, 20).decode("ascii", "replace").strip()
                os.close(self._file)
                raise InputError(
                    f"{folder}: the process {owner or '(unknown)'} is writing here: wait for its "
                    "end, or choose another folder"
                ) from None
            if self._is_current():
                break
            os.close(self._file)
        os.ftruncate(self._file, 0)
        os.write(self._file, f"{os.getpid()}\n".encode())

    def _is_current(self) -> bool:
        """Whether nobody removed the file between its opening and its locking."""
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Let others write; a second call does nothing."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


@contextmanager
def temporary_folder(within: str | None = None) -> Iterator[Path]:
    """Make a folder for the length of a block; those that killed processes have left go first.

    It is in the system's folder of temporary files, or `within` another one.

    Raises:
        OSError: it cannot be made.
    """
    place = Path(within or tempfile.gettempdir())
    for left in place.glob(f"{_TEMPORARY}*/{Lock.NAME}"):
        with suppress(OSError, InputError), Lock(left.parent):  # nobody has it any more
            shutil.rmtree(left.parent, ignore_errors=True)
    made = Path(tempfile.mkdtemp(prefix=f".{_TEMPORARY}", dir=place))
    own = os.getpid()
    with Lock(made):  # under a name at which nobody looks
        folder = made.rename(place / made.name[1:])
        try:
            yield folder
        finally:
            if os.getpid() == own:  # and no fork of it
                shutil.rmtree(folder, ignore_errors=True)


_TEMPORARY = "paracosm-"
