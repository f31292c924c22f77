"""What a collective between given workers of a cluster costs: picks links and algorithm.

Workers are given by their numbers, in the order of their ranks in the group. In `hierarchical`
clusters the outer link is each worker's own: groups that cross machines at the same time do not
slow each other down, as with one network adapter for each accelerator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from paracosm.cluster.cluster import Cluster
from paracosm.cluster.collectives import (
    halving_doubling_all_reduce,
    ring_all_gather,
    ring_all_reduce,
    tree_all_reduce,
    tree_broadcast,
)
from paracosm.cluster.link import Link
from paracosm.cluster.topology import Hierarchical, Ring, Switch
from paracosm.errors import InputError, unknown

__all__ = ["COLLECTIVES", "collective_time", "group_classes", "message_time"]

Ints = npt.NDArray[np.int64]
Way = Callable[[Cluster, Ints, float], float]

COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast")


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
        workers: their numbers.
        collective: one of `COLLECTIVES`.
        size: bytes of the whole vector: what each has before an all-reduce or a reduce-scatter,
            what each has after an all-gather or a broadcast, what each sends in an all-to-all.
        algorithm: "ring", "tree", "hierarchical", "halving-doubling" for an all-reduce; "ring" and
            "hierarchical" to gather and to scatter; "pairwise" for an all-to-all; "tree" for a
            broadcast. "auto" is the cheapest of them.

    Raises:
        InputError: a collective or an algorithm that is unknown; the topology does not join two
            workers that would exchange messages, or has no machines for "hierarchical".
    """
    if collective not in _WAYS:
        raise unknown("collective", collective, _WAYS)
    ways = _WAYS[collective]
    group = np.asarray(workers, dtype=np.int64)
    if algorithm != "auto":
        if algorithm not in ways:
            raise unknown(f"algorithm for {collective}", algorithm, ways)
        return ways[algorithm](cluster, group, size) if len(group) > 1 else 0.0
    return _cheapest(cluster, group, size, ways) if len(group) > 1 else 0.0


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


def _cheapest(cluster: Cluster, group: Ints, size: float, ways: dict[str, Way]) -> float:
    """Return the least time of the ways that the topology has links for."""
    times, refusals = [], []
    for way in ways.values():
        try:
            times.append(way(cluster, group, size))
        except InputError as error:
            refusals.append(error)
    if not times:
        raise refusals[0]
    return min(times)


def _ring(cluster: Cluster, group: Ints, size: float) -> float:
    return ring_all_reduce(len(group), size, _links(cluster, group, np.roll(group, -1)))


def _ring_gather(cluster: Cluster, group: Ints, size: float) -> float:
    return ring_all_gather(len(group), size, _links(cluster, group, np.roll(group, -1)))


def _tree(cluster: Cluster, group: Ints, size: float) -> float:
    return tree_all_reduce(len(group), size, _doubling_links(cluster, group))


def _broadcast(cluster: Cluster, group: Ints, size: float) -> float:
    return tree_broadcast(len(group), size, _doubling_links(cluster, group))


def _halving_doubling(cluster: Cluster, group: Ints, size: float) -> float:
    return halving_doubling_all_reduce(len(group), size, _doubling_links(cluster, group))


def _hierarchical(cluster: Cluster, group: Ints, size: float) -> float:
    """Scatter within the machine, all-reduce between machines, gather within the machine.

    As `hierarchical_all_reduce`; where machines have different numbers of ranks, each phase takes
    as long as for those that it takes longest for.
    """
    machines, most, fewest, link, outer = _machines(cluster, group)
    return ring_all_reduce(most, size, link) + ring_all_reduce(machines, size / fewest, outer)


def _hierarchical_gather(cluster: Cluster, group: Ints, size: float) -> float:
    """Gather the shares of one rank of each machine, then those within the machine."""
    machines, most, fewest, link, outer = _machines(cluster, group)
    return ring_all_gather(most, size, link) + ring_all_gather(machines, size / fewest, outer)


def _pairwise(cluster: Cluster, group: Ints, size: float) -> float:
    """Return the seconds of p - 1 steps in which each sends `size` / p bytes to one other.

    In step k rank i sends to rank i + k (TRG, section 4.3).
    """
    share = size / len(group)
    steps = range(1, len(group))
    if isinstance(cluster.topology, Switch) and not cluster.overrides:
        return len(steps) * cluster.topology.link.exchange_time(share)
    return sum(
        max(link.exchange_time(share) for link in _links(cluster, group, np.roll(group, -step)))
        for step in steps
    )


_WAYS: dict[str, dict[str, Way]] = {
    "all_reduce": {
        "ring": _ring,
        "tree": _tree,
        "hierarchical": _hierarchical,
        "halving-doubling": _halving_doubling,
    },
    "all_gather": {"ring": _ring_gather, "hierarchical": _hierarchical_gather},
    "reduce_scatter": {"ring": _ring_gather, "hierarchical": _hierarchical_gather},
    "all_to_all": {"pairwise": _pairwise},
    "broadcast": {"tree": _broadcast},
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
