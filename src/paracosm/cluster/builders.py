"""Clusters of the named topologies; nodes are called worker0, worker1, ..., server0, ..."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

from paracosm.cluster.cluster import Cluster, Node, Placement
from paracosm.cluster.link import LOCAL, Link
from paracosm.cluster.topology import Hierarchical, Ring, Star, Switch, Topology
from paracosm.errors import InputError
from paracosm.units import parse_bandwidth, parse_duration

__all__ = [
    "assemble",
    "cluster_from_shorthand",
    "hierarchical",
    "ring",
    "star",
    "star_around",
    "switch",
]


def star(
    workers: int = 4,
    servers: int = 1,
    link: Link = LOCAL,
    speeds: Sequence[float] | None = None,
    placement: Placement = "own",
) -> Cluster:
    """Return `workers` around `servers`; workers are not joined to each other.

    Args:
        workers: their number.
        servers: their number, at least 1.
        link: between each worker and each server.
        speeds: of each worker's node.
        placement: whether a server has its "own" node, or lives on one of the "workers".

    Raises:
        InputError: a number that is too small, or speeds that are not one per worker.
    """
    topology = star_around(link, workers, servers, placement)
    return assemble(_nodes(workers, speeds), [Node("server")] * servers, topology, placement)


def switch(
    workers: int = 4,
    servers: int = 0,
    link: Link = LOCAL,
    speeds: Sequence[float] | None = None,
    placement: Placement = "own",
) -> Cluster:
    """Return a cluster in which `link` joins every pair of nodes; arguments as for `star`."""
    return assemble(_nodes(workers, speeds), [Node("server")] * servers, Switch(link), placement)


def ring(workers: int = 4, link: Link = LOCAL, speeds: Sequence[float] | None = None) -> Cluster:
    """Return `workers` in a circle, each joined to two neighbours; arguments as for `star`."""
    return assemble(_nodes(workers, speeds), [], Ring(link, workers))


def hierarchical(
    workers: int,
    group_size: int,
    link: Link,
    outer: Link,
    servers: int = 0,
    speeds: Sequence[float] | None = None,
    placement: Placement = "own",
) -> Cluster:
    """Return groups of `group_size` workers: `link` joins two of a group, `outer` two groups.

    The other arguments are those of `star`. Server i with a node of its own is in group i, modulo
    the number of groups.
    """
    topology = Hierarchical(link, outer, group_size, workers)
    return assemble(_nodes(workers, speeds), [Node("server")] * servers, topology, placement)


def cluster_from_shorthand(
    workers: int = 4,
    servers: int = 1,
    latency: str | float = 0.0,
    bandwidth: str | float = inf,
    overhead: str | float = 0.0,
    pipelined: bool = True,
) -> Cluster:
    """Return the cluster of a few command-line flags, with the same link wherever there is one.

    It is a star around the servers, or without servers a switch. Quantities are strings with a
    unit ("1ms", "10Gbit/s"), or numbers in seconds and bytes/s.

    Raises:
        InputError: a quantity that cannot be read, or is out of range; no worker.
    """
    link = Link(
        bandwidth=parse_bandwidth(bandwidth),
        latency=parse_duration(latency),
        overhead=parse_duration(overhead),
        pipelined=pipelined,
    )
    return star(workers, servers, link) if servers else switch(workers, 0, link)


def star_around(link: Link, workers: int, servers: int, placement: Placement) -> Star:
    """Return the star whose centres are the nodes that the servers live on."""
    if servers < 1:
        raise InputError("a star needs at least 1 server; topology switch does without")
    if placement == "own":
        return Star(link, range(workers, workers + servers))
    return Star(link, range(min(servers, workers)))


def assemble(
    workers: Sequence[Node],
    servers: Sequence[Node],
    topology: Topology,
    placement: Placement = "own",
    overrides: tuple[tuple[str, str, Link], ...] = (),
) -> Cluster:
    """Return the cluster of these nodes, which are renamed worker0, ..., server0, ...

    With `placement` "workers" the servers have no nodes: only their number counts.
    """
    worker_nodes = [replace(node, name=f"worker{i}") for i, node in enumerate(workers)]
    server_nodes = [replace(node, name=f"server{i}") for i, node in enumerate(servers)]
    return Cluster(
        nodes=tuple(worker_nodes + (server_nodes if placement == "own" else [])),
        workers=tuple(node.name for node in worker_nodes),
        servers=tuple(node.name for node in server_nodes),
        topology=topology,
        placement=placement,
        overrides=overrides,
    )


def _nodes(workers: int, speeds: Sequence[float] | None) -> list[Node]:
    if speeds is not None and len(speeds) != workers:
        raise InputError(f"{len(speeds)} speeds for {workers} workers: give one for each")
    return [Node(f"worker{i}", speed) for i, speed in enumerate(speeds or [1.0] * workers)]
