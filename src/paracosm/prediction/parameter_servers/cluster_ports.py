"""The ports of a cluster's workers and servers, as simulated jobs with parameter servers see it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite

import numpy as np
import numpy.typing as npt

from paracosm.cluster import Cluster, Link
from paracosm.cluster.topology import Star, Switch
from paracosm.errors import InputError

__all__ = ["Ports", "ports_of"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Ports:
    """How fast nodes send, receive and compute.

    Attributes:
        server: bytes/s that each server can send, and receive, (servers,).
        worker: bytes/s that each worker can receive, and send, (workers,).
        speed: of each worker's computing, (workers,).
        server_speed: of each server's computing, (servers,).
        latency: seconds that a transfer of each worker takes beside its bytes, (workers,).
    """

    server: Floats
    worker: Floats
    speed: Floats
    server_speed: Floats
    latency: Floats

    @property
    def workers(self) -> int:
        """How many workers there are."""
        return len(self.worker)

    def first(self, workers: int) -> Ports:
        """Return the ports without all but the first workers."""
        return replace(
            self,
            worker=self.worker[:workers],
            speed=self.speed[:workers],
            latency=self.latency[:workers],
        )

    def only(self, worker: int) -> Ports:
        """Return the ports with one of the workers alone."""
        one = slice(worker, worker + 1)
        return replace(
            self, worker=self.worker[one], speed=self.speed[one], latency=self.latency[one]
        )


def ports_of(cluster: Cluster) -> Ports:
    """Return the ports of a star or a switch with servers on nodes of their own.

    A node's port is as wide as the link that joins it by default; where a worker's links to the
    servers are overridden, it is as wide as those.

    Raises:
        InputError: another topology, no server, a server on a worker's node, half-duplex links,
            links with an overhead or without a finite bandwidth, a worker whose links to the
            servers differ.
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
    _check(topology.link, "its default link")
    links = [_link(cluster, worker) for worker in cluster.workers]
    return Ports(
        server=np.full(len(cluster.servers), topology.link.bandwidth),
        worker=np.array([link.bandwidth for link in links]),
        speed=np.array([cluster.node(worker).speed for worker in cluster.workers]),
        server_speed=np.array([cluster.node(server).speed for server in cluster.servers]),
        latency=np.array([link.latency for link in links]),
    )


def _link(cluster: Cluster, worker: str) -> Link:
    """Return what joins a worker to each of the servers."""
    links = {cluster.link(worker, server) for server in cluster.servers}
    if len(links) > 1:
        raise InputError(
            f"cluster: the links of {worker} to the servers differ: a worker has one port here"
        )
    (link,) = links
    _check(link, f"the link of {worker}")
    return link


def _check(link: Link, which: str) -> None:
    for bad, what in (
        (not isfinite(link.bandwidth), "needs a finite bandwidth"),
        (link.duplex == "half", "is half-duplex: servers send and receive at once here"),
        (link.overhead > 0, "has an overhead: alpha and beta of a node's calibration say that"),
    ):
        if bad:
            raise InputError(f"cluster: {which} {what}")
