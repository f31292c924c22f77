"""Which nodes are joined, and by which link.

A topology answers one question: the link from one node to another, both given by their position in
`Cluster.nodes`, or None where there is none. Nodes that are not joined cannot exchange messages:
nothing is routed through a third node.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from paracosm.cluster.link import Link
from paracosm.errors import InputError

__all__ = ["Hierarchical", "Ring", "Star", "Switch", "Topology"]


@dataclass(frozen=True)
class Star:
    """Workers around servers: every node is joined to those of the servers, workers to no other.

    Attributes:
        link: of each pair.
        centres: positions of the nodes that hold a server.
    """

    link: Link
    centres: range
    name: ClassVar[str] = "star"

    def between(self, source: int, target: int) -> Link | None:
        """Return the link between two different nodes."""
        return self.link if source in self.centres or target in self.centres else None


@dataclass(frozen=True)
class Switch:
    """One switch of full bisection bandwidth: every pair of nodes is joined."""

    link: Link
    name: ClassVar[str] = "switch"

    def between(self, source: int, target: int) -> Link | None:
        """Return the link between two different nodes."""
        return self.link


@dataclass(frozen=True)
class Ring:
    """`size` nodes in a circle, each joined to its two neighbours."""

    link: Link
    size: int
    name: ClassVar[str] = "ring"

    def between(self, source: int, target: int) -> Link | None:
        """Return the link between two different nodes."""
        return self.link if (source - target) % self.size in (1, self.size - 1) else None


@dataclass(frozen=True)
class Hierarchical:
    """Groups of nodes: one link within a group (a machine, a rack), another one between groups.

    Workers fill the groups one after the other. Servers on nodes of their own are dealt out to the
    groups in turn: server i belongs to group i, modulo the number of groups.

    Attributes:
        link: within a group.
        outer: between groups.
        group_size: workers in a group; the last group may have fewer.
        workers: their number.
    """

    link: Link
    outer: Link
    group_size: int
    workers: int
    name: ClassVar[str] = "hierarchical"

    def __post_init__(self) -> None:
        if self.group_size < 1:
            raise InputError(f"hierarchical: group_size must be 1 or more, not {self.group_size}")

    def between(self, source: int, target: int) -> Link | None:
        """Return the link between two different nodes."""
        return self.link if self.group(source) == self.group(target) else self.outer

    def group(self, node: int) -> int:
        """Return the number of the group that `node` belongs to."""
        if node < self.workers:
            return node // self.group_size
        return (node - self.workers) % -(-self.workers // self.group_size)


Topology = Star | Switch | Ring | Hierarchical
