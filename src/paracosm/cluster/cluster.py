"""The imagined hardware: nodes, who lives on them, and the links between them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Literal

from paracosm.cluster.link import LOCAL, Link, Sharing
from paracosm.cluster.topology import Hierarchical, Topology
from paracosm.errors import InputError, unknown

__all__ = ["Cluster", "Node", "Placement"]

Placement = Literal["own", "workers"]


@dataclass(frozen=True)
class Node:
    """A machine of the cluster.

    Args:
        name: unique in its cluster.
        speed: relative: durations on this node are divided by it.
        memory: bytes, where it is known.
        device: what it computes with ("H100"), where it is known.

    Raises:
        InputError: a speed or memory that is not above 0.
    """

    name: str
    speed: float = 1.0
    memory: float | None = None
    device: str | None = None

    def __post_init__(self) -> None:
        if not (self.speed > 0 and isfinite(self.speed)):
            raise InputError(
                f"node {self.name}: speed must be finite and above 0, not {self.speed}"
            )
        if self.memory is not None and not self.memory > 0:
            raise InputError(f"node {self.name}: memory must be above 0, not {self.memory}")


@dataclass(frozen=True)
class Cluster:
    """Nodes, the workers and servers on them, and the links between them.

    A worker has a node of its own, with its name. So has a server with `placement` "own"; with
    "workers" server i lives on the node of worker i (modulo their number), which it reaches at no
    cost.

    Args:
        nodes: the workers' nodes first, in the workers' order.
        workers: their names.
        servers: their names.
        topology: the link of each pair of nodes.
        placement: of the servers.
        overrides: (a, b, link): two workers or servers joined, both ways, by a link of their own.

    Raises:
        InputError: no worker; an override that is unknown, within one node, or given twice; links
            that are shared by different rules.
    """

    nodes: tuple[Node, ...]
    workers: tuple[str, ...]
    servers: tuple[str, ...]
    topology: Topology
    placement: Placement = "own"
    overrides: tuple[tuple[str, str, Link], ...] = ()

    def __post_init__(self) -> None:
        if not self.workers:
            raise InputError("a cluster needs at least 1 worker")
        pairs = set()
        for a, b, _ in self.overrides:
            pair = frozenset((self.node(a), self.node(b)))
            if len(pair) == 1:
                raise InputError(f'"{a}" and "{b}" live on one node: no link is between them')
            if pair in pairs:
                raise InputError(f'the link between "{a}" and "{b}" is overridden twice')
            pairs.add(pair)
        if any(link.sharing != self.sharing for link in self.links):
            raise InputError(
                "sharing: one rule for all links of a cluster, as they meet at the same ports: "
                "fair or serial"
            )

    @property
    def links(self) -> tuple[Link, ...]:
        """Every distinct description of a link: the topology's, then the overrides'."""
        outer = (self.topology.outer,) if isinstance(self.topology, Hierarchical) else ()
        return (self.topology.link, *outer, *(link for _, _, link in self.overrides))

    @property
    def sharing(self) -> Sharing:
        """How messages that meet at a port share it: "fair" or "serial"."""
        return self.topology.link.sharing

    def node(self, name: str) -> Node:
        """Return the node that the worker or server called `name` lives on.

        Raises:
            InputError: there is no such worker or server.
        """
        if name not in self._position:
            raise unknown("worker or server", name, self._position)
        return self.nodes[self._position[name]]

    def link(self, source: str, target: str) -> Link:
        """Return the link from the worker or server `source` to `target`, in constant time.

        Raises:
            InputError: no such worker or server, or nothing joins the two.
        """
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

    @cached_property
    def _position(self) -> dict[str, int]:
        positions = {node.name: position for position, node in enumerate(self.nodes)}
        if self.placement == "workers":
            for number, server in enumerate(self.servers):
                positions[server] = number % len(self.workers)
        return positions

    @cached_property
    def _special(self) -> dict[tuple[int, int], Link]:
        special = {}
        for a, b, link in self.overrides:
            pair = self._position[a], self._position[b]
            special[pair] = special[pair[::-1]] = link
        return special
