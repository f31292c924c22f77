"""Messages: on their way through the ports of two nodes, and in the mailbox of their target.

If the network is shared serially, as it is without one and with a user-defined network, a transfer
holds its ports alone (`paracosm.network.serial` has the rule), and is one event, at its end. On a
cluster whose links are shared fairly, transfers flow concurrently, or in turn if it serves packets
(`Flows`).

In a mailbox, messages are in the order of arrival, and so are processes. A message goes to the
first process whose request it matches, or else into the mailbox. So a process waits only while the
mailbox holds nothing for it, and the common case, one process that takes any message, costs O(1).
Selecting by source or tag skips the messages that do not match. A process that gives up (a
time-out, an interrupt, a cancel) is removed at once, so it cannot consume a later message.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappush
from math import inf, isinf, isnan
from typing import Any, Literal

from paracosm.cluster import Cluster, Link
from paracosm.cluster.link import Packets
from paracosm.engine.events import Stale, duration_error, seconds
from paracosm.engine.processes import (
    Awaitable,
    Continuation,
    Future,
    Process,
    Scheduler,
    WaitQueue,
)
from paracosm.errors import InputError, unknown
from paracosm.network.clock import LAST_INSTANT, PICOSECONDS
from paracosm.network.fair import FairConnection, FairTraffic
from paracosm.network.packets import PacketTraffic
from paracosm.network.serial import SerialPort, release
from paracosm.network.stations import Stations

# The messages of a worker that never had to keep one, and the transfers of a way where none ever
# waited: a deque takes half a kilobyte.
_NOTHING: deque[Any] = deque(maxlen=0)


class TransferScheduler(Scheduler):
    """The part of a simulation that carries messages; transfers call `complete` at their end."""

    def __init__(self, network: Any) -> None:
        super().__init__()
        self.network = network
        self.workers: dict[str, Any] = {}
        self._ports_of_nodes: dict[str, Ports] = {}
        self._stations = Stations(network) if isinstance(network, Cluster) else None
        flows = self._stations is not None and self._stations.sharing != "serial"
        self._flows = Flows(self, self._stations) if flows and self._stations else None
        self.complete: Callable[[Transfer], Continuation | None] = complete
        self._deliver: Callable[[Transfer], None] = deliver

    def _locate(self, name: str) -> tuple[Ports, float]:
        """Return the ports and the speed of the worker called `name`."""
        find = getattr(self.network, "node", None)
        if find is None:
            return Ports(), 1.0
        node = find(name)
        ports = self._ports_of_nodes.setdefault(node.name, Ports())
        if self._stations is not None:
            outer = self._stations.ports_of(node.name, outer=True)
            ports.outer = self._ports_of_nodes.setdefault(outer, Ports())
        return ports, node.speed

    def _leaves_group(self, source: str, target: str) -> bool:
        """Whether messages between the two go through the outer ports of their nodes."""
        return self._stations is not None and self._stations.leaves_group(source, target)

    def _transfers_under_way(self) -> list[Transfer]:
        """Return the transfers that hold their ports or flow through them, in order of request."""
        under_way = [transfer for _, _, call, transfer in self.near if call == self.complete]
        if self._flows is not None:
            under_way.extend(self._flows.under_way.values())
        return sorted(under_way, key=lambda transfer: transfer.number)

    def _anything_left(self) -> bool:
        if self._flows is not None and not self._ready and len(self.near) == self._flows.stale:
            return any(call or not target.stale for _, _, call, target in self._events)
        return super()._anything_left()


class Endpoint(Process):
    """A process that receives messages."""

    __slots__ = ("mailbox", "ports")

    sim: TransferScheduler
    mailbox: Mailbox
    ports: Ports


@dataclass(init=False, eq=False, repr=False, slots=True)
class Transfer(Awaitable):
    """A message, from `send` to its arrival. Awaiting it waits until it has arrived."""

    # `Worker.send` makes transfers and sets all of these itself: an `__init__` with eight arguments
    # would take a fifth of the time of a message.
    route: Route
    data: Any  # what was sent; not a copy
    tag: Any  # what kind of message it is, for `recv(tag=...)`; None if none was given
    size: float  # bytes
    # For how many seconds it holds its ports, or flows through them; where ports are shared fairly,
    # that is known at its end, and NaN before.
    occupancy: float
    propagation: float  # seconds from the release of the ports until it has arrived
    number: int  # counts up with the requests of a simulation
    began: float  # when it got its ports, in virtual time; NaN before that
    arrived: float  # when it arrived; NaN before that
    awaited: Future | None  # the future of its arrival, once requested

    @property
    def source(self) -> str:
        return self.route.source.name

    @property
    def target(self) -> str:
        return self.route.target.name

    def cancel(self) -> bool:
        """Abort the transfer, wherever it is; return False if it has arrived.

        Its ports are free at once; awaiting it raises `FutureCancelledError`.

        Raises:
            InputError: ports serve packets, which cannot be aborted.
        """
        if not isnan(self.arrived):
            return False
        self.route.withdraw(self)
        self._as_future().cancel()
        return True

    def _as_future(self) -> Future:
        if self.awaited is None:
            self.awaited = Future(self.route.source.sim, f"the arrival at {self.target}")
            if not isnan(self.arrived):
                self.awaited.set_result(self)
        return self.awaited

    def __repr__(self) -> str:
        tag = "" if self.tag is None else f", tag {self.tag!s}"
        return f"<Transfer {self.number} from {self.source} to {self.target}{tag}>"


class Port(SerialPort):
    """One direction of a node's connection to the network, and its statistics."""

    __slots__ = ("flowed", "flowing_since", "flows", "routes")

    def __init__(self) -> None:
        super().__init__()
        self.routes: list[Route] = []  # those that go through it; they keep its statistics
        self.flows = 0  # how many transfers flow through it, where it is shared fairly,
        self.flowing_since = 0.0  # since when any do, and for how many seconds others did before
        self.flowed = 0.0

    @property
    def transfers(self) -> int:
        return sum(route.transfers for route in self.routes)

    @property
    def bytes(self) -> float:
        return sum(route.bytes for route in self.routes)

    @property
    def busy_time(self) -> float:
        """Seconds for which transfers have gone through it, up to now."""
        total = self.flowed + sum(route.busy_time for route in self.routes)
        current = self.busy
        if current is not None and self in (current.route.incoming, current.route.outgoing):
            total += current.route.source.sim.now - current.began
        if self.flows:
            total += self.routes[0].sim.now - self.flowing_since
        return total


class Ports:
    """The ports of a node: two, and in a hierarchical cluster two more for messages out of its
    group.

    Workers on one node share them, and nodes the outer ones if they share a network card; messages
    between workers on one node without a `delay` pass none.
    """

    __slots__ = ("outer", "receive", "send")

    def __init__(self) -> None:
        self.send = Port()
        self.receive = Port()
        self.outer = self

    def busy_time(self, direction: Literal["send", "receive"]) -> float:
        """Seconds for which the busier one of its ports for one direction was held."""
        port: Port = getattr(self, direction)
        outer: Port = getattr(self.outer, direction)
        return max(port.busy_time, outer.busy_time)


@dataclass(init=False, eq=False, repr=False, slots=True)
class Route:
    """The way from one worker to another, looked up once and cached by the source."""

    source: Endpoint
    target: Endpoint
    sim: TransferScheduler
    mailbox: Mailbox  # of the target
    link: Any  # a `paracosm.cluster.Link` or the like; None if the network is not modelled
    outgoing: Port
    incoming: Port
    local: bool  # whether the two are on one node
    plain: bool  # whether a transfer holds these two ports alone, and no others
    ports: tuple[Port, ...]  # all that a transfer holds
    flow: FlowConnection | None  # its connection, where ports are shared fairly
    # Of completed transfers; the time of those that held their ports.
    transfers: int
    bytes: float
    busy_time: float

    def __init__(self, source: Endpoint, target: Endpoint, link: Any, flows: Flows | None) -> None:
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
        self.ports = self.incoming, self.outgoing
        if half:
            self.ports += here.receive, there.send
        self.flow = None if flows is None else flows.open(self)
        self.plain = not half and flows is None
        self.transfers = 0
        self.bytes = self.busy_time = 0.0
        self.outgoing.routes.append(self)
        self.incoming.routes.append(self)

    def time(self, transfer: Transfer) -> float:
        """Set the propagation of a transfer by the link, and return the occupancy."""
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

    def use(self, link: Link) -> None:
        """Route messages over a link of their own; none may be on its way."""
        if self.local or len(self.ports) > 2 or link.duplex == "half" or isinf(link.bandwidth):
            raise InputError(
                f"{self.source.name} to {self.target.name} cannot have a link of its own: that "
                "needs two nodes, full duplex and a finite bandwidth"
            )
        self.link = link
        if self.flow is not None:
            self.flow.use(link)

    def withdraw(self, transfer: Transfer) -> None:
        """Abort a message that has not arrived."""
        sim = self.sim
        began = not isnan(transfer.began)
        under_way = [event for event in sim.near if event[3] is transfer]
        if under_way:
            sim.near.remove(under_way[0])
            heapify(sim.near)
            if under_way[0][2] == sim._deliver:
                return  # its ports are free
        if began and sim._observer is not None:
            sim._observer.withdrawn(transfer)
        if self.flow is not None:
            self.flow.withdraw(transfer)
        elif began:
            self.busy_time += sim.now - transfer.began
            release(self)
        else:
            for port in self.ports:
                port.leave(transfer)


def complete(transfer: Transfer) -> Continuation | None:
    """Release the ports, start those that wait for them, and deliver the message.

    Return the continuation that gets it, for the loop to resume, unless it is resumed otherwise.
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
    # `deliver` for the common case: the first process takes it, and nobody awaits its arrival.
    mailbox = route.mailbox
    first = mailbox.first
    if first is not None and transfer.awaited is None:
        tag = mailbox.first_tag
        if tag is None or tag == transfer.tag:
            mailbox.first = first.wait_queue = None
            transfer.arrived = route.sim.now
            return first
    deliver(transfer)
    return None


# Who waits, for messages from whom (None: from anybody), tagged with what (None: with anything).
Request = tuple["Continuation", str | None, Any]


class Mailbox(WaitQueue):
    """The messages and the waiting processes of one worker."""

    __slots__ = ("_owner", "first", "first_tag", "messages", "receivers", "watchers")

    def __init__(self, owner: Endpoint) -> None:
        self._owner = owner
        self.messages: deque[Transfer] = _NOTHING  # what has arrived and was not received
        # A process that came before the receivers, and the tag that it waits for. Nearly always it
        # is the only one; it would cost as much again to list it.
        self.first: Continuation | None = None
        self.first_tag: Any = None
        self.receivers: list[Request] = []  # further processes that wait for a message
        self.watchers: tuple[
            Request, ...
        ] = ()  # those that want to know of one, but do not take it

    def holds(self, source: str | None, tag: Any) -> bool:
        return any(_fits(transfer, source, tag) for transfer in self.messages)

    def take(self, source: str | None, tag: Any) -> Transfer | None:
        """Remove and return the first matching message; None if there is none."""
        messages = self.messages
        for position, transfer in enumerate(messages):
            if _fits(transfer, source, tag):
                del messages[position]
                return transfer
        return None

    def receive(
        self, source: str | None, tag: Any, timeout: float | None
    ) -> Generator[None, Any, Transfer]:
        """Wait for a matching message; `Worker.recv` explains the arguments."""
        sim = self._owner.sim
        if source is not None and source not in sim.workers:
            raise unknown("worker", source, sim.workers)
        continuation = sim._running()
        request = (continuation, source, tag)
        if timeout is None:
            self.receivers.append(request)
            continuation.wait_queue = self
            arrived: Transfer = yield
            return arrived
        delay = seconds("recv: the timeout", timeout)
        timer = sim.call_later(delay, lambda process: self.release(process, None), continuation)
        self.receivers.append(request)
        continuation.wait_queue = self
        try:
            transfer: Transfer | None = yield
        finally:
            timer.cancel()
        if transfer is None:
            waited = f"{self._owner.name} waited {timeout:g} s in vain for {_request_text(request)}"
            raise TimeoutError(waited)
        return transfer

    def release(self, continuation: Continuation, value: object) -> None:
        self.remove(continuation)
        continuation.wait_queue = None
        self._owner.sim._ready.append((continuation, value))

    def remove(self, continuation: Continuation) -> None:
        if continuation is self.first:
            self.first = None
        self.receivers = [request for request in self.receivers if request[0] is not continuation]
        self.watchers = tuple(
            request for request in self.watchers if request[0] is not continuation
        )

    def describe(self, continuation: Continuation) -> str:
        if continuation is self.first:
            return _request_text((continuation, None, self.first_tag))
        requests = [
            request for request in (*self.receivers, *self.watchers) if request[0] is continuation
        ]
        return _request_text(requests[0])


def deliver(transfer: Transfer) -> None:
    """Deliver a message."""
    route = transfer.route
    mailbox = route.mailbox
    transfer.arrived = route.sim.now
    if transfer.awaited is not None:
        transfer.awaited.set_result(transfer)
    first = mailbox.first
    if first is not None and _fits(transfer, None, mailbox.first_tag):
        mailbox.release(first, transfer)
        return
    for continuation, source, tag in mailbox.receivers:
        if _fits(transfer, source, tag):
            mailbox.release(continuation, transfer)
            return
    if mailbox.messages is _NOTHING:
        mailbox.messages = deque()
    mailbox.messages.append(transfer)
    for continuation, source, tag in mailbox.watchers:
        if _fits(transfer, source, tag):
            mailbox.release(continuation, False)


def _fits(transfer: Transfer, source: str | None, tag: Any) -> bool:
    return (tag is None or tag == transfer.tag) and (source is None or source == transfer.source)


def _request_text(request: Request) -> str:
    _, source, tag = request
    sender = "" if source is None else f" from {source}"
    return f"a message{sender}" if tag is None else f"a message{sender} tagged {tag!s}"


_AFTER_ALL = float(2**51)  # events of an instant have smaller numbers, the mark of its end infinity


class Flows:
    """The flows through the ports of a simulated cluster.

    `paracosm.network.fair` and `packets` compute when flows end, in whole picoseconds. Here
    their instants become events. A *timer* is scheduled for the next end; when rates change so that
    an earlier flow ends first, another one is set, and the old one has no effect. Begins and ends
    at an instant are followed by one more event, after all others of the instant: the new rates.

    Transfers that end at one instant are delivered in the order of their requests. Those of one
    sender to one receiver travel one after the other, as over one connection.
    """

    def __init__(self, sim: TransferScheduler, stations: Stations) -> None:
        self.under_way: dict[int, Transfer] = {}  # by number
        self.stale = 0  # how many events in the queue would do nothing
        self._sim = sim
        self._stations = stations
        packets = stations.sharing if isinstance(stations.sharing, Packets) else None
        self._traffic = PacketTraffic(packets.quantum) if packets else FairTraffic()
        self._known = 0
        self._seconds, self._instant = 0.0, 0
        self._due = LAST_INSTANT
        self._settling = False

    def open(self, route: Route) -> FlowConnection:
        connection = self._stations.connect(route.source.name, route.target.name)
        for capacity in self._stations.capacity[self._known :]:
            self._traffic.add_station(capacity)
        self._known = len(self._stations.capacity)
        if not connection.in_bytes:
            return FlowConnection(self, route, None)
        return FlowConnection(self, route, self._connect(connection.stations))

    def open_alone(self, route: Route, link: Link) -> tuple[FairConnection, int]:
        """Return a connection over a link of its own, and the number of the link's station."""
        if isinstance(self._traffic, PacketTraffic):
            raise InputError(f"sharing {self._stations.sharing}: routes have no links of their own")
        stations = self._stations.over_link(route.source.name, route.target.name, link)
        for capacity in self._stations.capacity[self._known :]:
            self._traffic.add_station(capacity)
        self._known = len(self._stations.capacity)
        return self._connect(stations), stations[-1]

    def _connect(self, stations: Sequence[int]) -> FairConnection:
        connection = self._traffic.connect(stations, self.now())
        self._settle_moved()
        return connection

    def _settle_moved(self) -> None:
        """Give flows new rates that a new connection has led over other stations.

        No message need follow: one without bytes takes no part.
        """
        if self.under_way:
            self._settle_later()

    def set_capacity(self, station: int, capacity: float) -> None:
        assert isinstance(self._traffic, FairTraffic)
        self._traffic.set_capacity(station, capacity, self.now())
        self._settle_moved()

    def withdraw(self, transfer: Transfer, connection: FairConnection) -> None:
        """Abort a transfer."""
        if isinstance(self._traffic, PacketTraffic):
            raise InputError(f"sharing {self._stations.sharing}: packets cannot be cancelled")
        del self.under_way[transfer.number]
        self._traffic.withdraw(connection, self.now())
        self._settle_later()

    def now(self) -> int:
        seconds = self._sim.now
        if seconds != self._seconds:
            self._seconds = seconds
            self._instant = max(self._instant, round(seconds * PICOSECONDS))
        return self._instant

    def send(self, transfer: Transfer, connection: FairConnection, demand: float) -> None:
        """Start a transfer, from the next settling of rates on."""
        self.under_way[transfer.number] = transfer
        self._traffic.send(transfer.number, connection, demand, self.now())
        self._settle_later()

    def _settle_later(self) -> None:
        if not self._settling:
            self._settling = True
            heappush(self._sim.near, (self._sim.now, _AFTER_ALL, self._settle, None))

    def _settle(self, _: None) -> None:
        self._settling = False
        self._traffic.settle(self.now())
        due = self._traffic.next_end()
        if due == LAST_INSTANT and self.under_way:
            raise InputError(
                f"sharing {self._stations.sharing} counts picoseconds, up to 106 days of virtual "
                "time, and a message would take longer: use sharing serial"
            )
        if due == self._due:
            return
        self.stale += self._due != LAST_INSTANT
        self._due = due
        if due != LAST_INSTANT:
            when = max(self._sim.now, due / PICOSECONDS)
            heappush(self._sim.near, (when, self._sim._tick(), self._end, due))

    def _end(self, due: int) -> None:
        if due != self._due:
            self.stale -= 1
            self._sim._stale += 1
            raise Stale  # the clock has not moved
        self._due = LAST_INSTANT
        sim = self._sim
        self._seconds, self._instant = sim.now, due
        while (number := self._traffic.pop_end(due)) >= 0:
            transfer = self.under_way.pop(number)
            heappush(sim.near, (sim.now, transfer.number, sim.complete, transfer))
        self._settle_later()


class FlowConnection:
    """The connection of one sender to one receiver."""

    __slots__ = ("_connection", "_flows", "_held", "_own", "_route", "_waiting", "current")

    def __init__(self, flows: Flows, route: Route, connection: FairConnection | None) -> None:
        self._flows = flows
        self._route = route
        self._connection = connection
        self._waiting = _NOTHING
        self.current: Transfer | None = None
        self._own = -1  # the station of a link that is of this way alone
        self._hold()

    def use(self, link: Link) -> None:
        """Route messages over a link of this way alone."""
        if self.current is not None:
            raise RuntimeError(f"{self.current} is on its way: its link cannot be changed")
        if self._own < 0:
            self._connection, self._own = self._flows.open_alone(self._route, link)
        else:
            self._flows.set_capacity(self._own, link.bandwidth)
        self._hold()

    def withdraw(self, transfer: Transfer) -> None:
        """Abort or discard a transfer; the next one begins."""
        if transfer is not self.current:
            self._waiting = deque(
                request for request in self._waiting if request[0] is not transfer
            )
            return
        if transfer.number in self._flows.under_way:
            assert self._connection is not None
            self._flows.withdraw(transfer, self._connection)
        self.finish(transfer)

    def _hold(self) -> None:
        # Overhead, and latency that holds a port, count as the bytes that could flow meanwhile.
        link = self._route.link
        shared = self._connection is not None and not isinf(link.bandwidth)
        self._held = link.occupancy(0.0) * link.bandwidth if shared else 0.0

    def request(self, transfer: Transfer, delay: float | None) -> None:
        """Start a transfer when those before it have ended; it lasts `delay`, if given."""
        if self.current is None:
            self._begin(transfer, delay)
        elif self._waiting is _NOTHING:
            self._waiting = deque([(transfer, delay)])
        else:
            self._waiting.append((transfer, delay))

    def finish(self, transfer: Transfer) -> None:
        """Note that a transfer has ended; the next one begins."""
        now = transfer.route.sim.now
        transfer.occupancy = now - transfer.began
        for port in (transfer.route.incoming, transfer.route.outgoing):
            port.flows -= 1
            if not port.flows:
                port.flowed += now - port.flowing_since
        self.current = None
        if self._waiting:
            self._begin(*self._waiting.popleft())

    def _begin(self, transfer: Transfer, delay: float | None) -> None:
        sim = self._route.sim
        now = transfer.began = sim.now
        self.current = transfer
        for port in (self._route.incoming, self._route.outgoing):
            if not port.flows:
                port.flowing_since = now
            port.flows += 1
        if delay is None and self._connection is not None:
            demand = transfer.size + self._held
            if demand > 0:
                self._flows.send(transfer, self._connection, demand)
                return
            delay = 0.0
        elif delay is None:
            delay = self._route.link.occupancy(transfer.size)
        heappush(sim.near, (now + delay, transfer.number, sim.complete, transfer))
