"""The communication model of a cluster's links."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from paracosm.cluster import Cluster
from paracosm.cluster.communication import collective_times, message_time
from paracosm.cluster.topology import Hierarchical
from paracosm.emulation.cost import FREE, IN, OUT, Cost
from paracosm.emulation.known_groups import KnownGroups

__all__ = ["ClusterCommunication"]

# Kinds whose time depends on who the root is: it comes first among the workers.
_ROOTED = ("broadcast", "reduce", "gather", "scatter")
_MOST_COSTS = 100_000  # of one group; some scripts have another size in every step


class ClusterCommunication:
    """Collectives and messages over the links of `cluster`, whose worker i is rank i.

    A collective costs `paracosm.cluster.communication.collective_time`, a message `message_time`.
    Fixed is what the same algorithm takes for no bytes; the rest keeps the rank's link busy. A rank
    has one link, "nic"; in a hierarchical cluster "inner" within its machine and "outer" to others.
    A message holds one direction of it, unless the link is half duplex.

    Args:
        cluster: the links.
        algorithms: by kind of collective; those that it does not name take the cheapest.
    """

    is_measured = False

    def __init__(self, cluster: Cluster, algorithms: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.algorithms = algorithms
        self._groups = KnownGroups(lambda members: _Group(cluster, algorithms, members))

    def cost(self, kind: str, members: Sequence[int], size: int, rank: int, peer: int) -> Cost:
        """Return what a collective costs, in a microsecond where it was asked for before.

        A message from anybody (peer -1) comes from the next rank of the group.

        Raises:
            InputError: nothing joins two ranks that would exchange messages.
        """
        return self._groups.of(members).cost(kind, size, rank, peer)

    def hop(self, source: int, target: int, size: int) -> float:
        """Return the seconds of a message between two ranks.

        Raises:
            InputError: nothing joins them.
        """
        return message_time(self.cluster, source, target, size)


@dataclass(frozen=True)
class _Group:
    """A process group: its collectives by size, and what was asked of it before."""

    cluster: Cluster
    algorithms: Mapping[str, str]
    members: tuple[int, ...]
    costs: dict[tuple[str, int, int, int], Cost] = field(default_factory=dict)
    ways: dict[tuple[str, int], list[Callable[[float], float]]] = field(default_factory=dict)

    def cost(self, kind: str, size: int, rank: int, peer: int) -> Cost:
        key = (kind, size, rank, peer)
        known = self.costs.get(key)
        if known is None:
            if len(self.costs) >= _MOST_COSTS:
                self.costs.clear()
            self.costs[key] = known = self._cost(kind, size, rank, peer)
        return known

    def _cost(self, kind: str, size: int, rank: int, peer: int) -> Cost:
        if len(self.members) < 2:
            return FREE
        if kind in ("send", "recv"):
            other = self._next(rank) if peer < 0 else peer
            source, target = (rank, other) if kind == "send" else (other, rank)
            fixed = message_time(self.cluster, source, target, 0)
            whole = message_time(self.cluster, source, target, size)
            link = self._link(source, target)
            workers = self.cluster.workers
            if self.cluster.link(workers[source], workers[target]).duplex == "full":
                link += OUT if kind == "send" else IN
            return Cost(fixed, whole - fixed, link)
        ways = self._ways(kind, peer)
        way = min(ways, key=lambda time_of: time_of(size))
        fixed = way(0)
        return Cost(fixed, way(size) - fixed, self._link_of_all)

    def _ways(self, kind: str, root: int) -> list[Callable[[float], float]]:
        """Return the time by the size, for each algorithm that may be chosen."""
        first = self.members.index(root) if kind in _ROOTED and root >= 0 else 0
        if (kind, first) not in self.ways:
            workers = self.members[first:] + self.members[:first]
            algorithm = self.algorithms.get(kind, "auto")
            found = collective_times(self.cluster, workers, kind, algorithm)
            self.ways[kind, first] = list(found.values())
        return self.ways[kind, first]

    def _next(self, rank: int) -> int:
        return self.members[(self.members.index(rank) + 1) % len(self.members)]

    @cached_property
    def _link_of_all(self) -> str:
        return self._link(*self.members)

    def _link(self, *ranks: int) -> str:
        topology = self.cluster.topology
        if not isinstance(topology, Hierarchical):
            return "nic"
        machines = {rank // topology.group_size for rank in ranks}
        return "inner" if len(machines) == 1 else "outer"
