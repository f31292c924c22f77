"""Links, the port time that messages need, and topologies.

A topology gives the link from one node to another, both by their position in `Cluster.nodes`, or
None. Nodes without a link cannot exchange messages: nothing is routed through a third node.
"""

import re
from dataclasses import dataclass, replace
from math import inf
from typing import Any, ClassVar, Literal

from paracosm.cluster.nccl import Nccl
from paracosm.errors import InputError, shown
from paracosm.units import format_size, parse_size, real, whole

Duplex = Literal["full", "half"]


@dataclass(frozen=True)
class Packets:
    """Streams at a port are served in turn, `quantum` bytes at a time."""

    quantum: float

    def __post_init__(self) -> None:
        quantum = real(self.quantum)
        if not 1 <= quantum < inf:
            raise InputError(f"packets: a quantum is finite and 1 byte or more, not {self.quantum}")
        object.__setattr__(self, "quantum", quantum)

    def __str__(self) -> str:
        return f"packets({format_size(self.quantum, exact=True).replace(' ', '')})"


Sharing = Literal["fair", "serial"] | Packets


def parse_sharing(value: Any) -> Sharing:
    """Read "fair", "serial" or "packets(16KiB)"."""
    if value in ("fair", "serial") or isinstance(value, Packets):
        known: Sharing = value
        return known
    match = re.fullmatch(r"packets\s*\((.*)\)", str(value).strip())
    if match is None:
        raise InputError(f'write fair, serial or packets(16KiB), not "{value}"')
    if re.fullmatch(r"[\d.eE+\-\s]*", match[1]):
        raise InputError(f'"{value}": a quantum has a unit: write packets(16KiB)')
    return Packets(parse_size(match[1]))


@dataclass(frozen=True)
class Link:
    """A channel from one node to another.

    A message of `size` bytes takes `overhead + latency + size / bandwidth` seconds on an idle
    network. For `occupancy` of these it needs the ports at both ends. Messages at a port share it
    max-min fairly, as TCP streams do on average; or have it one after the other ("serial"), as in
    Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect"; or in turn,
    a quantum at a time (`Packets`). `paracosm.network` implements these rules.

    Raises:
        InputError: a value that is out of range.
    """

    bandwidth: float = inf  # bytes/s, above 0
    latency: float = 0.0  # seconds from the first byte sent to the first byte received
    overhead: float = 0.0  # seconds that each message costs its ports, whatever its size
    duplex: Duplex = "full"  # or "half" where a port either sends or receives
    # Whether latency passes after the ports are free again, as on a real network, so that the next
    # message can follow at once. Zhang et al.'s messages hold them meanwhile.
    pipelined: bool = True
    sharing: Sharing = "fair"

    def __post_init__(self) -> None:
        numbers = {name: real(getattr(self, name)) for name in ("bandwidth", "latency", "overhead")}
        if not numbers["bandwidth"] > 0:
            raise InputError(f"link: bandwidth must be above 0, not {shown(self.bandwidth)}")
        for name, value in (("latency", self.latency), ("overhead", self.overhead)):
            if not 0 <= numbers[name] < inf:
                raise InputError(f"link: {name} must be finite and 0 or more, not {shown(value)}")
        for name, number in numbers.items():
            object.__setattr__(self, name, number)
        if not isinstance(self.pipelined, bool):
            raise InputError(f"link: pipelined must be True or False, not {self.pipelined!r}")
        if str(self.duplex) not in ("full", "half"):
            raise InputError(f'link: duplex must be full or half, not "{self.duplex}"')
        if not isinstance(self.sharing, Packets) and str(self.sharing) not in ("fair", "serial"):
            raise InputError(
                f'link: sharing must be fair, serial or packets(SIZE), not "{self.sharing}"'
            )

    def occupancy(self, size: float) -> float:
        """Return the seconds for which a message of `size` bytes needs the ports at both ends."""
        held = self.overhead if self.pipelined else self.overhead + self.latency
        return held + size / self.bandwidth

    def propagation(self, size: float) -> float:
        """Return the seconds from the release of the ports until the message has arrived."""
        return self.latency if self.pipelined else 0.0

    def transfer_time(self, size: float) -> float:
        """Return the seconds that a message of `size` bytes takes on an idle network."""
        return self.overhead + self.latency + size / self.bandwidth

    def exchange_time(self, size: float) -> float:
        """Return the seconds in which every node sends and receives a message of `size` bytes."""
        before = self.occupancy(size) if self.duplex == "half" else 0.0
        return before + self.transfer_time(size)

    def shared(self, load: float) -> "Link":
        """Return the effective link of each of `load` equal messages that share its ports.

        By every rule of sharing, the last one ends when the ports have served them all.
        """
        if load == 1:
            return self
        held = 1.0 if self.pipelined else load
        return replace(
            self,
            bandwidth=self.bandwidth / load,
            latency=self.latency * held,
            overhead=self.overhead * load,
        )

    @staticmethod
    def constant(seconds: float) -> "Link":
        """Return the link on which every message takes `seconds`, whatever its size."""
        return Link(latency=seconds)


# Between two roles on one node: nothing is sent.
LOCAL = Link()


@dataclass(frozen=True)
class Star:
    """Workers around servers: every node has links to those of the servers, workers to no other."""

    link: Link  # of each pair
    centres: range  # positions of the nodes that hold a server
    name: ClassVar[str] = "star"

    def between(self, source: int, target: int) -> Link | None:
        return self.link if source in self.centres or target in self.centres else None


@dataclass(frozen=True)
class Switch:
    """One switch of full bisection bandwidth: every pair of nodes is joined."""

    link: Link
    name: ClassVar[str] = "switch"

    def between(self, source: int, target: int) -> Link | None:
        return self.link


@dataclass(frozen=True)
class Ring:
    """`size` nodes in a circle, each joined to its two neighbours."""

    link: Link
    size: int
    name: ClassVar[str] = "ring"

    def between(self, source: int, target: int) -> Link | None:
        return self.link if (source - target) % self.size in (1, self.size - 1) else None


@dataclass(frozen=True)
class Hierarchical:
    """Groups of nodes: one link within a group (a machine, a rack), another one between groups.

    Workers fill the groups in order. Servers on nodes of their own are assigned in turn: server i
    belongs to group i, modulo the number of groups.

    Messages out of a group pass its network cards, each as fast as `outer`. Neighbours share a
    card: of 8 workers and 4 cards, workers 0 and 1 the first. By default each worker has its own.
    Groups may be under leaf switches: messages between leaves pass the uplink of one and the
    downlink of the other, which are as fast as all cards of a leaf together, divided by
    `oversubscription`.
    """

    link: Link  # within a group
    outer: Link  # between groups
    group_size: int  # workers in a group; the last group may have fewer
    workers: int
    cards: int | None = None  # network cards of a group; None for one of each worker
    leaf: int | None = None  # groups under one leaf switch; None where there is one switch
    oversubscription: float = 1.0  # of a leaf's uplink, above 1 where there are leaf switches
    # where NCCL runs the collectives, which goes over all cards of a group at once
    nccl: Nccl | None = None
    name: ClassVar[str] = "hierarchical"

    def __post_init__(self) -> None:
        for name in ("group_size", "workers", "cards", "leaf"):
            given = getattr(self, name)
            if given is None and name in ("cards", "leaf"):
                continue
            number = whole(given)
            if number is None:
                raise InputError(f"hierarchical: {name} must be a whole number, not {shown(given)}")
            object.__setattr__(self, name, number)
        object.__setattr__(self, "oversubscription", real(self.oversubscription))
        if self.group_size < 1:
            raise InputError(f"hierarchical: group_size must be 1 or more, not {self.group_size}")
        if self.cards is not None and not 1 <= self.cards <= self.group_size:
            raise InputError(
                f"hierarchical: cards must be 1 to group_size={self.group_size}, not {self.cards}: "
                "a worker uses one card, whose bandwidth is that between groups"
            )
        if self.leaf is None and self.oversubscription != 1:
            raise InputError("hierarchical: oversubscription needs leaf, groups of a leaf switch")
        if self.leaf is None:
            return
        if self.leaf < 1:
            raise InputError(f"hierarchical: leaf must be 1 group or more, not {self.leaf}")
        if not 1 < self.oversubscription < inf:
            raise InputError(
                f"hierarchical: oversubscription must be above 1, not {self.oversubscription}: "
                "uplinks as fast as all cards below them have no effect"
            )
        if self.outer.sharing == "serial" or self.outer.duplex == "half":
            raise InputError(
                "hierarchical: leaf: an uplink carries several messages at once, both ways: it "
                "needs sharing fair or packets, and duplex full"
            )

    @property
    def shares_ports(self) -> bool:
        """Whether workers share ports on the way out of their group."""
        return self.leaf is not None or (self.cards or self.group_size) < self.group_size

    @property
    def uplink(self) -> float:
        """Messages at full speed that the uplink of a leaf switch carries at once."""
        below = (self.leaf or 1) * (self.cards or self.group_size)
        return below / self.oversubscription

    def between(self, source: int, target: int) -> Link | None:
        return self.link if self.group(source) == self.group(target) else self.outer

    def group(self, node: int) -> int:
        """Return the number of the group that `node` belongs to."""
        if node < self.workers:
            return node // self.group_size
        return (node - self.workers) % self._groups

    def card(self, node: int) -> int | None:
        """Return the number within its group of the card that `node` shares; None for its own."""
        if self.cards is None or self.cards == self.group_size:
            return None
        if node < self.workers:
            return node % self.group_size * self.cards // self.group_size
        return (node - self.workers) // self._groups % self.cards

    @property
    def _groups(self) -> int:
        return -(-self.workers // self.group_size)


Topology = Star | Switch | Ring | Hierarchical
