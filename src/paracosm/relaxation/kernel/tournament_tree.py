"""The tournament tree: the next update to complete."""

from typing import Any

import numpy as np

from paracosm.compiled import inlined, subroutine
from paracosm.relaxation.kernel.arrays import Clock


def new_clock(players: int) -> Clock:
    """Return a clock of `players`, all at infinity."""
    leaves = 1 << max(1, players - 1).bit_length()
    winner = np.zeros(2 * leaves, np.int32)
    winner[leaves:] = np.arange(leaves)
    clock = Clock(np.full(2 * leaves, np.inf), winner, np.zeros(leaves))
    rebuild.py_func(clock)
    return clock


@subroutine
def rebuild(clock: Any) -> None:
    """Play all matches again, after several keys changed."""
    key, winner = clock.key, clock.winner
    for node in range(winner.size // 2 - 1, 0, -1):
        best = 2 * node if key[2 * node] <= key[2 * node + 1] else 2 * node + 1
        key[node], winner[node] = key[best], winner[best]


@inlined
def set_key(clock: Any, player: Any, instant: Any) -> None:
    """Set the key of `player` to `instant`, and replay its matches up to the root."""
    key, winner = clock.key, clock.winner
    node = (winner.size >> 1) + player
    best = player
    key[node] = instant
    while node > 1:
        rival = key[node ^ 1]
        # A left child has the lower numbers below it, and wins ties; odd nodes are right children.
        if rival < instant or (rival == instant and node & 1):
            instant = rival
            best = winner[node ^ 1]
        node >>= 1
        key[node] = instant
        winner[node] = best
