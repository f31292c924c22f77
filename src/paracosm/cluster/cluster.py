"""The simulated hardware: nodes, the workers and servers on them, and the links between them.

Clusters of the named topologies call their nodes worker0, worker1, ..., server0, ...
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import Any, Literal, get_args

from paracosm.cluster.link import LOCAL, Hierarchical, Link, Ring, Sharing, Star, Switch, Topology
from paracosm.cluster.power import Power
from paracosm.cluster.worker_counts import MOST_NODES
from paracosm.errors import InputError, shown, unknown
from paracosm.units import real, whole

Placement = Literal["own", "workers"]


@dataclass(frozen=True)
class Node:
    """A machine of the cluster; InputError for a speed or memory that is not above 0."""

    name: str  # unique in its cluster
    speed: float = 1.0  # relative: durations on this node are divided by it
    memory: float | None = None  # bytes, where it is known
    device: str | None = None  # what it computes with ("H100"), where it is known
    power: Power | None = None  # what it draws, where it is known

    def __post_init__(self) -> None:
        speed = real(self.speed)
        if not 0 < speed < inf:
            raise InputError(
                f"node {self.name}: speed must be finite and above 0, not {self.speed}"
            )
        object.__setattr__(self, "speed", speed)
        if self.memory is None:
            return
        memory = real(self.memory)
        if not memory > 0:
            raise InputError(f"node {self.name}: memory must be above 0, not {self.memory}")
        object.__setattr__(self, "memory", memory)


@dataclass(frozen=True)
class Cluster:
    """Nodes, the workers and servers on them, and the links between them.

    A worker has a node of its own, with its name. So has a server with `placement` "own"; with
    "workers" server i lives on the node of worker i (modulo their number), which it reaches at no
    cost.

    Raises:
        InputError: no worker; the power of some nodes only; an override that is unknown, within one
            node, or given twice; links that are shared by different rules.
    """

    nodes: tuple[Node, ...]  # the workers' nodes first, in the workers' order
    workers: tuple[str, ...]  # their names
    servers: tuple[str, ...]
    topology: Topology  # the link of each pair of nodes
    placement: Placement = "own"  # of the servers
    # (a, b, link): two workers or servers joined, both ways, by a link of their own
    overrides: tuple[tuple[str, str, Link], ...] = ()

    def __post_init__(self) -> None:
        if len({node.power is None for node in self.nodes}) > 1:
            raise InputError("power: give it for all nodes, or for none")
        if not self.workers:
            raise InputError("a cluster needs at least 1 worker")
        if self.placement not in get_args(Placement):
            raise unknown("placement", self.placement, get_args(Placement))
        for link in self.links:
            if not isinstance(link, Link):
                raise InputError(f"a link of a cluster is a Link, not {link!r}")
        pairs = set()
        for a, b, _ in self.overrides:
            pair = frozenset((self.node(a), self.node(b)))
            if len(pair) == 1:
                raise InputError(f'"{a}" and "{b}" live on one node: no link is between them')
            if pair in pairs:
                raise InputError(f'the link between "{a}" and "{b}" is overridden twice')
            if self._share_ways_out(a, b):
                raise InputError(
                    f'the link between "{a}" and "{b}" has no effect: messages take the cards and '
                    "uplinks of their groups: change the bandwidth between groups"
                )
            pairs.add(pair)
        if any(link.sharing != self.sharing for link in self.links):
            raise InputError(
                "sharing: one rule for all links of a cluster, as they meet at the same ports: "
                "fair, serial or packets(SIZE)"
            )

    @property
    def links(self) -> tuple[Link, ...]:
        """Every distinct link: the topology's, then the overrides'."""
        outer = (self.topology.outer,) if isinstance(self.topology, Hierarchical) else ()
        return (self.topology.link, *outer, *(link for _, _, link in self.overrides))

    @property
    def sharing(self) -> Sharing:
        """The rule by which messages share a port."""
        return self.topology.link.sharing

    def node(self, name: str) -> Node:
        """Return the node of the worker or server called `name`."""
        if name not in self._position:
            raise unknown("worker or server", name, self._position)
        return self.nodes[self._position[name]]

    def link(self, source: str, target: str) -> Link:
        """Return the link from the worker or server `source` to `target`, in constant time."""
        # Called for every message, so written out: no calls but the topology's.
        try:
            here, there = self._position[source], self._position[target]
        except KeyError as error:
            raise unknown("worker or server", error.args[0], self._position) from None
        if here == there:
            return LOCAL
        link = self._special.get((here, there)) or self.topology.between(here, there)
        if link is None:
            raise InputError(
                f'no link joins "{source}" and "{target}" in the {self.topology.name}; '
                "topology switch joins every pair"
            )
        return link

    def energy(
        self, time: float, busy: Mapping[str, float], off: Mapping[str, float] | None = None
    ) -> float | None:
        """Return the joules that all nodes use; None if their power is unknown.

        Args:
            time: seconds.
            busy: seconds for which each worker and server computed, by name. A node with a worker
                and a server is busy for both, but never longer than `time`.
            off: seconds for which each node was stopped, by name.
        """
        spent = dict.fromkeys((node.name for node in self.nodes), 0.0)
        for name, seconds in busy.items():
            spent[self.node(name).name] += seconds
        joules = 0.0
        for node in self.nodes:
            if node.power is None:
                return None
            stopped = (off or {}).get(node.name, 0.0)
            joules += node.power.energy(time, min(spent[node.name], time - stopped), stopped)
        return joules

    def _share_ways_out(self, a: str, b: str) -> bool:
        topology, at = self.topology, self._position
        if not (isinstance(topology, Hierarchical) and topology.shares_ports):
            return False
        return topology.group(at[a]) != topology.group(at[b])

    @cached_property
    def _position(self) -> dict[str, int]:
        positions = {node.name: position for position, node in enumerate(self.nodes)}
        if self.placement == "workers":
            for number, server in enumerate(self.servers):
                positions[server] = number % len(self.workers)
        return positions

    @cached_property
    def _special(self) -> dict[tuple[int, int], Link]:
        at = self._position
        ends = [(at[a], at[b], link) for a, b, link in self.overrides]
        return {pair: link for a, b, link in ends for pair in ((a, b), (b, a))}


def star(
    workers: int = 4,  # their number
    servers: int = 1,  # their number, at least 1
    link: Link = LOCAL,  # between each worker and each server
    speeds: Sequence[float] | None = None,  # of each worker's node
    placement: Placement = "own",  # of a server: a node of its "own", or one of the "workers"
) -> Cluster:
    """Return `workers` around `servers`; workers are not joined to each other.

    Raises:
        InputError: a number that is too small, or speeds that are not one per worker.
    """
    nodes = _nodes(workers, speeds)
    topology = star_around(link, len(nodes), servers, placement)
    return assemble(nodes, _servers(servers), topology, placement)


def switch(
    workers: int = 4,
    servers: int = 0,
    link: Link = LOCAL,
    speeds: Sequence[float] | None = None,
    placement: Placement = "own",
) -> Cluster:
    """Return a cluster in which `link` joins every pair of nodes; arguments as for `star`."""
    return assemble(_nodes(workers, speeds), _servers(servers), Switch(link), placement)


def ring(workers: int = 4, link: Link = LOCAL, speeds: Sequence[float] | None = None) -> Cluster:
    """Return `workers` in a circle, each joined to two neighbours; arguments as for `star`."""
    nodes = _nodes(workers, speeds)
    return assemble(nodes, [], Ring(link, len(nodes)))


def hierarchical(
    workers: int,
    group_size: int,
    link: Link,
    outer: Link,
    servers: int = 0,
    speeds: Sequence[float] | None = None,
    placement: Placement = "own",
    cards: int | None = None,
    leaf: int | None = None,
    oversubscription: float = 1.0,
) -> Cluster:
    """Return groups of `group_size` workers: `link` joins two of a group, `outer` two groups.

    `cards`, `leaf` and `oversubscription` are those of `Hierarchical`, the other arguments those
    of `star`. Server i with a node of its own is in group i, modulo the number of groups.
    """
    topology = Hierarchical(link, outer, group_size, workers, cards, leaf, oversubscription)
    return assemble(_nodes(workers, speeds), _servers(servers), topology, placement)


def star_around(link: Link, workers: int, servers: int, placement: Placement) -> Star:
    """Return the star whose centres are the nodes that the servers live on."""
    servers = _count("servers", servers)
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
    worker_nodes = [_called(f"worker{i}", node) for i, node in enumerate(workers)]
    server_nodes = [_called(f"server{i}", node) for i, node in enumerate(servers)]
    return Cluster(
        nodes=tuple(worker_nodes + (server_nodes if placement == "own" else [])),
        workers=tuple(node.name for node in worker_nodes),
        servers=tuple(node.name for node in server_nodes),
        topology=topology,
        placement=placement,
        overrides=overrides,
    )


def _called(name: str, node: Node) -> Node:
    """Return the node with another name; a million of them are not checked once more."""
    if node.name == name:
        return node
    named = object.__new__(type(node))
    named.__dict__.update(node.__dict__, name=name)
    return named


def _count(what: str, given: Any) -> int:
    number = whole(given)
    if number is None or number < 0:
        raise InputError(f"{what}: give their number, not {shown(given)}")
    if number > MOST_NODES:
        raise InputError(f"{what}: a cluster has {MOST_NODES:,} nodes at most")
    return number


def _nodes(workers: int, speeds: Sequence[float] | None) -> list[Node]:
    count = _count("workers", workers)
    speed_of_node = [1.0] * count if speeds is None else list(speeds)
    if len(speed_of_node) != count:
        raise InputError(f"{len(speed_of_node)} speeds for {count} workers: give one for each")
    return [Node(f"worker{i}", speed) for i, speed in enumerate(speed_of_node)]


def _servers(servers: int) -> list[Node]:
    return [Node("server")] * _count("servers", servers)


def first_workers(cluster: Cluster, count: int) -> Cluster:
    """Return the cluster without all but its first `count` workers; its servers stay."""
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
        topology=_kept_topology(cluster, count, len(others)),
        overrides=tuple(override for override in cluster.overrides if {*override[:2]} <= members),
    )


def _kept_topology(cluster: Cluster, count: int, others: int) -> Topology:
    topology = cluster.topology
    match topology:
        case Star() if cluster.placement == "own":
            return replace(topology, centres=range(count, count + others))
        case Star():
            return replace(topology, centres=range(min(len(cluster.servers), count)))
        case Ring():
            return replace(topology, size=count)
        case Hierarchical():
            return replace(topology, workers=count)
        case _:
            return topology
