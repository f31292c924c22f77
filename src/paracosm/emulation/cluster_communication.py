"""The communication model of a cluster's links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from math import isfinite, isinf

from paracosm.cluster import Cluster, Link
from paracosm.cluster.collectives import collective_times
from paracosm.cluster.link import Hierarchical, Topology
from paracosm.emulation.cost import FREE, IN, OUT, Cost
from paracosm.emulation.group_cache import GroupCache
from paracosm.errors import InputError

# Kinds whose time depends on who the root is: it comes first among the workers.
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_MOST_COSTS = 100_000  # of one group; some scripts have another size in every step

TimeOf = Callable[[float], float]


class ClusterCommunication:
    """Collectives and messages over the links of `cluster`, whose worker i is rank i.

    A collective costs `paracosm.cluster.collectives.collective_time`: fixed is what the same
    algorithm takes for latencies that hold no port; the rest needs the rank's link, all of it. A
    message needs it for `Link.occupancy`, and is there `Link.propagation` later. A rank has one
    link, "nic"; in a hierarchical cluster "inner" within its machine and "outer" to others. A
    message needs one direction of it, or both where the link is half duplex.
    """

    is_measured = False

    def __init__(self, cluster: Cluster, algorithms: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.algorithms = algorithms
        latencies = _latencies(cluster)
        self._groups = GroupCache(
            lambda members: _Group(cluster, latencies, algorithms, members, self.message)
        )
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

    def _message(self, source: int, target: int, size: int, rank: int) -> Cost:
        cluster = self.cluster
        link = cluster.link(cluster.workers[source], cluster.workers[target])
        busy, after = link.occupancy(size), link.propagation(size)
        if not _is_shared(cluster, link.bandwidth):
            return Cost(0.0, busy, "", after)
        port = _port(cluster, source, target)
        capacity = _capacity(cluster, rank, port)
        way = "" if link.duplex == "half" else OUT if rank == source else IN
        if link.bandwidth >= capacity or cluster.sharing == "serial":
            return Cost(0.0, busy, port + way, after)
        own = f"{port} with {target if rank == source else source}{way}"
        if isinf(capacity):
            return Cost(0.0, busy, "", after, own)
        return Cost(0.0, busy, port + way, after, own, link.bandwidth / capacity)


@dataclass(frozen=True)
class _Group:
    cluster: Cluster
    latencies: Cluster
    algorithms: Mapping[str, str]
    members: tuple[int, ...]
    message: Callable[[int, int, int, int], Cost]
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
            return self.message(*((rank, other) if kind == "send" else (other, rank)), size, rank)
        time_of, latency_of = min(self._ways(kind, peer), key=lambda way: way[0](size))
        fixed = latency_of(0)
        link = self._port
        if not _is_shared(self.cluster, _capacity(self.cluster, rank, link)):
            link = ""
        return Cost(fixed, max(time_of(size) - fixed, 0.0), link)

    def _ways(self, kind: str, root: int) -> list[tuple[TimeOf, TimeOf]]:
        first = self.members.index(root) if kind in _ROOTED and root >= 0 else 0
        if (kind, first) not in self.ways:
            workers = self.members[first:] + self.members[:first]
            algorithm = self.algorithms.get(kind, "auto")
            whole = collective_times(self.cluster, workers, kind, algorithm)
            latencies = whole
            if self.latencies is not self.cluster:
                latencies = collective_times(self.latencies, workers, kind, algorithm)
            self.ways[kind, first] = [(whole[name], latencies[name]) for name in whole]
        return self.ways[kind, first]

    @cached_property
    def _port(self) -> str:
        return _port(self.cluster, *self.members)


def _finite(cost: Cost, what: str, size: int) -> Cost:
    if not isfinite(cost.fixed + cost.busy + cost.after):
        raise InputError(f"{what} of {size:,} bytes takes forever: check bandwidth and latency")
    return cost


def _port(cluster: Cluster, *ranks: int) -> str:
    if not isinstance(cluster.topology, Hierarchical):
        return "nic"
    crosses = any(_crosses(cluster.topology, ranks[0], rank) for rank in ranks)
    return "outer" if crosses else "inner"


def _is_shared(cluster: Cluster, bandwidth: float) -> bool:
    """Whether the bandwidth is shared; under serial sharing it always is, however high."""
    return cluster.sharing == "serial" or not isinf(bandwidth)


def _capacity(cluster: Cluster, rank: int, port: str) -> float:
    topology, name = cluster.topology, cluster.workers[rank]
    is_outer = isinstance(topology, Hierarchical) and port == "outer"
    common = topology.outer if isinstance(topology, Hierarchical) and is_outer else topology.link
    if not cluster.overrides:
        return common.bandwidth
    number = {worker: each for each, worker in enumerate(cluster.workers)}
    own = [
        link.bandwidth
        for a, b, link in cluster.overrides
        if name in (a, b) and _crosses(topology, number[a], number[b]) == is_outer
    ]
    return max([common.bandwidth, *own])


def _crosses(topology: Topology, a: int, b: int) -> bool:
    if not isinstance(topology, Hierarchical):
        return False
    return a // topology.group_size != b // topology.group_size


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
