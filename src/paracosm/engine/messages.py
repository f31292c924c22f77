"""Messages: on their way through the ports of two nodes, and in the mailbox of their target.

Where the network is shared serially, as it is without one and with a network of the user's own, a
transfer holds its ports alone (`paracosm.network.serial` has the rule), and is one event, at its
end. On a cluster whose links are shared fairly, transfers flow side by side; `flows` does that.

In a mailbox, messages stay in the order of their arrival, walkers in the order in which they came.
A message goes to the first walker whose wish it fits, or else into the mailbox. So a walker waits
only while the mailbox holds nothing for it, and neither list is ever searched in vain on the common
way: one walker that takes whatever comes costs O(1). Choosing by source or tag passes over the
messages that do not fit. A walker that gives up (a time-out, an interrupt, a cancel) is taken off
the list there and then. It cannot swallow a message that comes later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from heapq import heappush
from math import inf, isnan
from typing import TYPE_CHECKING, Any, Literal

from paracosm.engine.errors import duration_error
from paracosm.engine.future import Awaitable, Future
from paracosm.engine.scheduler import seconds
from paracosm.errors import unknown
from paracosm.network.serial import SerialPort, release

if TYPE_CHECKING:
    from paracosm.engine.flows import Flows, FlowWay
    from paracosm.engine.walker import Continuation
    from paracosm.engine.worker import Worker

__all__ = ["Mailbox", "Port", "Ports", "Route", "Transfer", "complete", "deliver", "hand_over"]

# The messages of a worker that never had to keep one: a deque takes half a kilobyte.
_NOTHING: deque[Transfer] = deque(maxlen=0)


class Transfer(Awaitable):
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


# Who waits, for messages from whom (None: from anybody), tagged with what (None: with anything).
Wish = tuple["Continuation", str | None, Any]


class Mailbox:
    """The messages and the waiting walkers of one worker.

    Attributes:
        messages: what has arrived and was not received.
        first, first_tag: a walker that came before the receivers, and the tag that it waits for.
            Nearly always it is the only one; it would cost as much again to list it.
        receivers: further walkers that wait for a message.
        watchers: walkers that want to know of a message, but do not receive it.
    """

    __slots__ = ("_owner", "first", "first_tag", "messages", "receivers", "watchers")

    def __init__(self, owner: Worker) -> None:
        self._owner = owner
        self.messages = _NOTHING
        self.first: Continuation | None = None
        self.first_tag: Any = None
        self.receivers: list[Wish] = []
        self.watchers: tuple[Wish, ...] = ()

    def holds(self, source: str | None, tag: Any) -> bool:
        """Return whether there is a message that fits."""
        return any(fits(transfer, source, tag) for transfer in self.messages)

    def take(self, source: str | None, tag: Any) -> Transfer | None:
        """Remove and return the first message that fits; None if there is none."""
        messages = self.messages
        for position, transfer in enumerate(messages):
            if fits(transfer, source, tag):
                del messages[position]
                return transfer
        return None

    def receive(
        self, source: str | None, tag: Any, timeout: float | None
    ) -> Generator[None, Any, Transfer]:
        """Wait for a message that fits; `Worker.recv` explains the arguments."""
        sim = self._owner.sim
        if source is not None and source not in sim.workers:
            raise unknown("worker", source, sim.workers)
        continuation = sim._running()
        wish = (continuation, source, tag)
        if timeout is None:
            self.receivers.append(wish)
            continuation.place = self
            arrived: Transfer = yield
            return arrived
        timer = sim.call_later(seconds("recv: the timeout", timeout), self._expire, wish)
        self.receivers.append(wish)
        continuation.place = self
        try:
            transfer: Transfer | None = yield
        finally:
            timer.cancel()
        if transfer is None:
            waited = f"{self._owner.name} waited {timeout:g} s in vain for {_words(wish)}"
            raise TimeoutError(waited)
        return transfer

    def watch(self, wish: Wish) -> None:
        """Resume the walker with False when a message arrives that fits."""
        self.watchers += (wish,)
        wish[0].place = self

    def alert(self, transfer: Transfer) -> None:
        """Tell those that watch for it that a message has arrived."""
        for wish in self.watchers:
            if fits(transfer, wish[1], wish[2]):
                self.release(wish[0], False)

    def release(self, continuation: Continuation, value: object) -> None:
        """Resume a walker that waits here, with `value`."""
        self.forget(continuation)
        continuation.place = None
        self._owner.sim._ready.append((continuation, value))

    def _expire(self, wish: Wish) -> None:
        self.release(wish[0], None)

    def forget(self, continuation: Continuation) -> None:
        """Let the walker of `continuation` no longer wait here."""
        if continuation is self.first:
            self.first = None
        self.receivers = [wish for wish in self.receivers if wish[0] is not continuation]
        self.watchers = tuple(wish for wish in self.watchers if wish[0] is not continuation)

    def describe(self, continuation: Continuation) -> str:
        """Return which message the walker of `continuation` waits for."""
        if continuation is self.first:
            return _words((continuation, None, self.first_tag))
        wishes = [wish for wish in (*self.receivers, *self.watchers) if wish[0] is continuation]
        return _words(wishes[0])


def deliver(transfer: Transfer) -> None:
    """Let a message arrive."""
    route = transfer.route
    mailbox = route.mailbox
    transfer.arrived = route.sim.now
    if transfer.awaited is not None:
        transfer.awaited.set_result(transfer)
    first = mailbox.first
    if first is not None and fits(transfer, None, mailbox.first_tag):
        mailbox.release(first, transfer)
        return
    for continuation, source, tag in mailbox.receivers:
        if fits(transfer, source, tag):
            mailbox.release(continuation, transfer)
            return
    if mailbox.messages is _NOTHING:
        mailbox.messages = deque()
    mailbox.messages.append(transfer)
    if mailbox.watchers:
        mailbox.alert(transfer)


def fits(transfer: Transfer, source: str | None, tag: Any) -> bool:
    """Return whether the message is from `source` and tagged `tag`; None stands for any."""
    return (tag is None or tag == transfer.tag) and (source is None or source == transfer.source)


def _words(wish: Wish) -> str:
    _, source, tag = wish
    sender = "" if source is None else f" from {source}"
    return f"a message{sender}" if tag is None else f"a message{sender} tagged {tag!s}"
