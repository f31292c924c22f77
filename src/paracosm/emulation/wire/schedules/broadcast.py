"""gloo's broadcast: a binomial tree (gloo/broadcast.cc).

With v the rank counted from the root, v > 0 receives from v without its highest bit, then sends to
v + 2^i for all i above that bit.
"""

from __future__ import annotations

from paracosm.emulation.wire.schedules.schedule import Members

__all__ = ["Broadcast", "root_of"]


def root_of(size: int, source: int, target: int) -> int:
    """Return the root of a broadcast in which one member sends to another.

    Several roots may explain it: rank 0 where it does, else the source itself.
    """
    step = (target - source) % size
    return 0 if target.bit_length() == step.bit_length() and source == target - step else source


class Broadcast:
    """When the data has come to every emulated member."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._root: int | None = None
        self._arrived: dict[int, float] = {}
        self._here: dict[tuple[int, int], float] = {}  # (member, bytes) -> instant

    @property
    def root(self) -> int:
        """The root, as far as it shows; -1 before any message."""
        return -1 if self._root is None else self._root

    def allows(self, source: int, target: int, index: int) -> bool:
        """Return whether the two are neighbours in the tree of some root, and of this one."""
        apart = (target - source) % self._members.size
        if index > 0 or apart == 0 or apart & (apart - 1):
            return False
        if self._root is None:
            real_sends = self._members.is_real(source)
            self._root = source if real_sends else root_of(self._members.size, source, target)
        return True

    def arrived(self, real: int, peer: int, index: int, size: int, now: float) -> None:
        """Learn that `peer` has the data."""
        self._arrived[peer] = now

    def send_at(self, peer: int, real: int, index: int, size: int) -> float | None:
        """Return when `peer` has the data."""
        return self._has(peer, size)

    def accept_at(self, peer: int, real: int, index: int) -> float | None:
        """Return when `peer` comes."""
        return self._members.entry(peer)

    def _has(self, member: int, size: int) -> float | None:
        entry = self._members.entry(member)
        virtual = (member - self.root) % self._members.size
        if virtual == 0:
            return entry
        known = self._here.get((member, size))
        if known is not None:
            return known
        parent = (virtual - (1 << (virtual.bit_length() - 1)) + self.root) % self._members.size
        if self._members.is_real(parent):
            came = self._arrived.get(member)
        else:
            sent = self._has(parent, size)
            came = None if sent is None else sent + self._members.hop(parent, member, size)
        if came is None:
            return None
        self._here[member, size] = max(entry, came)
        return self._here[member, size]
