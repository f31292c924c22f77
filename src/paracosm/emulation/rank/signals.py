"""Telling the emulator when the real rank waits no more, and when an iteration has ended."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

__all__ = ["Signals"]


class Signals:
    """Sends datagrams to the emulator: b"w" when a wait has ended, b"i" when an iteration has.

    An emulator that does not listen, or not yet, misses them; nothing is held up for it.
    """

    def __init__(self, records: Path) -> None:
        """Take the file that the emulator records to; it listens beside it."""
        self._address = f"{records}.signals"
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.setblocking(False)

    def wait_ended(self, now: float) -> None:
        """Tell that the real rank goes on."""
        self._send(b"w")

    def iteration_ended(self, now: float) -> None:
        """Tell that an optimizer has stepped."""
        self._send(b"i")

    def _send(self, message: bytes) -> None:
        with contextlib.suppress(OSError):
            self._socket.sendto(message, self._address)
