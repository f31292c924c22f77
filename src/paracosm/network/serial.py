"""Serial sharing: ports that messages hold alone, and the requests that queue at them.

After Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect", sections
3.2 and 3.3: a node has a send port and a receive port, which work independently of each other and
of what the node computes. A transfer holds the send port of its source and the receive port of its
target, both for the same time. So transfers to several targets are serialised at the sender, and
from several sources at the receiver. A sender whose target is busy leaves a request there, to be
told when it is free, and goes on to the next one in its queue.

In the paper a port is a coroutine. Here it is a flag and a queue of requests. One rule does it all:

    **A request waits at one port that it needs and that is busy. When ports are free again, the
    requests that wait at them are looked at in the order in which they were made; each starts, or
    moves on to another busy port that it needs, until the ports are busy again.**

It follows that a port never idles while a request could start, and that **of all requests that
could start, the one made first does**. Both ends of a transfer are set free before anybody is
looked at. Were it the sender's turn first, one with a long queue to one target would keep the
target for itself while others that asked earlier wait; were it the receiver's, a sender's own
requests would overtake one another for no reason.

Over a half-duplex link a transfer holds all four ports of the two nodes, so that neither can send
and receive at the same time; everything else is the same.

A request moves only when a port that it waits at is free. Whether ten thousand senders wait for
one target or one sender has ten thousand requests for targets that are busy, nothing is ever
scanned; to wait and to be found again costs O(1), and O(log w) for the few that wait out of order.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from typing import Any, Protocol

__all__ = ["Claim", "Clock", "SerialPort", "Way", "release", "request"]


class Clock(Protocol):
    """Who knows the time, and a heap of events (time, number, call, argument): a simulation."""

    now: float
    near: list[Any]
    complete: Callable[[Any], Any]
    """To be called with a claim when it has had its ports for as long as it asked."""


class Way(Protocol):
    """What a transfer holds: `ports`, two or, where it is not `plain`, more."""

    @property
    def sim(self) -> Clock: ...
    @property
    def plain(self) -> bool: ...
    @property
    def incoming(self) -> SerialPort: ...
    @property
    def outgoing(self) -> SerialPort: ...
    @property
    def ports(self) -> Sequence[SerialPort]: ...


class Claim(Protocol):
    """What asks for ports: a transfer.

    Attributes:
        number: counts up with the requests.
        occupancy: for how long it holds its ports.
        began: when it got them.
    """

    number: int
    occupancy: float
    began: float

    @property
    def route(self) -> Way: ...


# The requests at a port where none ever waited: a deque takes half a kilobyte.
_NOTHING: deque[Any] = deque(maxlen=0)
_NOBODY: list[tuple[int, Any]] = []


class SerialPort:
    """One direction of a node's connection to the network.

    Requests wait in the order in which they were made. Nearly always they also come in that order,
    so they wait in a deque; the few that move here from another port, and are older than the last
    one in the deque, wait in a heap beside it.

    Attributes:
        busy: the transfer that holds it, or None.
        waiting: how many requests wait for it.
    """

    __slots__ = ("_in_order", "_late", "busy", "waiting")

    def __init__(self) -> None:
        self.busy: Any = None
        self.waiting = 0
        self._in_order = _NOTHING
        self._late = _NOBODY

    def park(self, claim: Claim) -> None:
        """Let a request wait here."""
        self.waiting += 1
        in_order = self._in_order
        if in_order and in_order[-1].number > claim.number:
            heappush(self._late, (claim.number, claim))
        elif in_order is not _NOTHING:
            in_order.append(claim)
        else:
            self._in_order = deque((claim,))
            self._late = []

    @property
    def first(self) -> int:
        """The number of the request that was made first of those that wait here."""
        late, in_order = self._late, self._in_order
        if late and (not in_order or late[0][0] < in_order[0].number):
            return late[0][0]
        number: int = in_order[0].number
        return number

    def pop(self) -> Any:
        """Remove and return the request that was made first of those that wait here."""
        self.waiting -= 1
        late, in_order = self._late, self._in_order
        if late and (not in_order or late[0][0] < in_order[0].number):
            return heappop(late)[1]
        return in_order.popleft()


def request(claim: Claim) -> None:
    """Let a transfer have its ports and schedule its end, or wait at one that is busy."""
    route = claim.route
    if route.plain:
        # The same as below for two ports, without the loops.
        incoming, outgoing = route.incoming, route.outgoing
        if outgoing.busy is not None:
            outgoing.park(claim)
            return
        if incoming.busy is not None:
            incoming.park(claim)
            return
        incoming.busy = outgoing.busy = claim
    else:
        for port in route.ports:
            if port.busy is not None:
                port.park(claim)
                return
        for port in route.ports:
            port.busy = claim
    sim = route.sim
    now = claim.began = sim.now
    heappush(sim.near, (now + claim.occupancy, claim.number, sim.complete, claim))


def release(route: Way) -> None:
    """Set the ports of a route free, and let those that wait there start or move on."""
    incoming, outgoing = route.incoming, route.outgoing
    incoming.busy = outgoing.busy = None
    if not route.plain:
        for port in route.ports:
            port.busy = None
    elif not outgoing.waiting:
        # The loop below where only the receive port is asked for. Nobody can come to wait at the
        # send port meanwhile: it is free.
        while incoming.waiting and incoming.busy is None:
            request(incoming.pop())
        return
    while True:
        oldest = None
        for port in route.ports:
            if port.waiting and port.busy is None and (oldest is None or port.first < oldest.first):
                oldest = port
        if oldest is None:
            return
        request(oldest.pop())
