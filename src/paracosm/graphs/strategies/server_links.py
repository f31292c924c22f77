"""Messages between workers and servers, over ports that each node shares between its messages.

    worker0 up --\\                       /-- worker0 down
    worker1 up ----> server0 down   server0 up ----> worker1 down

A message flows through the port of its sender and that of its receiver, whose bandwidth the
messages of one instant share (max-min fair). A port is as fast as the fastest link of its node; a
link that is slower is one more station on the way. With half duplex a node has one port for both
directions. In `hierarchical` clusters every node has ports of their own for what crosses machines.
Latency and overhead come before the first byte.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isinf

from paracosm.cluster.cluster import Cluster
from paracosm.cluster.link import Link
from paracosm.cluster.topology import Hierarchical
from paracosm.graphs.job import Communicators, write_communicators

__all__ = ["ServerLinks", "server_links"]


@dataclass(frozen=True, eq=False)
class ServerLinks:
    """Who sends to whom over what. Servers are the ranks after the workers.

    Attributes:
        communicators: pairs (worker, server) and (server, worker).
        push, pull: communicator of every worker and server, either way.
        delay: seconds before the first byte, of every worker and server.
    """

    communicators: Communicators
    push: list[list[int]]
    pull: list[list[int]]
    delay: list[list[float]]


def server_links(cluster: Cluster) -> ServerLinks:
    """Return the messages between all workers and all servers of a cluster.

    Raises:
        InputError: nothing joins a worker and a server.
    """
    workers, servers = cluster.workers, cluster.servers
    between = [[cluster.link(worker, server) for server in servers] for worker in workers]
    ports = _Ports(cluster, between)
    pairs: list[tuple[int, int]] = []
    routes: list[list[int]] = []
    push, pull = ([[0] * len(servers) for _ in workers] for _ in range(2))
    for w, worker in enumerate(workers):
        for s, server in enumerate(servers):
            for table, source, target in ((push, worker, server), (pull, server, worker)):
                table[w][s] = len(pairs)
                ranks = (w, len(workers) + s)
                pairs.append(ranks if table is push else ranks[::-1])
                routes.append(ports.route(source, target, between[w][s]))
    return ServerLinks(
        write_communicators(pairs, routes, ports.bandwidth, ports.names),
        push,
        pull,
        [[link.overhead + link.latency for link in row] for row in between],
    )


def _machines(cluster: Cluster) -> dict[str, int]:
    """Return the machine of every node, where the cluster has some."""
    topology = cluster.topology
    if not isinstance(topology, Hierarchical):
        return {}
    return {node.name: topology.group(number) for number, node in enumerate(cluster.nodes)}


class _Ports:
    """Gives out the numbers of shared links."""

    def __init__(self, cluster: Cluster, between: list[list[Link]]) -> None:
        self.bandwidth: list[float] = []
        self.names: list[str] = []
        self._numbers: dict[str, int] = {}
        self._node = {name: cluster.node(name).name for name in cluster.workers + cluster.servers}
        self._machine = _machines(cluster)
        self._fastest: dict[str, float] = {}
        for worker, row in zip(cluster.workers, between, strict=True):
            for server, link in zip(cluster.servers, row, strict=True):
                for end in self._ends(worker, server):
                    self._fastest[end] = max(self._fastest.get(end, 0.0), link.bandwidth)

    def route(self, source: str, target: str, link: Link) -> list[int]:
        """Return the links that a message passes; none within a node or without a limit."""
        if self._node[source] == self._node[target] or isinf(link.bandwidth):
            return []
        here, there = self._ends(source, target)
        half = link.duplex == "half"
        stations = [
            (f"{here} port" if half else f"{here} up", self._fastest[here]),
            (f"{there} port" if half else f"{there} down", self._fastest[there]),
        ]
        if link.bandwidth < min(self._fastest[here], self._fastest[there]):
            stations.append((f"{source} to {target}", link.bandwidth))
        return [self._number(name, speed) for name, speed in stations if not isinf(speed)]

    def _ends(self, source: str, target: str) -> tuple[str, str]:
        """Return what the ports at both ends belong to: nodes, or their way out of the machine."""
        here, there = self._node[source], self._node[target]
        outer = " outer" if self._machine.get(here) != self._machine.get(there) else ""
        return here + outer, there + outer

    def _number(self, name: str, bandwidth: float) -> int:
        if name not in self._numbers:
            self._numbers[name] = len(self.names)
            self.names.append(name)
            self.bandwidth.append(bandwidth)
        return self._numbers[name]
