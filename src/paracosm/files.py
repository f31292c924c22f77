"""Files: read if they are files, written so that they appear complete; folders of one writer."""

from __future__ import annotations

import errno
import gzip
import io
import os
import secrets
import shutil
import stat
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from glob import escape
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Self, cast

from paracosm.errors import InputError

if TYPE_CHECKING:
    pass


def check_name(path: str | Path) -> None:
    """Raise InputError for what no file can be called: too long, or with such characters."""
    try:
        name = os.fsencode(path)
    except UnicodeEncodeError:  # half a surrogate pair
        name = b"\0"
    if (
        b"\0" in name
        or len(name) > _LONGEST_PATH
        or max(map(len, name.split(b"/"))) > _LONGEST_NAME
    ):
        shown = ascii(str(path))
        shown = shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]} ..."
        raise InputError(f"no file can have the name {shown}")


_LONGEST_PATH, _LONGEST_NAME = 4095, 255  # bytes, on Linux and elsewhere
_SHOWN = 300  # characters of a name


Stamp = tuple[int, int, int] | None


def file_stamp(path: str | Path) -> Stamp:
    """Return what differs once a file has been written anew; None where there is none."""
    try:
        status = os.stat(path)
    except (OSError, ValueError):
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def open_file(path: str | Path, what: str | None = None) -> BinaryIO:
    """Open a file to read; `what` messages call it: "cluster file".

    Raises:
        InputError: there is none, it cannot be read, or is a folder, a device or a pipe, which
            need not ever end.
    """
    where = f"{path}: cannot be read" if what is None else f'cannot read the {what} "{path}"'
    try:
        file = open(path, "rb", opener=_at_once)  # noqa: SIM115 (for the caller)
    except FileNotFoundError:
        missing = f"{path}: no such file" if what is None else f'no {what} at "{path}"'
        raise InputError(missing) from None
    except (OSError, ValueError) as error:
        raise InputError(f"{where}: {getattr(error, 'strerror', None) or error}") from None
    if stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        return file
    file.close()
    raise InputError(f"{where}: it is a device or a pipe, not a file")


def _at_once(name: str, flags: int) -> int:
    """Open without waiting for a pipe's writer."""
    return os.open(name, flags | os.O_NONBLOCK)


def open_unpacked(path: str | Path) -> BinaryIO:
    """Open a file to read, unpacking it if it is gzipped, whatever its name ends in."""
    file = open_file(path)
    packed = file.read(2) == b"\x1f\x8b"
    file.seek(0)
    return cast(BinaryIO, _Unpacked(file)) if packed else file


class _Unpacked(gzip.GzipFile):
    """A gzipped file that is closed with what it is read from."""

    def __init__(self, packed: BinaryIO) -> None:
        self._packed = packed
        super().__init__(fileobj=packed)

    def close(self) -> None:
        super().close()
        self._packed.close()


MOST_BYTES = 1 << 30
"""Of a file that is read as a whole."""


def read_bytes(path: str | Path, first: int | None = None) -> bytes:
    """Return the bytes of a file, or the `first` of them, unpacked if it is gzipped.

    Raises:
        InputError: as `open_file`; its gzip stream is not whole; it has more than `MOST_BYTES`.
    """
    try:
        with open_unpacked(path) as file:
            content = read_at_most(file, MOST_BYTES + 1 if first is None else first)
    except (EOFError, gzip.BadGzipFile, zlib.error):
        raise InputError(f"{path}: the gzipped file is cut off or damaged") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
    if len(content) > MOST_BYTES:
        raise InputError(f"{path}: larger than {MOST_BYTES >> 30} GiB")
    return content


def read_at_most(file: BinaryIO, most: int) -> bytes:
    """Return the first `most` bytes of an open file, in no more memory than it needs.

    `file.read(most)` makes room for all of them first, which limited address space does not have.
    """
    content = io.BytesIO()
    while piece := file.read(min(most - content.tell(), _PIECE)):
        content.write(piece)
    return content.getvalue()


_PIECE = 1 << 20


def check_plain(path: str | Path) -> None:
    """Refuse to write to what is there, unless it is a file and has no other name.

    Whoever fills a folder can put a link there to any file of whoever writes to the folder.

    Raises:
        InputError: it is a link, a second name of a file, a folder, a device or a pipe.
    """
    with suppress(FileNotFoundError):
        _check_plain(path, os.lstat(path))


def _check_plain(path: str | Path, status: os.stat_result) -> None:
    if stat.S_ISLNK(status.st_mode):
        kind = "a link"
    elif stat.S_ISDIR(status.st_mode):
        kind = "a folder"
    elif not stat.S_ISREG(status.st_mode):
        kind = "a device or a pipe"
    elif status.st_nlink > 1:
        kind = "a hard link to a file that has another name as well"
    else:
        return
    raise InputError(f"{path}: cannot be written: it is {kind}, not a file of its own: remove it")


def check_no_link(folder: Path) -> None:
    """Refuse a link where a folder inside another one is to be written to.

    Raises:
        InputError: it is a link.
    """
    if folder.is_symlink():
        raise InputError(
            f"{folder}: it is a link, and files elsewhere would be changed: remove it, or name "
            "another folder"
        )


def open_plain(path: Path, flags: int) -> int:
    """Open a file to write, made if there is none; a link is not followed.

    Raises:
        InputError: as `check_plain`.
        OSError: it cannot be opened.
    """
    check_plain(path)
    file = os.open(path, flags | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    try:
        _check_plain(path, os.fstat(file))
    except InputError:
        os.close(file)
        raise
    return file


def check_database(path: Path) -> None:
    """Refuse an SQLite database if opening it could change a file elsewhere.

    SQLite writes to files beside it, and when it rolls a journal back it removes the file that the
    journal names as that of a transaction over several databases, which we never have.

    Raises:
        InputError: as `check_plain`, for a file beside it; the journal names another file.
    """
    real = path.resolve()  # beside which SQLite makes its files
    for ending in ("journal", "wal", "shm"):
        check_plain(f"{real}-{ending}")
    with suppress(FileNotFoundError), open(f"{real}-journal", "rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - len(_OF_SEVERAL)))
        if size > len(_OF_SEVERAL) and file.read() == _OF_SEVERAL:
            raise InputError(
                f"{real}-journal: names another file, which SQLite would remove: it was not made "
                "by Paracosm; remove it"
            )


_OF_SEVERAL = bytes.fromhex("d9d505f920a163d7")
"""The end of a journal with the name of a super-journal (sqlite.org/fileformat2.html)."""


def create_file(path: Path) -> None:
    """Make an empty file in place of what has its name; a link is removed, not followed.

    Raises:
        OSError: it cannot be made.
    """
    path.unlink(missing_ok=True)
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o666))


@contextmanager
def replacing(path: str | Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; the file written there then replaces `path`. At
    every instant `path` is the old file or the complete new one; an error or Ctrl-C leaves it
    unchanged. A link is replaced, not what it leads to. What a killed process has left of it goes
    as well.

    Raises:
        InputError: the file cannot be written, or `path` is a device or a pipe.
        OSError: the disk is full; with the name of the file.
    """
    path = Path(path)
    # Absolute, since Arrow takes "a:b/c" for an address.
    unfinished = path.parent.absolute() / f".{path.name}.{os.getpid()}"
    try:
        if path.exists() and not (path.is_file() or path.is_dir()):
            raise InputError(f"{path}: cannot be written: it is a device or a pipe, not a file")
        create_file(unfinished)
        try:
            yield unfinished
            unfinished.replace(path)
        finally:
            with suppress(OSError):  # what else is called so, or is somebody else's
                unfinished.unlink(missing_ok=True)
            for left in path.parent.glob(f".{escape(path.name)}.*"):
                if left.suffix[1:].isdecimal() and not _is_running(int(left.suffix[1:])):
                    with suppress(OSError):
                        left.unlink(missing_ok=True)
    except OSError as error:
        if error.errno in FULL:
            other = error.filename not in (None, str(unfinished))  # a file that was read
            name = error.filename if other else str(path)
            raise OSError(error.errno, os.strerror(error.errno), name) from None
        raise unwritable(f"{path}: cannot be written", error) from None


def unwritable(where: str, error: OSError) -> Exception:
    """Return what to raise: an `InputError`, or the error itself where the disk is full."""
    # Arrow's text has the name of the temporary file in it.
    reason = os.strerror(error.errno) if error.errno else " ".join(str(error).split())
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
"""Errors of a full disk: of the machine, not of what a user asked for."""


@contextmanager
def sealing(path: str | Path) -> Iterator[Path]:
    """Replace a Parquet or Arrow file as `replacing` does, and store a checksum of all its bytes in
    it.

    It lies between the data and the footer, where readers of these formats do not look.
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
    """Compare a file that `sealing` wrote with its checksum; a file without one passes.

    Raises:
        InputError: a byte of it has changed since it was written; as `open_file`.
        OSError: it cannot be read.
    """
    with open_file(path) as file:
        footer = _footer(file)
        begin = footer - len(SEAL) - 4
        if begin < 0:
            return
        file.seek(begin)
        seal, checksum = file.read(len(SEAL)), file.read(4)
        if seal == SEAL and int.from_bytes(checksum, "little") != _checksum(file, footer, begin):
            raise InputError(f"{path}: damaged: its bytes do not match its checksum")


SEAL = b"paracosm"


def _footer(file: BinaryIO) -> int:
    """Return where the footer of a Parquet or Arrow file begins; 0 if it is neither."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 10))
    end = file.read()
    magic = next(
        (magic_bytes for magic_bytes in (b"PAR1", b"ARROW1") if end.endswith(magic_bytes)), None
    )
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
    """An exclusive lock on writing to a folder. It ends with `release`, the `with` block, or the
    process. The file `.lock` of the folder names the owner.

    Raises:
        InputError: another process holds it; `.lock` is a link, or as `check_plain`.
        OSError: the file cannot be made.
    """

    NAME = ".lock"

    def __init__(self, folder: Path) -> None:
        import fcntl

        self._path = folder / self.NAME
        while True:
            self._file = open_plain(self._path, os.O_RDWR)
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                owner = os.read(self._file, 20).decode("ascii", "replace").strip()
                os.close(self._file)
                owner = owner if owner.isdecimal() else "(unknown)"
                raise InputError(
                    f"{folder}: process {owner} is writing to this folder: wait "
                    "until it ends, or choose another folder"
                ) from None
            if self._is_current():
                break
            os.close(self._file)
        os.ftruncate(self._file, 0)
        os.write(self._file, f"{os.getpid()}\n".encode())

    def _is_current(self) -> bool:
        """Whether the file still exists, since it may be removed before it is locked."""
        try:
            return os.path.samestat(os.fstat(self._file), os.stat(self._path))
        except FileNotFoundError:
            return False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        """Release the lock; a second call does nothing."""
        if self._file >= 0:
            self._path.unlink(missing_ok=True)
            os.close(self._file)
            self._file = -1


@contextmanager
def temporary_folder(within: str | None = None) -> Iterator[Path]:
    """Make a folder for the length of a block; those that killed processes have left go first.

    It is in a folder of this user alone, in the system's folder of temporary files or `within`
    another one; that of the user goes with the last folder in it.

    Raises:
        OSError: it cannot be made.
    """
    place = Path(within or tempfile.gettempdir())
    for path in _own_folders(place):
        for left in path.glob(f"{_LOCKED}/{Lock.NAME}"):
            with suppress(OSError, InputError), Lock(left.parent):  # its process has ended
                shutil.rmtree(left.parent, ignore_errors=True)
    made = _make_own(place)
    process = os.getpid()
    with Lock(made):  # under a name that no other process looks for
        folder = made.rename(made.with_name(made.name[1:]))
        try:
            yield folder
        finally:
            if os.getpid() == process:  # and no fork of it
                shutil.rmtree(folder, ignore_errors=True)
                with suppress(OSError):  # others are in it
                    folder.parent.rmdir()


def find_temporary(name: str) -> Path | None:
    """Return the file of a name in a temporary folder of this user, of whatever process."""
    for folder in _own_folders(Path(tempfile.gettempdir())):
        for path in folder.glob(f"{_LOCKED}/{escape(name)}"):
            return path
    return None


_LOCKED = "[!.]*"  # names of folders that are locked


def _own_name() -> str:
    return f"paracosm-{os.geteuid()}"


def _own_folders(place: Path) -> list[Path]:
    """Return the user's own folders in a place where others may write, too."""
    folders = []
    for folder in (place / _own_name(), *sorted(place.glob(f"{_own_name()}-*"))):
        with suppress(OSError):
            if _is_own(os.lstat(folder)):
                folders.append(folder)
    return folders


def _is_own(status: os.stat_result) -> bool:
    """Whether it is a folder, no link to one, in which nobody but this user can do anything."""
    is_private = not stat.S_IMODE(status.st_mode) & 0o077
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid() and is_private


def _make_own(place: Path) -> Path:
    """Make a folder in one of the user's own, which is made as well unless there is one.

    Where the name of that is taken by somebody else, or the file system does not know who owns
    what, it has a name that nobody could foresee.
    """
    name = f".{secrets.token_hex(4)}"
    with suppress(FileExistsError):
        (place / _own_name()).mkdir(mode=0o700)
    for folder in _own_folders(place):
        with suppress(OSError):  # it has gone with the last folder in it
            opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if _is_own(os.fstat(opened)):
                    os.mkdir(name, 0o700, dir_fd=opened)  # where nobody can put another one
                    return folder / name
            finally:
                os.close(opened)
    with suppress(OSError):  # it is somebody else's
        (place / _own_name()).rmdir()
    folder = Path(tempfile.mkdtemp(prefix=f"{_own_name()}-", dir=place)) / name
    folder.mkdir(mode=0o700)
    return folder
