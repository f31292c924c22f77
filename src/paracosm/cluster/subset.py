"""The first workers of a cluster, as a cluster of its own."""

from __future__ import annotations

from dataclasses import replace

from paracosm.cluster.cluster import Cluster
from paracosm.cluster.topology import Hierarchical, Ring, Star, Topology
from paracosm.errors import InputError

__all__ = ["first_workers"]


def first_workers(cluster: Cluster, count: int) -> Cluster:
    """Return the cluster without all but its first `count` workers; its servers stay.

    Raises:
        InputError: it has fewer workers, or none are left.
    """
    held = len(cluster.workers)
    if not 1 <= count <= held:
        raise InputError(f"{count} workers of a cluster that has {held}: give 1 to {held}")
    if count == held:
        return cluster
    kept = cluster.workers[:count]
    others = cluster.nodes[held:]
    members = {*kept, *cluster.servers}
    return replace(
        cluster,
        nodes=(*cluster.nodes[:count], *others),
        workers=kept,
        topology=_topology(cluster, count, len(others)),
        overrides=tuple(each for each in cluster.overrides if {*each[:2]} <= members),
    )


def _topology(cluster: Cluster, count: int, others: int) -> Topology:
    topology = cluster.topology
    match topology:
        case Star():
            own = cluster.placement == "own"
            centres = (
                range(count, count + others) if own else range(min(len(cluster.servers), count))
            )
            return replace(topology, centres=centres)
        case Ring():
            return replace(topology, size=count)
        case Hierarchical():
            return replace(topology, workers=count)
        case _:
            return topology
