"""gloo's reduce: the first half of its ring all-reduce, then every rank sends its part to the root.

The parts are whole chunks of all segments of a rank (gloo/reduce.cc).
"""

from __future__ import annotations

from paracosm.emulation.wire.schedules.ring import Ring
from paracosm.emulation.wire.schedules.schedule import Members

__all__ = ["RingReduce"]


class RingReduce(Ring):
    """The ring of a reduce, and the messages to its root."""

    def __init__(self, members: Members) -> None:
        super().__init__(members, -1, 2, 1)
        self._size = members.size
        self._entry = members.entry
        self._last: dict[int, tuple[int, int]] = {}  # by real member: index, bytes

    @property
    def half(self) -> int:
        """Messages of the ring, before those to the root."""
        return (self._size - 1) * self.lag

    def allows(self, source: int, target: int, index: int) -> bool:
        """Return whether it belongs to the ring or goes to a root."""
        return super().allows(source, target, index) or index == 0

    def is_part(self, source: int, target: int, index: int) -> bool:
        """Return whether a message goes to the root, after the ring."""
        return not super().allows(source, target, index) or index >= self.half

    def arrived(self, real: int, peer: int, index: int, size: int, now: float) -> None:
        """Learn that a message of the ring, or of a real member's part, has come."""
        if not self.is_part(real, peer, index):
            super().arrived(real, peer, index, size, now)
            self._last[real] = index, size

    def send_at(self, peer: int, real: int, index: int, size: int) -> float | None:
        """Return when `peer` has what it sends in the ring, or its part."""
        if not self.is_part(peer, real, index):
            return super().send_at(peer, real, index, size)
        before = self.source_of(peer)
        if before not in self._last:
            return self._entry(peer)
        last, length = self._last[before]
        # The last message of the ring to `peer` was this one where it left the real member.
        away = (before - peer) % self._size
        return self.passed_at(peer, min(last, self.half - 1 - (away - 1) * self.lag), length)

    def accept_at(self, peer: int, real: int, index: int) -> float | None:
        """Return when `peer` is ready to receive."""
        if self.is_part(real, peer, index):
            return self._entry(peer)
        return super().accept_at(peer, real, index)
