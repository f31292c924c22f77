"""When the real rank waits for communication, and that it goes on."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

from paracosm.emulation.records import RecordWriter, Wait

__all__ = ["Waits"]


class Waits:
    """Records the waits of one rank.

    A wait within a wait of the same thread is part of it. Whatever waits says so in one of three
    ways: it is wrapped (`watched`), it calls `begin` and `end`, or it calls `add` afterwards.
    """

    def __init__(
        self, recorder: RecordWriter, rank: int, ended: Callable[[float], None] | None = None
    ) -> None:
        """Take the file to record to, and who is told the instant at which each wait ended."""
        self._recorder = recorder
        self._rank = rank
        self._ended = ended
        self._open = _Open()

    def begin(self) -> None:
        """Say that this thread begins to wait."""
        if self._open.depth == 0:
            self._open.begin = time.monotonic()
        self._open.depth += 1

    def end(self) -> None:
        """Say that it has waited."""
        self._open.depth -= 1
        if self._open.depth == 0:
            self._record(self._open.begin, time.monotonic())

    def add(self, begin: float, end: float) -> None:
        """Say that this thread has waited, in seconds of `time.monotonic`."""
        if self._open.depth == 0:
            self._record(begin, end)

    def watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a function that does the same and counts all of it as a wait."""

        @wraps(call)
        def waiting(*args: Any, **kwargs: Any) -> Any:
            self.begin()
            try:
                return call(*args, **kwargs)
            finally:
                self.end()

        return waiting

    def _record(self, begin: float, end: float) -> None:
        self._recorder.append(Wait(self._rank, begin, end))
        if self._ended is not None:
            self._ended(end)


class _Open(threading.local):
    """The wait that a thread is in."""

    depth = 0
    begin = 0.0
