"""The modelled speed of the real rank's own links, where they are faster than that."""

from __future__ import annotations

from paracosm.emulation.wire.hops import Hops

__all__ = ["Pace"]


class Pace:
    """Delays messages to and from a real member so that they take a link's modelled time.

    Each direction carries one message at a time: start = max(ready, free), free = start + busy,
    there = free + latency.
    """

    def __init__(self) -> None:
        self._free: dict[tuple[int, str], float] = {}

    def there(
        self, hops: Hops, source: int, target: int, size: int, ready: float, port: tuple[int, str]
    ) -> float:
        """Return when a message that is ready at an instant is there.

        Args:
            hops: of the group.
            source, target: ranks in the group.
            size: bytes.
            ready: instant.
            port: which port of a real rank it uses: global rank and direction.
        """
        latency, busy = hops.split(source, target, size)
        free = max(ready, self._free.get(port, ready)) + busy
        self._free[port] = free
        return free + latency
