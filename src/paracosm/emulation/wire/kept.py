"""Room for what real ranks sent and will be sent back; bounded."""

from __future__ import annotations

from paracosm.emulation.wire.connection import Kept

__all__ = ["Room"]

MOST = 1 << 30
"""Bytes that are kept at a time; a real rank's data beyond that is answered with zeros."""

_SPARE = 64 << 20  # bytes of buffers that wait to be used again: fresh ones cost page faults


class Room:
    """Buffers for data, up to a limit.

    Attributes:
        refused: how many times there was no room.
    """

    def __init__(self, most: int = MOST) -> None:
        self.refused = 0
        self._left = most
        self._spare: dict[int, list[Kept]] = {}
        self._spared = 0

    def take(self, length: int) -> Kept | None:
        """Return a buffer; None where there is no more room."""
        if length > self._left:
            self.refused += 1
            return None
        self._left -= length
        spare = self._spare.get(length)
        if spare:
            self._spared -= length
            kept = spare.pop()
            kept.got = 0
            return kept
        return Kept(length)

    def give(self, kept: Kept) -> None:
        """Take a buffer back that nobody reads any more."""
        length = len(kept.data)
        self._left += length
        if self._spared + length <= _SPARE:
            self._spared += length
            kept.readers = []
            self._spare.setdefault(length, []).append(kept)
