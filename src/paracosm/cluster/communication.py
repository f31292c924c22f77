"""What a collective between given workers of a cluster costs: picks links and algorithm.

Workers are given by their numbers, in the order of their ranks in the group. In `hierarchical`
clusters the outer link is each worker's own: groups that cross machines at the same time do not
slow each other down, as with one network adapter for each accelerator.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from paracosm.cluster.cluster import Cluster
from paracosm.cluster.collectives import (
    dissemination_barrier,
    halving_doubling_all_reduce,
    linear_gather,
    linear_scatter,
    ring_all_gather,
    ring_all_reduce,
    ring_reduce,
    tree_all_reduce,
    tree_broadcast,
    tree_gather,
    tree_reduce,
    tree_scatter,
)
from paracosm.cluster.link import Link
from paracosm.cluster.topology import Hierarchical, Ring, Switch
from paracosm.errors import InputError, unknown

__all__ = [
    "COLLECTIVES",
    "algorithms_of",
    "collective_time",
    "collective_times",
    "group_classes",
    "message_time",
]

Ints = npt.NDArray[np.int64]
TimeOf = Callable[[float], float]
"""Seconds by the size in bytes."""

COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"),
    *("reduce", "gather", "scatter", "barrier"),
)


def collective_time(
    cluster: Cluster,
    workers: Sequence[int] | Ints,
    collective: str,
    size: float,
    algorithm: str = "auto",
) -> float:
    """Return the seconds that a collective takes on idle links when all have come to it.

    Args:
        cluster: whose workers.
        workers: their numbers; where there is a root, it comes first.
        collective: one of `COLLECTIVES`.
        size: bytes of the whole vector: what each has before an all-reduce, a reduction or a
            reduce-scatter, what each has after an all-gather or a broadcast, what each sends in an
            all-to-all, what the root has before a scatter or after a gather; none in a barrier.
        algorithm: "ring", "tree", "hierarchical", "halving-doubling" for an all-reduce; "ring" and
            "hierarchical" for an all-gather and a reduce-scatter; "pairwise" for an all-to-all;
            "tree" for a broadcast; "tree" and "ring" for a reduction; "tree" and "linear" to gather
            and to scatter; "dissemination" for a barrier. "auto" is the cheapest of them.

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

    Arguments and errors are those of `collective_time`; only the named algorithm, unless it is
    "auto". To find the links of a large group takes far longer than to ask for the time of a size.
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
    """Return the names of a collective's algorithms.

    Raises:
        InputError: it is not one of `COLLECTIVES`.
    """
    if collective not in _WAYS:
        raise unknown("collective", collective, _WAYS)
    return tuple(_WAYS[collective])


def message_time(cluster: Cluster, source: int, target: int, size: float) -> float:
    """Return the seconds of a message from one worker to another, by their numbers.

    Raises:
        InputError: nothing joins the two.
    """
    return _link(cluster, source, target).transfer_time(size)


def group_classes(cluster: Cluster, groups: Ints) -> tuple[Ints, Ints]:
    """Return which groups of workers cost the same, whatever they communicate.

    Args:
        groups: one row of workers for each group.

    Returns:
        The number of the class of each group, and a row of `groups` for each class.
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


def _ring(cluster: Cluster, group: Ints) -> TimeOf:
    links = _links(cluster, group, np.roll(group, -1))
    return lambda size: ring_all_reduce(len(group), size, links)


def _ring_gather(cluster: Cluster, group: Ints) -> TimeOf:
    links = _links(cluster, group, np.roll(group, -1))
    return lambda size: ring_all_gather(len(group), size, links)


def _ring_reduce(cluster: Cluster, group: Ints) -> TimeOf:
    links = _links(cluster, group, np.roll(group, -1))
    into_root = _links_of_root(cluster, group)
    return lambda size: ring_reduce(len(group), size, links, into_root)


def _halving_doubling(cluster: Cluster, group: Ints) -> TimeOf:
    links = _doubling_links(cluster, group)
    return lambda size: halving_doubling_all_reduce(len(group), size, links)


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


def _hierarchical(cluster: Cluster, group: Ints) -> TimeOf:
    """Scatter within the machine, all-reduce between machines, gather within the machine.

    As `hierarchical_all_reduce`; where machines have different numbers of ranks, each phase takes
    as long as for those that it takes longest for.
    """
    machines, most, fewest, link, outer = _machines(cluster, group)
    return lambda size: (
        ring_all_reduce(most, size, link) + ring_all_reduce(machines, size / fewest, outer)
    )


def _hierarchical_gather(cluster: Cluster, group: Ints) -> TimeOf:
    """Gather the shares of one rank of each machine, then those within the machine."""
    machines, most, fewest, link, outer = _machines(cluster, group)
    return lambda size: (
        ring_all_gather(most, size, link) + ring_all_gather(machines, size / fewest, outer)
    )


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
    distances = [1 << power for power in range((len(group) - 1).bit_length())]
    targets = np.concatenate([np.roll(group, -distance) for distance in distances])
    links = _links(cluster, np.tile(group, len(distances)), targets)
    return lambda size: dissemination_barrier(len(group), links)


Way = Callable[[Cluster, Ints], TimeOf]
_WAYS: dict[str, dict[str, Way]] = {
    "all_reduce": {
        "ring": _ring,
        "tree": _tree(tree_all_reduce),
        "hierarchical": _hierarchical,
        "halving-doubling": _halving_doubling,
    },
    "all_gather": {"ring": _ring_gather, "hierarchical": _hierarchical_gather},
    "reduce_scatter": {"ring": _ring_gather, "hierarchical": _hierarchical_gather},
    "all_to_all": {"pairwise": _pairwise},
    "broadcast": {"tree": _tree(tree_broadcast)},
    "reduce": {"tree": _tree(tree_reduce), "ring": _ring_reduce},
    "gather": {"tree": _tree(tree_gather), "linear": _linear(linear_gather)},
    "scatter": {"tree": _tree(tree_scatter), "linear": _linear(linear_scatter)},
    "barrier": {"dissemination": _dissemination},
}


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
    distances = [1 << power for power in range((len(group) - 1).bit_length())]
    sources = np.concatenate([group[: len(group) - distance] for distance in distances])
    targets = np.concatenate([group[distance:] for distance in distances])
    return _links(cluster, sources, targets)


def _links_of_root(cluster: Cluster, group: Ints) -> list[Link]:
    """Return the link of the first of the group with each of the others."""
    return [_link(cluster, int(group[0]), int(other)) for other in group[1:]]


def _links(cluster: Cluster, sources: Ints, targets: Ints) -> list[Link]:
    """Return the distinct links between these pairs of workers.

    Raises:
        InputError: nothing joins two of them.
    """
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
