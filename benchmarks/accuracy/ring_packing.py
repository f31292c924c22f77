"""How many rings fit side by side on the links of a machine whose GPUs are not all joined alike.

NCCL looks for as many as there are, each link in each direction belonging to one ring at most, and
deals a vector out to them (`src/graph/search.cc`): an all-reduce has their bandwidths together. On
a machine of eight V100 (a hybrid cube mesh of NVLinks) it is 1, 2, 4, 2, 4 and 6 rings for the
first 2, 3, 4, 6, 7 and 8 GPUs, and none for 5.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping

__all__ = ["rings_within"]

Edge = frozenset[int]


def rings_within(links: Mapping[tuple[int, int], int], ranks: int) -> int:
    """Return the most one-way rings through ranks 0 to `ranks` - 1 that share no link.

    A link carries one ring each way. All cycles through all ranks are tried, which is quick for the
    GPUs of one machine and no more.

    Args:
        links: their number for each pair of ranks that is joined.
        ranks: in each ring, at least 2.
    """
    free: Counter[Edge] = Counter()
    for pair, count in links.items():
        if max(pair) < ranks:
            free[frozenset(pair)] += count
    if ranks == 2:
        return free[frozenset((0, 1))]
    cycles = sorted(
        {tuple(sorted(map(tuple, map(sorted, cycle)))) for cycle in _cycles(free, ranks)}
    )
    return 2 * _most([[frozenset(edge) for edge in cycle] for cycle in cycles], free, 0)


def _cycles(free: Counter[Edge], ranks: int) -> Iterator[list[Edge]]:
    """Yield the edges of every cycle through all ranks, in both directions."""
    paths = [[0]]
    while paths:
        path = paths.pop()
        here = path[-1]
        if len(path) == ranks:
            if free[frozenset((here, 0))]:
                yield [frozenset(pair) for pair in zip(path, [*path[1:], 0], strict=True)]
            continue
        for there in range(ranks):
            if there not in path and free[frozenset((here, there))]:
                paths.append([*path, there])


def _most(cycles: list[list[Edge]], free: Counter[Edge], first: int) -> int:
    """Return how many of the cycles from `first` on, each as often as may be, fit together."""
    best = 0
    for index in range(first, len(cycles)):
        if all(free[edge] for edge in cycles[index]):
            free.subtract(cycles[index])
            best = max(best, 1 + _most(cycles, free, index))
            free.update(cycles[index])
    return best
