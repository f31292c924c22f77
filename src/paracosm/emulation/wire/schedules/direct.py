"""Operations whose messages wait for nothing but their sender: gather, scatter, all-to-all.

gloo posts all of them at once (gloo/gather.cc, scatter.cc, alltoall.cc, alltoallv.cc).
"""

from __future__ import annotations

from paracosm.emulation.wire.schedules.schedule import Members

__all__ = ["Direct", "Loose"]


class Direct:
    """Every member has at most one message for any other, and sends when it comes."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def allows(self, source: int, target: int, index: int) -> bool:
        """Return whether it is the only message from one to the other."""
        return source != target and index == 0

    def arrived(self, real: int, peer: int, index: int, size: int, now: float) -> None:
        """Nothing waits for it."""

    def send_at(self, peer: int, real: int, index: int, size: int) -> float | None:
        """Return when `peer` comes."""
        return self._members.entry(peer)

    def accept_at(self, peer: int, real: int, index: int) -> float | None:
        """Return when `peer` comes."""
        return self._members.entry(peer)


class Loose(Direct):
    """An operation whose algorithm cannot be followed: everything is answered at once."""

    def allows(self, source: int, target: int, index: int) -> bool:
        """Return that nothing is known against it."""
        return True
