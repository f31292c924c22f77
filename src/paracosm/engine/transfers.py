"""Transfers: messages on their way through the ports of two nodes.

Where the network is shared serially, as it is without one and with a network of the user's own, a
transfer holds its ports alone (`paracosm.network.serial` has the rule), and is one event, at its
end. On a cluster whose links are shared fairly, transfers flow side by side; `flows` does that.
"""

from __future__ import annotations

from collections.abc import Generator
from heapq import heappush
from math import inf, isnan
from typing import TYPE_CHECKING, Any, Literal

from paracosm.engine.errors import duration_error
from paracosm.engine.future import Future
from paracosm.engine.mailbox import deliver
from paracosm.network.serial import SerialPort, release

if TYPE_CHECKING:
    from paracosm.engine.flows import Flows, FlowWay
    from paracosm.engine.walker import Continuation
    from paracosm.engine.worker import Worker

__all__ = ["Port", "Ports", "Route", "Transfer", "complete", "hand_over"]


class Transfer:
    """A message, from `send` to its arrival. Awaiting it waits until it has arrived.

    Attributes:
        route: from where to where.
        data: what was sent; not a copy.
        tag: what kind of message it is, for `recv(tag=...)`; None if none was given.
        size: bytes.
        occupancy: for how long it holds its ports, or flows through them, in seconds; where ports
            are shared fairly, that is known at its end, and NaN before.
        propagation: seconds from the release of the ports until it has arrived.
        number: counts up with the requests of a simulation.
        began: when it got its ports, in virtual time; NaN before that.
        arrived: when it arrived; NaN before that.
        awaited: the future of its arrival, once somebody has asked for it.
    """

    __slots__ = (
        "arrived",
        "awaited",
        "began",
        "data",
        "number",
        "occupancy",
        "propagation",
        "route",
        "size",
        "tag",
    )

    # `Worker.send` makes transfers and sets all of these itself: an `__init__` with eight arguments
    # would take a fifth of the time of a message.
    route: Route
    data: Any
    tag: Any
    size: float
    occupancy: float
    propagation: float
    number: int
    began: float
    arrived: float
    awaited: Future | None

    @property
    def source(self) -> str:
        """The name of the sender."""
        return self.route.source.name

    @property
    def target(self) -> str:
        """The name of the receiver."""
        return self.route.target.name

    def _as_future(self) -> Future:
        """Return the future of the arrival, which is made for the first who asks."""
        if self.awaited is None:
            self.awaited = Future(self.route.source.sim, f"the arrival at {self.target}")
            if not isnan(self.arrived):
                self.awaited.set_result(self)
        return self.awaited

    def __await__(self) -> Generator[None, Any, Transfer]:
        return self._as_future().__await__()

    def __repr__(self) -> str:
        tag = "" if self.tag is None else f", tag {self.tag!s}"
        return f"<Transfer {self.number} from {self.source} to {self.target}{tag}>"


class Port(SerialPort):
    """One direction of a node's connection to the network, and its statistics.

    Attributes:
        routes: those that go through it; they keep its statistics.
        flows: how many transfers flow through it, where it is shared fairly.
        flowing_since: when the first of these began.
        flowed: for how many seconds transfers flowed through it before.
    """

    __slots__ = ("flowed", "flowing_since", "flows", "routes")

    def __init__(self) -> None:
        super().__init__()
        self.routes: list[Route] = []
        self.flows = 0
        self.flowed = self.flowing_since = 0.0

    @property
    def transfers(self) -> int:
        """How many transfers it has completed."""
        return sum(route.transfers for route in self.routes)

    @property
    def bytes(self) -> float:
        """How many bytes those had."""
        return sum(route.bytes for route in self.routes)

    @property
    def busy_time(self) -> float:
        """For how many seconds transfers went through it, up to now."""
        total = self.flowed + sum(route.busy_time for route in self.routes)
        current = self.busy
        if current is not None and self in (current.route.incoming, current.route.outgoing):
            total += current.route.source.sim.now - current.began
        if self.flows:
            total += self.routes[0].sim.now - self.flowing_since
        return total


class Ports:
    """The ports of a node: two, and in a hierarchical cluster two more for what leaves its group.

    Workers on one node share them, and what they send to one another without a `delay` does not
    go through them.
    """

    __slots__ = ("_outer", "receive", "send")

    def __init__(self) -> None:
        self.send = Port()
        self.receive = Port()
        self._outer: Ports | None = None

    @property
    def outer(self) -> Ports:
        """The ports for messages that leave the group of the node."""
        if self._outer is None:
            self._outer = Ports()
        return self._outer

    def busy_time(self, direction: Literal["send", "receive"]) -> float:
        """For how many seconds the busier one of its ports for one direction was held."""
        port: Port = getattr(self, direction)
        outer = 0.0 if self._outer is None else self._outer.busy_time(direction)
        return max(port.busy_time, outer)


class Route:
    """The way from one worker to another, looked up once and then kept by the source.

    Attributes:
        sim: the simulation of both.
        mailbox: of the target.
        link: a `paracosm.cluster.Link` or the like; None if the network is not modelled.
        outgoing: the send port of the source.
        incoming: the receive port of the target.
        local: whether the two are on one node.
        plain: whether a transfer holds these two ports alone, and no others.
        ports: all that a transfer holds.
        flow: its connection, where ports are shared fairly.
        transfers, bytes, busy_time: of completed transfers; busy_time where they hold their ports.
    """

    __slots__ = (
        *("busy_time", "bytes", "flow", "incoming", "link", "local", "mailbox", "outgoing"),
        *("plain", "ports", "sim", "source", "target", "transfers"),
    )

    def __init__(self, source: Worker, target: Worker, link: Any, flows: Flows | None) -> None:
        self.source = source
        self.target = target
        self.sim = source.sim
        self.mailbox = target.mailbox
        self.link = link
        self.local = source.ports is target.ports
        here, there = source.ports, target.ports
        if self.sim._leaves_group(source.name, target.name):
            here, there = here.outer, there.outer
        self.outgoing = here.send
        self.incoming = there.receive
        half = link is not None and link.duplex == "half" and not self.local
        self.ports: tuple[Port, ...] = self.incoming, self.outgoing
        if half:
            self.ports += here.receive, there.send
        self.flow: FlowWay | None = None if flows is None else flows.open(self)
        self.plain = not half and flows is None
        self.transfers = 0
        self.bytes = 0.0
        self.busy_time = 0.0
        self.outgoing.routes.append(self)
        self.incoming.routes.append(self)

    def time(self, transfer: Transfer) -> float:
        """Set the propagation of a transfer as the link has it, and return the occupancy.

        Raises:
            InputError: the link gives a time that is negative or not finite.
        """
        link = self.link
        if link is None:
            return 0.0
        occupancy: float = link.occupancy(transfer.size)
        propagation: float = link.propagation(transfer.size)
        if not (0.0 <= occupancy < inf and 0.0 <= propagation < inf):
            raise duration_error(
                f"the transfer time from {transfer.source} to {transfer.target}", occupancy
            )
        transfer.propagation = propagation
        return occupancy


def hand_over(transfer: Transfer) -> Transfer:
    """Let a message arrive within its node, at once."""
    sim = transfer.route.sim
    transfer.number = sim._tick()
    transfer.occupancy = 0.0
    transfer.began = sim.now
    sim._deliver(transfer)
    return transfer


def complete(transfer: Transfer) -> Continuation | None:
    """Give the ports back, let those that wait for them start, and deliver the message.

    Returns:
        The continuation of the walker that gets the message, for the loop to resume; None if there
        is none, or if it is resumed in another way.
    """
    route = transfer.route
    route.transfers += 1
    route.bytes += transfer.size
    if route.flow is None:
        route.busy_time += transfer.occupancy
        incoming, outgoing = route.incoming, route.outgoing
        if incoming.waiting or outgoing.waiting or not route.plain:
            release(route)
        else:
            incoming.busy = outgoing.busy = None
    else:
        route.flow.finish(transfer)
    if transfer.propagation:
        sim = route.sim
        heappush(sim.near, (sim.now + transfer.propagation, sim._tick(), sim._deliver, transfer))
        return None
    # `deliver` for the common case: the first walker takes it, and nobody awaits its arrival.
    mailbox = route.mailbox
    first = mailbox.first
    if first is not None and transfer.awaited is None:
        tag = mailbox.first_tag
        if tag is None or tag == transfer.tag:
            mailbox.first = first.place = None
            transfer.arrived = route.sim.now
            return first
    deliver(transfer)
    return None
