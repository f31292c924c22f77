"""How many bytes of a stream a port serves before another stream has its turn.

Two connections over the same way are kept full, and their receiver looks at which of them brings
bytes. Where ports serve streams in turn, bytes come in runs, now of the one and now of the other,
and a run is a turn: the quantum of `packets(SIZE)` in a cluster file. A look that finds bytes of
both tells nothing of their order; what was run before and after it does not count. Over loopback,
or where turns are shorter than what passes between two looks, nearly all looks do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from statistics import quantiles

from paracosm.profiling.nodes.exchange import Arrival, Peer

FEWEST = 20
"""Runs that tell a quantum, at least; they must have carried half of all bytes."""


@dataclass(frozen=True, slots=True)
class Turns:
    runs: tuple[int, ...]  # bytes of each run whose begin and end were seen
    total: int  # bytes that came in all

    @property
    def quantum(self) -> float | None:
        """Bytes of a turn, the median run; None where runs could not be told apart."""
        return self._quartiles()[1] if self._are_clear else None

    @property
    def spread(self) -> float | None:
        """(upper - lower quartile) / median of the runs."""
        if not self._are_clear:
            return None
        lower, median, upper = self._quartiles()
        return (upper - lower) / median

    @property
    def _are_clear(self) -> bool:
        return len(self.runs) >= FEWEST and 2 * sum(self.runs) >= self.total

    def _quartiles(self) -> tuple[float, float, float]:
        lower, median, upper = quantiles(self.runs, n=4)
        return lower, median, upper


def measure_turns(peer: Peer, seconds: float) -> Turns:
    """Return the turns of two connections over which a peer sends for so long, at once."""
    return turns_of(peer.exchange.ask_arrivals(seconds))


def turns_of(arrivals: Sequence[Arrival]) -> Turns:
    """Return the runs of what came over two connections, in the order in which it came."""
    runs: list[int] = []
    place, size, began = -1, 0, False  # of the run under way, and whether its begin was seen
    for _, look in groupby(arrivals, attrgetter("look")):
        found = list(look)
        if len(found) > 1:
            place, size, began = -1, 0, False
            continue
        if found[0].place == place:
            size += found[0].size
            continue
        if began:
            runs.append(size)
        began = place >= 0
        place, size = found[0].place, found[0].size
    return Turns(tuple(runs), sum(each.size for each in arrivals))
