"""Parameters on several servers, by their bytes."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["smallest_first"]


def smallest_first(sizes: Sequence[float], servers: int) -> list[int]:
    """Return the server of each parameter: the one that holds least so far (Li et al. 2020,
    section 5); of several, the first.

    Args:
        sizes: bytes, in the order in which parameters are placed.
        servers: how many.
    """
    held = [0.0] * servers
    found = []
    for size in sizes:
        server = held.index(min(held))
        held[server] += size
        found.append(server)
    return found
