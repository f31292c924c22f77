"""When the emulated members come to one operation."""

from __future__ import annotations

from collections.abc import Sequence

from paracosm.emulation.peers import Peers

__all__ = ["Entries"]


class Entries:
    """Asks `Peers` once for each member.

    Args:
        peers: of the job.
        members: global ranks by rank in the group.
        asked: when the first real member's message came.
        added: seconds that a what-if adds to operations of this kind.
    """

    def __init__(self, peers: Peers, members: Sequence[int], asked: float, added: float) -> None:
        self._peers = peers
        self._members = members
        self._asked = asked
        self._added = added
        self._known: dict[int, float] = {}

    def of(self, member: int) -> float:
        """Return when a member of the group comes."""
        known = self._known.get(member)
        if known is None:
            known = self._peers.entry(self._members[member], self._asked) + self._added
            self._known[member] = known
        return known

    @property
    def last(self) -> float:
        """The latest of those that were asked for."""
        return max(self._known.values(), default=self._asked)
