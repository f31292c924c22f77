"""Serial sharing in Python, for simulations that open connections as they go.

After Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect", sections
3.2 and 3.3: a transfer holds the send port of its source and the receive port of its target, both
for the same time; over a half-duplex link all four ports of the two nodes.

    **A request waits at one busy port that it needs. When ports become free, the requests that wait
    at them are examined in the order in which they were made; each starts, or moves on to another
    busy port that it needs, until the ports are busy again.**

So a port never idles while a request could start, and **of all requests that could start, the
earliest does**. Both ends of a transfer are freed before any request is examined: with the sender
first, one with a long queue to one target would monopolise it; with the receiver first, a sender's
own requests would overtake one another. There are no scans: waiting and being found again costs
O(1), and O(log w) for the few that wait out of order.

`request` and `release` are for a simulation that has a heap of events of its own; `SerialTraffic`
has one, and is used as `paracosm.network.fair.FairTraffic` is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from paracosm.network.clock import LAST_INSTANT


class Clock(Protocol):
    """A simulation's time, and its heap of events (time, number, call, argument)."""

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

    Requests wait in the order in which they were made. They nearly always arrive in that order, and
    wait in a deque; the few that move here from another port, and are older than the deque's last
    one, wait in a heap next to it.

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
        """Enqueue a request."""
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
        """The number of the earliest request that waits here."""
        late, in_order = self._late, self._in_order
        if late and (not in_order or late[0][0] < in_order[0].number):
            return late[0][0]
        number: int = in_order[0].number
        return number

    def leave(self, claim: Claim) -> None:
        """Remove a request if it waits here."""
        before = len(self._in_order) + len(self._late)
        if self._in_order:
            self._in_order = deque(other for other in self._in_order if other is not claim)
        if self._late:
            self._late = [late for late in self._late if late[1] is not claim]
            heapify(self._late)
        self.waiting -= before - len(self._in_order) - len(self._late)

    def pop(self) -> Any:
        """Remove and return the earliest request that waits here."""
        self.waiting -= 1
        late, in_order = self._late, self._in_order
        if late and (not in_order or late[0][0] < in_order[0].number):
            return heappop(late)[1]
        return in_order.popleft()


def request(claim: Claim) -> None:
    """Give a transfer its ports and schedule its end, or enqueue it at one that is busy."""
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
    """Free the ports of a route, and start or move on the requests that wait there."""
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


@dataclass(eq=False, slots=True)
class _Route:
    sim: SerialTraffic
    numbers: tuple[int, ...]
    ports: tuple[SerialPort, ...]
    plain: bool
    outgoing: SerialPort
    incoming: SerialPort


@dataclass(eq=False, slots=True)
class _Transfer:
    message: int
    number: int
    route: _Route
    occupancy: float
    began: float = -1


class SerialTraffic:
    """Transfers that hold ports alone, for whole picoseconds; used like `FairTraffic`."""

    def __init__(self, capacities: Iterable[float] = ()) -> None:
        """Begin with a port for each of `capacities`, which have no effect."""
        self.now = 0.0
        self.near: list[Any] = []
        self.complete: Any = None  # `pop_end` ends transfers
        self._ports = [SerialPort() for _ in capacities]
        self._under_way: dict[int, _Transfer] = {}  # and waiting, by number
        self._requests = 0

    def copy(self) -> SerialTraffic:
        """Return traffic that goes on as this does if nothing else is requested."""
        new = SerialTraffic(0.0 for _ in self._ports)
        new.now, new._requests = self.now, self._requests
        ends = {number: end for end, number, _, _ in self.near}
        # Who holds ports first. Others then wait as they do now: at which busy port has no effect.
        for number in sorted(self._under_way, key=lambda number: (number not in ends, number)):
            old = self._under_way[number]
            lasts = ends[number] - self.now if number in ends else old.occupancy
            new._request(_Transfer(old.message, number, new.route(old.route.numbers), lasts))
        return new

    def add_station(self, capacity: float) -> None:
        """Add a port, of whatever capacity: demands are picoseconds."""
        self._ports.append(SerialPort())

    def route(self, stations: Iterable[int]) -> _Route:
        """Return the route through ports, at least one."""
        numbers = tuple(stations)
        ports = tuple(self._ports[number] for number in numbers)
        return _Route(self, numbers, ports, len(ports) == 2, ports[0], ports[-1])

    def request(
        self, message: int, route: _Route, demand: float, now: int, stream: Hashable = None
    ) -> None:
        """Hold the ports of a route for `demand` picoseconds as soon as they are free."""
        self.now = now
        self._request(_Transfer(message, self._requests, route, round(demand)))
        self._requests += 1

    def next_end(self) -> int:
        """Return the instant at which the next transfer ends; the last instant if there is none."""
        return min(self.near[0][0], LAST_INSTANT) if self.near else LAST_INSTANT

    def pop_end(self, now: int) -> int:
        """End a transfer that ends now, hand on its ports, and return its message; -1 for none."""
        if self.next_end() > now:
            return -1
        self.now = now
        transfer = heappop(self.near)[3]
        del self._under_way[transfer.number]
        release(transfer.route)
        message: int = transfer.message
        return message

    def settle(self, now: int) -> None:
        """Do nothing: starts are decided at every request and every end."""

    def _request(self, transfer: _Transfer) -> None:
        self._under_way[transfer.number] = transfer
        request(transfer)
