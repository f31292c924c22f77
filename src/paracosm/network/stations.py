"""The ports of a cluster as *stations*: what a message passes, and what it asks of them.

    worker0.send --\\                          /-- worker0.receive
    worker1.send ----> server0.receive   server0.send ----> worker1.receive

A node has a send port and a receive port, and in a `hierarchical` cluster a second pair for what
leaves its group; of nodes that share a network card, that pair is the card's. A message passes the
send port of its source and the receive port of its target, over a half-duplex link the other two
ports as well, and between leaf switches an uplink and a downlink; within a node it passes none.

Where messages have their ports one after the other (`sharing` "serial"), each holds all of its
stations alone, for some picoseconds. Where they flow side by side ("fair") or in turn (packets), a
port is as fast as the fastest link of its node, and a link that is slower than both ports is one
more station, of that pair and direction (one for both directions with half duplex).
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from math import isinf

from paracosm.cluster import Cluster, Link
from paracosm.cluster.link import Hierarchical, Sharing


@dataclass(frozen=True)
class Connection:
    """The way of messages from one worker or server to another.

    Attributes:
        number: counts up with the connections of a cluster.
        link: between the two.
        stations: what a message passes, as indices into `Stations.capacity`, each once; none where
            there is nothing to share.
        in_bytes: whether a message asks its stations for bytes, not for picoseconds.
    """

    number: int
    link: Link
    stations: tuple[int, ...]
    in_bytes: bool

    def demand(self, size: float) -> float:
        """Return the demand of a message of `size` bytes: whole picoseconds, or bytes.

        Picoseconds for which it holds its stations, or that pass if nothing is shared; bytes that
        flow through them, including overhead and latency that occupy a port, converted to bytes.
        """
        link = self.link
        if self.in_bytes:
            return size + link.occupancy(0.0) * link.bandwidth
        return float(round(link.occupancy(size) * 1e12))

    def propagation(self, size: float) -> int:
        """Return the picoseconds from the end of the transfer until the message has arrived."""
        return round(self.link.propagation(size) * 1e12)


class Stations:
    """The stations of a cluster, created as connections are requested.

    Attributes:
        sharing: of all links of the cluster.
        capacity: bytes/s of each station.
        names: "worker3.send", "worker3.outer.receive", "worker3 to server0".
        connections: how many were requested so far.
    """

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.sharing: Sharing = cluster.topology.link.sharing
        self.capacity: list[float] = []
        self.names: list[str] = []
        self.connections: list[Connection] = []
        self._connection: dict[tuple[str, str], Connection] = {}
        self._numbers: dict[str, int] = {}
        self._place = {node.name: place for place, node in enumerate(cluster.nodes)}
        self._special: dict[tuple[str, bool], dict[str, float]] = {}  # bandwidths of overrides
        self._width: dict[tuple[str, bool], float] = {}
        for a, b, link in cluster.overrides:
            here, there = cluster.node(a).name, cluster.node(b).name
            outer = self.leaves_group(a, b)
            for node, other in ((here, there), (there, here)):
                self._special.setdefault((node, outer), {})[other] = link.bandwidth

    def connect(self, source: str, target: str) -> Connection:
        """Return the connection from one worker or server to another.

        Raises:
            InputError: no such worker or server, or nothing joins the two.
        """
        known = self._connection.get((source, target))
        if known is None:
            link = self.cluster.link(source, target)
            stations = self._stations(source, target, link)
            in_bytes = self.sharing != "serial" and bool(stations)
            known = Connection(len(self.connections), link, stations, in_bytes)
            self._connection[source, target] = known
            self.connections.append(known)
        return known

    def over_link(self, source: str, target: str, link: Link) -> tuple[int, ...]:
        """Return the stations of a connection whose link is finite and not shared.

        That link is a station of its own, the last one; infinitely fast ports are left out.
        """
        here, there = self.cluster.node(source).name, self.cluster.node(target).name
        outer = self.leaves_group(source, target)
        ports = (
            (f"{self.ports_of(here, outer)}.send", self.port_capacity(here, outer)),
            (f"{self.ports_of(there, outer)}.receive", self.port_capacity(there, outer)),
        )
        numbers = [self._number(name, width) for name, width in ports if not isinf(width)]
        return (*numbers, self._number(f"{source} to {target}, alone", link.bandwidth))

    @property
    def routes(self) -> list[tuple[int, ...]]:
        """The stations of each connection, by its number."""
        return [connection.stations for connection in self.connections]

    def _stations(self, source: str, target: str, link: Link) -> tuple[int, ...]:
        here, there = self.cluster.node(source).name, self.cluster.node(target).name
        if here == there or (self.sharing != "serial" and isinf(link.bandwidth)):
            return ()
        outer = self.leaves_group(source, target)
        sending, receiving = self.port_capacity(here, outer), self.port_capacity(there, outer)
        sender, receiver = self.ports_of(here, outer), self.ports_of(there, outer)
        half = link.duplex == "half"
        numbers = [
            self._number(f"{sender}.send", sending),
            self._number(f"{receiver}.receive", receiving),
        ]
        if half:
            numbers.append(self._number(f"{sender}.receive", sending))
            numbers.append(self._number(f"{receiver}.send", receiving))
        numbers += self._uplinks(here, there)
        if self.sharing != "serial" and link.bandwidth < min(sending, receiving):
            pair = " and ".join(sorted((here, there))) if half else f"{here} to {there}"
            numbers.append(self._number(pair, link.bandwidth))
        return tuple(numbers)

    def leaves_group(self, source: str, target: str) -> bool:
        """Whether messages between two workers or servers go from one group to another."""
        topology = self.cluster.topology
        if not isinstance(topology, Hierarchical):
            return False
        here, there = (self._place[self.cluster.node(name).name] for name in (source, target))
        return topology.group(here) != topology.group(there)

    def ports_of(self, node: str, outer: bool) -> str:
        """Return the owner of the ports that a node uses: itself, its group, or a card."""
        topology = self.cluster.topology
        if not (outer and isinstance(topology, Hierarchical)):
            return node
        card = topology.card(self._place[node])
        if card is None:
            return f"{node}.outer"
        return f"card{card} of group{topology.group(self._place[node])}"

    def port_capacity(self, node: str, outer: bool) -> float:
        """Return the bandwidth of the fastest link of a node, within its group or out of it."""
        topology = self.cluster.topology
        link = topology.outer if outer and isinstance(topology, Hierarchical) else topology.link
        special = self._special.get((node, outer))
        if special is None:
            return link.bandwidth
        width = self._width.get((node, outer))
        if width is None:
            width = max(special.values())
            if self._has_others(node, outer, special):
                width = max(width, link.bandwidth)
            self._width[node, outer] = width
        return width

    def _uplinks(self, here: str, there: str) -> list[int]:
        """Return the stations between two leaf switches; none below one."""
        topology = self.cluster.topology
        if not isinstance(topology, Hierarchical) or topology.leaf is None:
            return []
        up, down = (topology.group(self._place[node]) // topology.leaf for node in (here, there))
        if up == down:
            return []
        width = topology.uplink * topology.outer.bandwidth
        ways = (f"leaf{up}.uplink", f"leaf{down}.downlink")
        return [self._number(way, width) for way in ways]

    def _has_others(self, node: str, outer: bool, special: Collection[str]) -> bool:
        """Whether not all links of a node, or of the card that it shares, are overridden."""
        topology, here, known = self.cluster.topology, self._place[node], {node, *special}
        others = (there for name, there in self._place.items() if name not in known)
        if not isinstance(topology, Hierarchical):
            return any(topology.between(here, there) is not None for there in others)
        if outer and topology.card(here) is not None:
            return True
        group = topology.group(here)
        return any((topology.group(there) != group) == outer for there in others)

    def _number(self, name: str, capacity: float) -> int:
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
            self.capacity.append(capacity)
        return number


def binding_routes(
    routes: Sequence[Sequence[int]], capacity: Sequence[float], kept: Collection[int] = ()
) -> list[tuple[int, ...]]:
    """Return the routes without stations that never limit a flow, and those stations, ascending.

    A station never does if it is infinitely fast, or if the other stations of its traffic cannot
    bring it more than it carries: the narrowest other station of each route, each counted once.
    Rates are the same without it (max-min rates depend only on what is feasible), and workers
    around a server whose ports are as wide as theirs are one route. Stations of few routes are
    removed first; a removed one cannot justify removing another.

    Args:
        routes: stations of each.
        capacity: bytes/s of each station.
        kept: stations that are never removed, because other traffic uses them.
    """
    finite = [tuple(sorted(at for at in route if not isinf(capacity[at]))) for route in routes]
    left = {route: list(route) for route in finite}
    through: dict[int, list[list[int]]] = {}
    for route in left.values():
        for station in route:
            through.setdefault(station, []).append(route)
    for station in sorted(through.keys() - set(kept), key=lambda at: (len(through[at]), at)):
        limits = set()
        for route in through[station]:
            others = [(capacity[at], at) for at in route if at != station]
            if not others:
                break
            limits.add(min(others))
        else:
            if sum(bandwidth for bandwidth, _ in limits) <= capacity[station]:
                for route in through[station]:
                    route.remove(station)
    return [tuple(left[route]) for route in finite]
