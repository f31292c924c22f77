"""What collective operations cost, in the alpha-beta model: seconds for a message to start, and
seconds per byte.

`size` is always that of the whole vector, in bytes. Steps follow each other, and each step costs
what its messages cost on an idle link: `link.transfer_time(bytes)`; where every rank sends and
receives at a time `link.exchange_time(bytes)`, which is longer with half duplex. Where several
links are given, every step waits for the slowest. The arithmetic of a reduction is not counted. On
a constant link, `Link.constant(seconds)`, every function returns its number of steps times
`seconds`.

Sources: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
MPICH", 2005 (below: TRG); Patarasuk, Yuan, "Bandwidth Optimal All-reduce Algorithms for Clusters of
Workstations", 2009; Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory,
practice, and experience", 2007 (CHPG); Hensgen, Finkel, Manber, "Two Algorithms for Barrier
Synchronization", 1988.
"""

from __future__ import annotations

from collections.abc import Sequence

from paracosm.cluster.link import Link
from paracosm.errors import InputError

__all__ = [
    "dissemination_barrier",
    "halving_doubling_all_reduce",
    "hierarchical_all_reduce",
    "linear_gather",
    "linear_scatter",
    "ring_all_gather",
    "ring_all_reduce",
    "ring_reduce",
    "ring_reduce_scatter",
    "tree_all_reduce",
    "tree_broadcast",
    "tree_gather",
    "tree_reduce",
    "tree_scatter",
]

Links = Link | Sequence[Link]


def ring_all_reduce(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a ring all-reduce: a reduce-scatter, then an all-gather.

    2 (p - 1) steps of `size` / p bytes (Patarasuk and Yuan 2009, section 3; the least bytes that
    any algorithm can move).
    """
    return ring_reduce_scatter(ranks, size, link) + ring_all_gather(ranks, size, link)


def ring_reduce_scatter(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a ring reduce-scatter: p - 1 steps of `size` / p bytes (TRG, 4.1)."""
    _check(ranks, size)
    return (ranks - 1) * _exchange(link, size / ranks)


def ring_all_gather(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a ring all-gather of `size` bytes in all: p - 1 steps of `size` / p.

    Source: TRG, section 4.1.
    """
    return ring_reduce_scatter(ranks, size, link)


def tree_broadcast(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree broadcast: ceil(log2 p) steps of `size` bytes.

    Source: TRG, section 4.2.
    """
    _check(ranks, size)
    return (ranks - 1).bit_length() * _step(link, size)


def tree_reduce(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree reduction: a broadcast backwards (TRG, section 4.5)."""
    return tree_broadcast(ranks, size, link)


def ring_reduce(ranks: int, size: float, link: Links, into_root: Sequence[Link]) -> float:
    """Return the seconds of a ring reduce-scatter over `link`, then a linear gather `into_root`.

    So gloo reduces.
    """
    return ring_reduce_scatter(ranks, size, link) + linear_gather(size, into_root)


def tree_scatter(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree scatter of `size` bytes in all.

    The root sends ceil(log2 p) messages, to a rank at distance 2^k the shares of as many ranks as
    there are in that rank's subtree; they are p - 1 shares of `size` / p (CHPG, section 4.1,
    minimum-spanning-tree scatter). No other rank is busy for longer.
    """
    _check(ranks, size)
    distances = (1 << power for power in range((ranks - 1).bit_length()))
    shares = (min(distance, ranks - distance) for distance in distances)
    return sum(_step(link, size * share / ranks) for share in shares)


def tree_gather(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree gather of `size` bytes in all: a scatter backwards."""
    return tree_scatter(ranks, size, link)


def linear_scatter(size: float, links: Sequence[Link]) -> float:
    """Return the seconds in which a root sends each other rank its share, one after the other.

    `links` are those to the p - 1 others, in turn; a share is `size` / p bytes. A message leaves as
    soon as the root's port is free: the latencies of pipelined links overlap. So gloo and NCCL
    scatter and gather.
    """
    _check(len(links) + 1, size)
    share = size / (len(links) + 1)
    free = there = 0.0
    for link in links:
        free += link.occupancy(share)
        there = max(there, free + link.propagation(share))
    return there


def linear_gather(size: float, links: Sequence[Link]) -> float:
    """Return the seconds in which each other rank sends a root its share: a scatter backwards."""
    return linear_scatter(size, links)


def dissemination_barrier(ranks: int, link: Links) -> float:
    """Return the seconds of a dissemination barrier: ceil(log2 p) exchanges of empty messages.

    In step k rank i signals to rank i + 2^k and waits for rank i - 2^k (Hensgen, Finkel and Manber
    1988).
    """
    _check(ranks, 0.0)
    return (ranks - 1).bit_length() * _exchange(link, 0.0)


def tree_all_reduce(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree reduction, then a binomial-tree broadcast.

    2 ceil(log2 p) steps of `size` bytes (TRG, sections 4.2 and 4.4).
    """
    return 2 * tree_broadcast(ranks, size, link)


def halving_doubling_all_reduce(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of Rabenseifner's all-reduce: recursive halving, then recursive doubling.

    For a power of two, log2 p steps of `size` / 2, `size` / 4, ... bytes, and the same back (TRG,
    section 4.5). Otherwise the ranks beyond the power of two below first hand their vector to a
    partner, and get the result from it at the end: two steps more, of `size` bytes.
    """
    _check(ranks, size)
    doublings = ranks.bit_length() - 1
    halves = sum(_exchange(link, size / 2**step) for step in range(1, doublings + 1))
    extra = _step(link, size) if ranks > 2**doublings else 0.0
    return 2 * (halves + extra)


def hierarchical_all_reduce(
    groups: int, group_size: int, size: float, link: Links, outer: Links
) -> float:
    """Return the seconds of an all-reduce over `groups` of `group_size` ranks each.

    A ring reduce-scatter over `link` within each group; ring all-reduces over `outer` between the
    groups, one for each rank of a group, on its share of `size` / `group_size` bytes; a ring
    all-gather within each group. The ring all-reduces between groups run side by side and do not
    slow each other down: each rank has its own way out.
    """
    within = ring_all_reduce(group_size, size, link)
    return within + ring_all_reduce(groups, size / group_size, outer)


def _exchange(links: Links, size: float) -> float:
    """Return the seconds of one step in which every rank sends `size` bytes and gets as many."""
    if isinstance(links, Link):
        return links.exchange_time(size)
    return max(link.exchange_time(size) for link in links)


def _step(links: Links, size: float) -> float:
    """Return the seconds of one step in which `size` bytes pass over each of the links, one way."""
    if isinstance(links, Link):
        return links.transfer_time(size)
    return max(link.transfer_time(size) for link in links)


def _check(ranks: int, size: float) -> None:
    if ranks < 1:
        raise InputError(f"a collective needs at least 1 rank, not {ranks}")
    if not size >= 0:
        raise InputError(f"the size of a collective must be 0 or more, not {size}")
