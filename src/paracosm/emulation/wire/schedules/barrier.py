"""gloo's barrier: dissemination in ceil(log2 W) rounds (gloo/barrier.cc).

In round k a member sends to the one 2^k after it and receives from the one 2^k before it; it goes
on when both are done.
"""

from __future__ import annotations

from paracosm.emulation.wire.schedules.schedule import Members

__all__ = ["Barrier"]


class Barrier:
    """When every emulated member begins each round."""

    def __init__(self, members: Members) -> None:
        self._members = members
        self._arrived: dict[tuple[int, int], float] = {}  # (round, receiver) -> instant
        self._begun: dict[tuple[int, int], float] = {}  # (round, member) -> instant

    def allows(self, source: int, target: int, index: int) -> bool:
        """Return whether the two are a power of 2 apart."""
        apart = (target - source) % self._members.size
        return index == 0 and apart & (apart - 1) == 0 and apart > 0

    def arrived(self, real: int, peer: int, index: int, size: int, now: float) -> None:
        """Learn that `peer` has what it waits for in a round."""
        self._arrived[self._round(real, peer), peer] = now

    def send_at(self, peer: int, real: int, index: int, size: int) -> float | None:
        """Return when `peer` begins the round in which it sends to `real`."""
        return self._begin(self._round(peer, real), peer)

    def accept_at(self, peer: int, real: int, index: int) -> float | None:
        """Return when `peer` begins the round in which it receives from `real`."""
        return self._begin(self._round(real, peer), peer)

    def _round(self, source: int, target: int) -> int:
        return ((target - source) % self._members.size).bit_length() - 1

    def _begin(self, number: int, member: int) -> float | None:
        if number == 0:
            return self._members.entry(member)
        known = self._begun.get((number, member))
        if known is not None:
            return known
        before = self._begin(number - 1, member)
        source = (member - (1 << (number - 1))) % self._members.size
        if self._members.is_real(source):
            came = self._arrived.get((number - 1, member))
        else:
            sent = self._begin(number - 1, source)
            came = None if sent is None else sent + self._members.hop(source, member, 0)
        if before is None or came is None:
            return None
        self._begun[number, member] = max(before, came)
        return self._begun[number, member]
