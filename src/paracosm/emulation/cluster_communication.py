"""The communication model of a cluster's links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite, isinf

from paracosm.cluster import Cluster, Link
from paracosm.cluster.collectives import collective_times
from paracosm.cluster.link import Hierarchical
from paracosm.emulation.cost import FREE, IN, OUT, Cost
from paracosm.emulation.group_cache import GroupCache
from paracosm.emulation.records import ROOTED
from paracosm.errors import InputError
from paracosm.network import Stations

_MOST_COSTS = 100_000  # of one group; some scripts have another size in every step

TimeOf = Callable[[float], float]


class ClusterCommunication:
    """Collectives and messages over the links of `cluster`, whose worker i is rank i.

    A collective costs `paracosm.cluster.collectives.collective_time`: fixed is what the same
    algorithm takes for latencies that hold no port; the rest needs the rank's link, all of it. A
    message needs it for `Link.occupancy`, and is there `Link.propagation` later. A rank has one
    link, "nic"; in a hierarchical cluster "inner" within its machine and "outer" to others. A
    message needs one direction of it, or both where the link is half duplex. How wide it is say the
    stations of the cluster.
    """

    is_measured = False

    def __init__(self, cluster: Cluster, algorithms: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.algorithms = algorithms
        self.stations = Stations(cluster)
        latencies = _latencies(cluster)
        self._groups = GroupCache(lambda members: _Group(self, latencies, members))
        self._messages: dict[tuple[int, int, int, int], Cost] = {}

    def cost(self, kind: str, members: Sequence[int], size: int, rank: int, peer: int) -> Cost:
        """Return the cost of a collective; a message from any rank (peer -1) is the next one's."""
        return self._groups.of(members).cost(kind, size, rank, peer)

    def message(self, source: int, target: int, size: int, rank: int) -> Cost:
        key = source, target, size, rank
        if key not in self._messages:
            if len(self._messages) >= _MOST_COSTS:
                self._messages.clear()
            self._messages[key] = _finite(self._message(*key), "message", size)
        return self._messages[key]

    def port(self, *ranks: int) -> str:
        """Return the name of the link that a rank has to all others of `ranks`."""
        topology = self.cluster.topology
        if not isinstance(topology, Hierarchical):
            return "nic"
        return "inner" if len({topology.group(rank) for rank in ranks}) == 1 else "outer"

    def width(self, rank: int, port: str) -> float:
        """Return the bytes/s of a rank's link."""
        return self.stations.port_capacity(self.cluster.workers[rank], port == "outer")

    def _message(self, source: int, target: int, size: int, rank: int) -> Cost:
        cluster = self.cluster
        connection = self.stations.connect(cluster.workers[source], cluster.workers[target])
        link = connection.link
        busy, after = link.occupancy(size), link.propagation(size)
        if not connection.stations:
            return Cost(0.0, busy, "", after)
        port = self.port(source, target)
        width = self.width(rank, port)
        way = "" if link.duplex == "half" else OUT if rank == source else IN
        if link.bandwidth >= width or cluster.sharing == "serial":
            return Cost(0.0, busy, port + way, after, bandwidth=width)
        port_name = f"{port} with {target if rank == source else source}{way}"
        if isinf(width):
            return Cost(0.0, busy, "", after, port_name, bandwidth=link.bandwidth)
        return Cost(0.0, busy, port + way, after, port_name, link.bandwidth / width, width)


@dataclass(frozen=True)
class _Group:
    model: ClusterCommunication
    latencies: Cluster
    members: tuple[int, ...]
    costs: dict[tuple[str, int, int, int], Cost] = field(default_factory=dict)
    ways: dict[tuple[str, int], list[tuple[TimeOf, TimeOf]]] = field(default_factory=dict)

    def cost(self, kind: str, size: int, rank: int, peer: int) -> Cost:
        key = (kind, size, rank, peer)
        known = self.costs.get(key)
        if known is None:
            if len(self.costs) >= _MOST_COSTS:
                self.costs.clear()
            self.costs[key] = known = _finite(self._cost(kind, size, rank, peer), kind, size)
        return known

    def _cost(self, kind: str, size: int, rank: int, peer: int) -> Cost:
        if len(self.members) < 2:
            return FREE
        if kind in ("send", "recv"):
            following = self.members[(self.members.index(rank) + 1) % len(self.members)]
            other = following if peer < 0 else peer
            source, target = (rank, other) if kind == "send" else (other, rank)
            return self.model.message(source, target, size, rank)
        time_of, latency_of = min(self._ways(kind, peer), key=lambda way: way[0](size))
        fixed = latency_of(0)
        busy = max(time_of(size) - fixed, 0.0)
        width = self.model.width(rank, self._port)
        if isinf(width) and self.model.cluster.sharing != "serial":
            return Cost(fixed, busy)
        return Cost(fixed, busy, self._port, bandwidth=width)

    def _ways(self, kind: str, root: int) -> list[tuple[TimeOf, TimeOf]]:
        # The root comes first among the workers.
        first = self.members.index(root) if kind in ROOTED and root >= 0 else 0
        if (kind, first) not in self.ways:
            workers = self.members[first:] + self.members[:first]
            algorithm = self.model.algorithms.get(kind, "auto")
            whole = collective_times(self.model.cluster, workers, kind, algorithm)
            latencies = whole
            if self.latencies is not self.model.cluster:
                latencies = collective_times(self.latencies, workers, kind, algorithm)
            self.ways[kind, first] = [(whole[name], latencies[name]) for name in whole]
        return self.ways[kind, first]

    @cached_property
    def _port(self) -> str:
        return self.model.port(*self.members)


def _finite(cost: Cost, what: str, size: int) -> Cost:
    if not isfinite(cost.fixed + cost.busy + cost.after):
        raise InputError(f"{what} of {size:,} bytes takes forever: check bandwidth and latency")
    return cost


def _latencies(cluster: Cluster) -> Cluster:
    """Return the cluster with nothing but the latencies that occupy no port."""

    def of(link: Link) -> Link:
        return replace(link, overhead=0.0, latency=link.propagation(0))

    if all(of(link) == link for link in cluster.links):
        return cluster
    topology = replace(cluster.topology, link=of(cluster.topology.link))
    if isinstance(topology, Hierarchical):
        topology = replace(topology, outer=of(topology.outer))
    overrides = tuple((a, b, of(link)) for a, b, link in cluster.overrides)
    return replace(cluster, topology=topology, overrides=overrides)
