"""Messages between workers and servers, through the stations of `paracosm.network`."""

from __future__ import annotations

from dataclasses import dataclass

from paracosm.cluster.cluster import Cluster
from paracosm.jobs import Communicators, write_communicators
from paracosm.network import Stations

__all__ = ["ServerLinks", "server_links"]


@dataclass(frozen=True, eq=False)
class ServerLinks:
    """Who sends to whom. Servers are the ranks after the workers.

    Attributes:
        communicators: pairs (worker, server) and (server, worker), each with its connection.
        push, pull: communicator of every worker and server, either way.
    """

    communicators: Communicators
    push: list[list[int]]
    pull: list[list[int]]


def server_links(cluster: Cluster) -> ServerLinks:
    """Return the messages between all workers and all servers of a cluster.

    Raises:
        InputError: nothing joins a worker and a server.
    """
    workers, servers = cluster.workers, cluster.servers
    network = Stations(cluster)
    pairs: list[tuple[int, int]] = []
    push, pull = ([[0] * len(servers) for _ in workers] for _ in range(2))
    for w, worker in enumerate(workers):
        for s, server in enumerate(servers):
            ranks = (w, len(workers) + s)
            push[w][s] = network.connect(worker, server).number
            pull[w][s] = network.connect(server, worker).number
            pairs += [ranks, ranks[::-1]]
    return ServerLinks(write_communicators(pairs, network), push, pull)
