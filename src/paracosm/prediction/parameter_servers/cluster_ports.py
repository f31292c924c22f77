"""The workers and servers of a cluster, as simulated jobs with parameter servers see them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
import numpy.typing as npt

from paracosm.cluster import Cluster
from paracosm.cluster.link import Star, Switch
from paracosm.errors import InputError
from paracosm.simulation.system import Ways, cluster_ways

__all__ = ["Ports", "ports_of"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ports:
    """How fast nodes send, receive and compute.

    Attributes:
        ways: between workers and servers.
        speed: of each worker's computing, (workers,).
        server_speed: of each server's computing, (servers,).
    """

    ways: Ways
    speed: Floats
    server_speed: Floats

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self.speed)

    @property
    def server(self) -> Floats:
        """Bytes/s that each server can send, and receive, (servers,)."""
        capacity: Floats = self.ways.capacity[self.ways.ports].min(axis=0)
        return capacity

    @property
    def worker(self) -> Floats:
        """Bytes/s of the slowest link of each worker, (workers,)."""
        slowest: Floats = self.ways.bandwidth.min(axis=(0, 2))
        return slowest

    @property
    def latency(self) -> Floats:
        """Seconds from the last byte of a worker's transfer to its arrival, at most, (workers,)."""
        longest: Floats = self.ways.latency.max(axis=(0, 2))
        return longest

    def first(self, workers: int) -> Ports:
        """Return the ports without all but the first workers."""
        return self._of(slice(workers))

    def only(self, worker: int) -> Ports:
        """Return the ports with one of the workers alone."""
        return self._of(slice(worker, worker + 1))

    def _of(self, chosen: slice) -> Ports:
        return replace(self, ways=self.ways.of_workers(chosen), speed=self.speed[chosen])


def ports_of(cluster: Cluster) -> Ports:
    """Return the ports of a star or a switch with servers on nodes of their own.

    Raises:
        InputError: another topology, no server, a server on a worker's node, links without a finite
            bandwidth.
    """
    topology = cluster.topology
    if not isinstance(topology, Star | Switch):
        raise InputError(
            f"cluster: throughput is predicted on a switch or a star, not on a {topology.name}"
        )
    if not cluster.servers:
        raise InputError("cluster: it has no server: parameter servers are what a profile is of")
    if cluster.placement != "own":
        raise InputError(
            "cluster: servers live on nodes of workers: a profile needs servers on nodes of their "
            "own (placement: own)"
        )
    if not isfinite(topology.link.bandwidth):
        raise InputError("cluster: its default link needs a finite bandwidth")
    for a, b, link in cluster.overrides:
        if not isfinite(link.bandwidth):
            raise InputError(f"cluster: the link between {a} and {b} needs a finite bandwidth")
    return Ports(
        ways=cluster_ways(cluster),
        speed=np.array([cluster.node(worker).speed for worker in cluster.workers]),
        server_speed=np.array([cluster.node(server).speed for server in cluster.servers]),
    )
