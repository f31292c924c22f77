"""The modelled speed of the real ranks' own links, where they are faster than that."""

from __future__ import annotations

import time

from paracosm.cluster.link import Sharing
from paracosm.emulation.ports import Ports, Span
from paracosm.emulation.wire.hops import Hops

__all__ = ["Pace"]


class Pace:
    """Delays messages to and from real members so that they take a link's modelled time.

    Args:
        sharing: how those that are under way at one time have a real rank's link.
    """

    def __init__(self, sharing: Sharing) -> None:
        self._sharing = sharing
        self._ports: dict[int, Ports] = {}  # by global rank

    def there(
        self, hops: Hops, ends: tuple[int, int], size: int, ready: float, real: int, rank: int
    ) -> Span:
        """Return when a message that is ready at an instant is there, as far as is known.

        Args:
            hops: of the group.
            ends: who sends and who receives, by their ranks in the group.
            size: bytes.
            ready: instant.
            real: which of the two is the real one.
            rank: its global rank.
        """
        ports = self._ports.setdefault(rank, Ports(self._sharing))
        cost = hops.cost(*ends, size, real)
        return ports.ask(0, (id(hops), ends), 1, time.monotonic(), ready, cost)
