"""Spans read from a file, held in memory or, for large files, on disk."""

import os
import struct
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from paracosm.arrays import Bools, Ints
from paracosm.errors import InputError

Table = npt.NDArray[Any]

CHUNK = 1 << 15  # spans that are read and written at once
HELD = 1 << 20  # spans up to which all are held in memory

ROW = np.dtype(
    [
        *(("begin", "<i8"), ("duration", "<i8")),  # nanoseconds
        *(("correlation", "<i8"), ("record", "<i8"), ("sequence", "<i8")),
        *(("name", "<i4"), ("lane", "<i4"), ("detail", "<i4"), ("category", "<i1")),  # codes
    ]
)
_PACKED = struct.Struct("<5q3ib")


class Rows:
    """Spans in the order of their file.

    Those on disk are in a file without a name, or, in a `folder`, in one that a process which gets
    these rows from another one takes over.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self.origin = 0  # nanoseconds at which the first one begins
        self._last = bytearray()  # those that are not yet in a chunk
        self._chunks: list[Table] = []  # those that are held
        self._file: IO[bytes] | None = None
        # Of each chunk, the first begin and the last end, and the lowest and highest correlation.
        self._times: list[tuple[int, int]] = []
        self._correlations: list[tuple[int, int]] = []
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def append(self, *values: int) -> None:
        """Append one span by its columns; ValueError if one is not a whole number."""
        try:
            self._last += _PACKED.pack(*values)
        except struct.error:
            raise ValueError from None
        self._count += 1
        if not self._count % CHUNK:
            self._put()

    def _put(self) -> None:
        rows = np.frombuffer(bytes(self._last), dtype=ROW)
        self._last.clear()
        first = int(rows["begin"].min())
        self.origin = min(self.origin, first) if self._times else first
        self._times.append((first, int((rows["begin"] + rows["duration"]).max())))
        self._correlations.append((int(rows["correlation"].min()), int(rows["correlation"].max())))
        self._chunks.append(rows)
        if self._count <= HELD:
            return
        try:
            if self._file is None:
                self._file = self._new_file()
            for chunk in self._chunks:
                self._file.write(chunk.tobytes())
        except OSError as error:
            raise InputError(
                f"no room for the spans of a large trace in {tempfile.gettempdir()}: "
                f"{error.strerror}: set TMPDIR to a folder on a larger disk"
            ) from None
        self._chunks = []

    def _new_file(self) -> IO[bytes]:
        if self._folder is None:
            return tempfile.TemporaryFile(prefix="paracosm-trace-")
        return tempfile.NamedTemporaryFile(dir=self._folder, delete=False)

    def __getstate__(self) -> dict[str, Any]:
        if self._file is not None:
            self._file.flush()
        return {**self.__dict__, "_file": None if self._file is None else self._file.name}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        if (name := state["_file"]) is not None:
            self._file = open(name, "a+b")  # noqa: SIM115
            os.unlink(name)

    def all(self) -> Table:
        return np.concatenate(list(self._read()))

    def where(
        self,
        wanted: Callable[[Table], Bools],
        times: tuple[int, int] | None = None,
        correlations: tuple[int, int] | None = None,
    ) -> Table:
        """Return the matching rows, skipping chunks that cannot have any."""
        tables = [np.empty(0, dtype=ROW)]
        limits = [(times, self._times), (correlations, self._correlations)]

        def may_have(number: int) -> bool:
            return all(
                asked is None or (has[number][0] <= asked[1] and has[number][1] >= asked[0])
                for asked, has in limits
            )

        tables += [rows[wanted(rows)] for rows in self._read(may_have)]
        return np.concatenate(tables)

    def counts(self, edges: Sequence[int]) -> Ints:
        """Return how many spans begin between edges, which ascend."""
        total = np.zeros(max(len(edges) - 1, 0), dtype=np.int64)
        for rows in self._read():
            total += np.diff(np.searchsorted(np.sort(rows["begin"]), edges))
        return total

    def counts_by(self, length: int) -> dict[int, int]:
        """Return how many spans begin in each stretch of so many nanoseconds that has some."""
        totals: dict[int, int] = {}
        for rows in self._read():
            stretches, counts = np.unique(rows["begin"] // length, return_counts=True)
            for stretch, count in zip(stretches.tolist(), counts.tolist(), strict=True):
                totals[stretch] = totals.get(stretch, 0) + count
        return totals

    def first(self, wanted: Callable[[Table], Bools]) -> int:
        """Return the first begin, in nanoseconds, of matching rows."""
        return min(
            int(begins.min()) for rows in self._read() if len(begins := rows["begin"][wanted(rows)])
        )

    def _read(self, wanted: Callable[[int], bool] = lambda number: True) -> Iterator[Table]:
        if self._last:
            self._put()
        for number in filter(wanted, range(len(self._times))):
            if self._file is None:
                yield self._chunks[number]
            else:
                self._file.seek(number * CHUNK * ROW.itemsize)
                yield np.frombuffer(self._file.read(CHUNK * ROW.itemsize), dtype=ROW)
