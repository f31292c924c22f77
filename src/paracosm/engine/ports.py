"""Ports: where transfers queue. The network model of the engine.

After Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect", sections
3.2 and 3.3: a node has a send port and a receive port, which work independently of each other and
of what the node computes. A transfer holds the send port of its source and the receive port of its
target, both for the same time. So transfers to several targets are serialised at the sender, and
from several sources at the receiver. A sender whose target is busy leaves a request there, to be
told when it is free, and goes on to the next one in its queue.

In the paper a port is a coroutine. Here it is a flag and a queue of requests, and a transfer is one
event, at its end. One rule does it all:

    **A request waits at one port that it needs and that is busy. When ports are free again, the
    requests that wait at them are looked at in the order in which they were made; each starts, or
    moves on to another busy port that it needs, until the ports are busy again.**

It follows that a port never idles while a request could start, and that **of all requests that
could start, the one made first does**. Both ends of a transfer are set free before anybody is
looked at. Were it the sender's turn first, one with a long queue to one target would keep the
target for itself while others that asked earlier wait; were it the receiver's, a sender's own
requests would overtake one another for no reason.

Where the source or the target has a half-duplex link, a transfer over it holds all four ports of
the two nodes, so that neither can send and receive at the same time; everything else is the same.

A request moves only when a port that it waits at is free. Whether ten thousand senders wait for
one target or one sender has ten thousand requests for targets that are busy, nothing is ever
scanned; to wait and to be found again costs O(1), and O(log w) for the few that wait out of order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from heapq import heappop, heappush
from math import inf, isnan
from typing import TYPE_CHECKING, Any

from paracosm.engine.errors import duration_error
from paracosm.engine.future import Future

if TYPE_CHECKING:
    from paracosm.engine.worker import Worker

# The requests at a port where none ever waited: a deque takes half a kilobyte.
_NOTHING: deque[Transfer] = deque(maxlen=0)
_NOBODY: list[tuple[int, Transfer]] = []

__all__ = ["Port", "Ports", "Route", "Transfer"]


class Transfer:
    """A message, from `send` to its arrival. Awaiting it waits until it has arrived.

    Attributes:
        route: from where to where.
        data: what was sent; not a copy.
        tag: what kind of message it is, for `recv(tag=...)`; None if none was given.
        size: bytes.
        occupancy: for how long it holds its ports, in seconds.
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


class Port:
    """One direction of a node's connection to the network.

    Requests wait in the order in which they were made. Nearly always they also come in that order,
    so they wait in a deque; the few that move here from another port, and are older than the last
    one in the deque, wait in a heap beside it.

    Attributes:
        busy: the transfer that holds it, or None.
        waiting: how many requests wait for it.
        routes: those that go through it; they keep its statistics.
    """

    __slots__ = ("_in_order", "_late", "busy", "routes", "waiting")

    def __init__(self) -> None:
        self.busy: Transfer | None = None
        self.waiting = 0
        self.routes: list[Route] = []
        self._in_order = _NOTHING
        self._late: list[tuple[int, Transfer]] = _NOBODY

    def park(self, transfer: Transfer) -> None:
        """Let a request wait here."""
        self.waiting += 1
        in_order = self._in_order
        if in_order and in_order[-1].number > transfer.number:
            heappush(self._late, (transfer.number, transfer))
        elif in_order is not _NOTHING:
            in_order.append(transfer)
        else:
            self._in_order = deque((transfer,))
            self._late = []

    @property
    def first(self) -> int:
        """The number of the request that was made first of those that wait here."""
        late, in_order = self._late, self._in_order
        if late and (not in_order or late[0][0] < in_order[0].number):
            return late[0][0]
        return in_order[0].number

    def pop(self) -> Transfer:
        """Remove and return the request that was made first of those that wait here."""
        self.waiting -= 1
        late, in_order = self._late, self._in_order
        if late and (not in_order or late[0][0] < in_order[0].number):
            return heappop(late)[1]
        return in_order.popleft()

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
        """For how many seconds it was held, up to now."""
        total = sum(route.busy_time for route in self.routes)
        current = self.busy
        if current is not None and self in (current.route.incoming, current.route.outgoing):
            total += current.route.source.sim.now - current.began
        return total


class Ports:
    """The two ports of a node.

    Workers on one node share them, and what they send to one another without a `delay` does not
    go through them.
    """

    __slots__ = ("receive", "send")

    def __init__(self) -> None:
        self.send = Port()
        self.receive = Port()


class Route:
    """The way from one worker to another, looked up once and then kept by the source.

    Attributes:
        sim: the simulation of both.
        mailbox: of the target.
        link: a `paracosm.cluster.Link` or the like; None if the network is not modelled.
        outgoing: the send port of the source.
        incoming: the receive port of the target.
        local: whether the two are on one node.
        half: whether the link is half-duplex.
        ports: all that a transfer holds.
        transfers, bytes, busy_time: of completed transfers.
    """

    __slots__ = (
        "busy_time",
        "bytes",
        "half",
        "incoming",
        "link",
        "local",
        "mailbox",
        "outgoing",
        "ports",
        "sim",
        "source",
        "target",
        "transfers",
    )

    def __init__(self, source: Worker, target: Worker, link: Any) -> None:
        self.source = source
        self.target = target
        self.sim = source.sim
        self.mailbox = target.mailbox
        self.link = link
        self.outgoing = source.ports.send
        self.incoming = target.ports.receive
        self.local = source.ports is target.ports
        self.half = link is not None and link.duplex == "half" and not self.local
        self.ports: tuple[Port, ...] = self.incoming, self.outgoing
        if self.half:
            self.ports += source.ports.receive, target.ports.send
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
