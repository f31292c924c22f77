"""What collectives cost, in the alpha-beta model: on given links, and between workers of a cluster.

Of a cluster, the links and the algorithm are picked. Workers are given by their numbers, in the
order of their ranks in the group. In `hierarchical` clusters the outer link is each worker's own:
groups that cross machines at the same time do not slow each other down, as with one network adapter
for each accelerator.

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

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from paracosm.cluster.cluster import Cluster
from paracosm.cluster.link import Hierarchical, Link, Ring, Switch
from paracosm.errors import InputError, unknown

Ints = npt.NDArray[np.int64]
TimeOf = Callable[[float], float]
"""Seconds by the size in bytes."""
Way = Callable[[Cluster, Ints], TimeOf]

COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"),
    *("reduce", "gather", "scatter", "barrier", "permute"),
)


def collective_time(
    cluster: Cluster,
    workers: Sequence[int] | Ints,  # their numbers; where there is a root, it comes first
    collective: str,  # one of `COLLECTIVES`
    size: float,
    algorithm: str = "auto",  # one of `algorithms_of(collective)`, or the cheapest of them
) -> float:
    """Return the seconds that a collective takes on idle links when all have come to it.

    `size` is the bytes of the whole vector: what each has before an all-reduce, a reduction or a
    reduce-scatter, what each has after an all-gather or a broadcast, what each sends in an
    all-to-all or a permutation, what the root has before a scatter or after a gather; none in a
    barrier.

    Raises:
        InputError: a collective or an algorithm that is unknown; the topology does not join two
            workers that would exchange messages, or has no machines for "hierarchical".
    """
    ways = collective_times(cluster, workers, collective, algorithm)
    return min(time_of(size) for time_of in ways.values())


def collective_times(
    cluster: Cluster, workers: Sequence[int] | Ints, collective: str, algorithm: str = "auto"
) -> dict[str, TimeOf]:
    """Return what a collective takes by its size, for each algorithm that there are links for.

    To find the links of a large group takes far longer than to ask for the time of a size.
    """
    ways = algorithms_of(collective)
    if algorithm != "auto" and algorithm not in ways:
        raise unknown(f"algorithm for {collective}", algorithm, ways)
    tried = ways if algorithm == "auto" else (algorithm,)
    group = np.asarray(workers, dtype=np.int64)
    if len(group) < 2:
        return dict.fromkeys(tried, _nothing)
    times, refusals = {}, []
    for name in tried:
        try:
            times[name] = _WAYS[collective][name](cluster, group)
        except InputError as error:
            refusals.append(error)
    if not times:
        raise refusals[0]
    return times


def algorithms_of(collective: str) -> tuple[str, ...]:
    """Return the names of a collective's algorithms; InputError if it is none of `COLLECTIVES`."""
    if collective not in _WAYS:
        raise unknown("collective", collective, _WAYS)
    return tuple(_WAYS[collective])


def message_time(cluster: Cluster, source: int, target: int, size: float) -> float:
    """Return the seconds of a message from one worker to another, by their numbers."""
    return _link(cluster, source, target).transfer_time(size)


def group_classes(cluster: Cluster, groups: Ints) -> tuple[Ints, Ints]:
    """Return the class of each group (a row of workers), and a row of `groups` for each class.

    Groups of one class cost the same, whatever they communicate.
    """
    topology = cluster.topology
    shape = np.zeros((len(groups), 1), dtype=np.int64)
    if isinstance(topology, Hierarchical):
        machine = groups // topology.group_size
        shape = machine - machine[:, :1]
    elif isinstance(topology, Ring):
        shape = (groups - groups[:, :1]) % topology.size
    for number, (a, b) in enumerate(_overridden(cluster), start=1):
        touched = (groups == a).any(axis=1) & (groups == b).any(axis=1)
        own = np.where(touched, number * len(groups) + np.arange(len(groups)), 0)
        shape = np.column_stack((shape, own)) if touched.any() else shape
    _, first, number_of = np.unique(shape, axis=0, return_index=True, return_inverse=True)
    return number_of.reshape(-1).astype(np.int64), first.astype(np.int64)


def _nothing(size: float) -> float:
    return 0.0


def _ring(time: Callable[[int, float, list[Link]], float]) -> Way:
    def way(cluster: Cluster, group: Ints) -> TimeOf:
        links = _links(cluster, group, np.roll(group, -1))
        return lambda size: time(len(group), size, links)

    return way


def _ring_reduce(cluster: Cluster, group: Ints) -> TimeOf:
    links = _links(cluster, group, np.roll(group, -1))
    into_root = _links_of_root(cluster, group)
    return lambda size: ring_reduce(len(group), size, links, into_root)


def _tree(time: Callable[[int, float, list[Link]], float]) -> Way:
    def way(cluster: Cluster, group: Ints) -> TimeOf:
        links = _doubling_links(cluster, group)
        return lambda size: time(len(group), size, links)

    return way


def _linear(time: Callable[[float, list[Link]], float]) -> Way:
    def way(cluster: Cluster, group: Ints) -> TimeOf:
        links = _links_of_root(cluster, group)
        return lambda size: time(size, links)

    return way


def _hierarchical(time: Callable[[int, float, Links], float]) -> Way:
    """Return the way of a ring collective within machines, and of one of shares between them.

    As `hierarchical_all_reduce`; where machines have different numbers of ranks, each phase takes
    as long as for those that it takes longest for.
    """

    def way(cluster: Cluster, group: Ints) -> TimeOf:
        machines, most, fewest, link, outer = _machines(cluster, group)
        return lambda size: time(most, size, link) + time(machines, size / fewest, outer)

    return way


def _pairwise(cluster: Cluster, group: Ints) -> TimeOf:
    """Take p - 1 steps in which each sends `size` / p bytes to one other.

    In step k rank i sends to rank i + k (TRG, section 4.3).
    """
    ranks = len(group)
    if isinstance(cluster.topology, Switch) and not cluster.overrides:
        link = cluster.topology.link
        return lambda size: (ranks - 1) * link.exchange_time(size / ranks)
    # Most steps take the same links.
    steps = Counter(
        frozenset(_links(cluster, group, np.roll(group, -step))) for step in range(1, ranks)
    )
    return lambda size: sum(
        count * max(link.exchange_time(size / ranks) for link in links)
        for links, count in steps.items()
    )


def _dissemination(cluster: Cluster, group: Ints) -> TimeOf:
    distances = _powers_of_two(len(group))
    targets = np.concatenate([np.roll(group, -distance) for distance in distances])
    links = _links(cluster, np.tile(group, len(distances)), targets)
    return lambda size: dissemination_barrier(len(group), links)


def _machines(cluster: Cluster, group: Ints) -> tuple[int, int, int, list[Link], list[Link]]:
    """Return how many machines the group is on, the most and the fewest ranks on one, and links.

    The links are those between neighbours within machines, and between the first ranks of machines.
    """
    topology = cluster.topology
    if not isinstance(topology, Hierarchical):
        raise InputError(
            f"algorithm hierarchical needs machines of several workers: topology hierarchical, not "
            f"{topology.name}"
        )
    machine = group // topology.group_size
    _, first, counts = np.unique(machine, return_index=True, return_counts=True)
    within = np.flatnonzero(machine[:-1] == machine[1:])
    leaders = group[np.sort(first)]
    return (
        len(counts),
        int(counts.max()),
        int(counts.min()),
        _links(cluster, group[within], group[within + 1]) if len(within) else [topology.link],
        _links(cluster, leaders, np.roll(leaders, -1)) if len(leaders) > 1 else [topology.outer],
    )


def _doubling_links(cluster: Cluster, group: Ints) -> list[Link]:
    """Return the links between ranks whose distance is a power of two."""
    distances = _powers_of_two(len(group))
    sources = np.concatenate([group[: len(group) - distance] for distance in distances])
    targets = np.concatenate([group[distance:] for distance in distances])
    return _links(cluster, sources, targets)


def _powers_of_two(below: int) -> list[int]:
    return [1 << power for power in range((below - 1).bit_length())]


def _links_of_root(cluster: Cluster, group: Ints) -> list[Link]:
    """Return the link of the first of the group with each of the others."""
    return [_link(cluster, int(group[0]), int(other)) for other in group[1:]]


def _links(cluster: Cluster, sources: Ints, targets: Ints) -> list[Link]:
    """Return the distinct links between these pairs of workers."""
    topology = cluster.topology
    if isinstance(topology, Hierarchical):
        kind = sources // topology.group_size != targets // topology.group_size
    elif isinstance(topology, Ring):
        kind = ~np.isin((sources - targets) % topology.size, (1, topology.size - 1))
    else:
        kind = np.zeros(len(sources), dtype=np.bool_)
    special = np.zeros(len(sources), dtype=np.bool_)
    for a, b in _overridden(cluster):
        special |= ((sources == a) & (targets == b)) | ((sources == b) & (targets == a))
    usual = np.flatnonzero(~special)
    _, examples = np.unique(kind[usual], return_index=True)
    pairs = np.concatenate((usual[examples], np.flatnonzero(special)))
    found = [_link(cluster, int(sources[pair]), int(targets[pair])) for pair in pairs]
    return list(dict.fromkeys(found))


def _overridden(cluster: Cluster) -> list[tuple[int, int]]:
    """Return the pairs of workers with a link of their own, by their numbers."""
    position = {name: number for number, name in enumerate(cluster.workers)}
    return [
        (position[a], position[b])
        for a, b, _ in cluster.overrides
        if a in position and b in position
    ]


def _link(cluster: Cluster, source: int, target: int) -> Link:
    return cluster.link(cluster.workers[source], cluster.workers[target])


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
    """Return the seconds of a ring all-gather of `size` bytes in all, as above (TRG, 4.1)."""
    return ring_reduce_scatter(ranks, size, link)


def ring_permute(ranks: int, size: float, link: Links) -> float:
    """Return the seconds in which each rank sends `size` bytes to the next one around a ring."""
    _check(ranks, size)
    return _exchange(link, size)


def tree_broadcast(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree broadcast: ceil(log2 p) steps of `size` (TRG, 4.2)."""
    _check(ranks, size)
    return (ranks - 1).bit_length() * _step(link, size)


def tree_reduce(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree reduction: a broadcast backwards (TRG, section 4.5)."""
    return tree_broadcast(ranks, size, link)


def ring_reduce(ranks: int, size: float, link: Links, into_root: Sequence[Link]) -> float:
    """Return the seconds of gloo's: a ring reduce-scatter, then a linear gather `into_root`."""
    return ring_reduce_scatter(ranks, size, link) + linear_gather(size, into_root)


def tree_scatter(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree scatter of `size` bytes in all.

    The root sends ceil(log2 p) messages, to a rank at distance 2^k the shares of as many ranks as
    there are in that rank's subtree; they are p - 1 shares of `size` / p (CHPG, section 4.1,
    minimum-spanning-tree scatter). No other rank is busy for longer.
    """
    _check(ranks, size)
    shares = (min(distance, ranks - distance) for distance in _powers_of_two(ranks))
    return sum(_step(link, size * share / ranks) for share in shares)


def tree_gather(ranks: int, size: float, link: Links) -> float:
    """Return the seconds of a binomial-tree gather of `size` bytes in all: a scatter backwards."""
    return tree_scatter(ranks, size, link)


def linear_scatter(size: float, links: Sequence[Link]) -> float:
    """Return the seconds in which a root sends each other rank its share, one after the other.

    `links` are those to the p - 1 others, in turn; a share is `size` / p bytes. The latencies of
    pipelined links overlap. So gloo and NCCL scatter and gather.
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


_GATHER = {"ring": _ring(ring_all_gather), "hierarchical": _hierarchical(ring_all_gather)}
_WAYS: dict[str, dict[str, Way]] = {
    "all_reduce": {
        "ring": _ring(ring_all_reduce),
        "tree": _tree(tree_all_reduce),
        "hierarchical": _hierarchical(ring_all_reduce),
        "halving-doubling": _tree(halving_doubling_all_reduce),
    },
    "all_gather": _GATHER,
    "reduce_scatter": _GATHER,
    "all_to_all": {"pairwise": _pairwise},
    "broadcast": {"tree": _tree(tree_broadcast)},
    "reduce": {"tree": _tree(tree_reduce), "ring": _ring_reduce},
    "gather": {"tree": _tree(tree_gather), "linear": _linear(linear_gather)},
    "scatter": {"tree": _tree(tree_scatter), "linear": _linear(linear_scatter)},
    "barrier": {"dissemination": _dissemination},
    "permute": {"ring": _ring(ring_permute)},
}
