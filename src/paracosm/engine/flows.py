"""Transfers that share their ports: on a cluster whose links are shared fairly.

`paracosm.network.fair` says when flows end, in whole picoseconds. Here its instants become events.
A *timer* stands in the queue for the next end; when rates change so that an earlier flow ends
first, another one is set, and the old one does nothing when its time comes. What begins or ends in
an instant is followed by one more event, after all others of the instant: the new rates.

Transfers that end at one instant are delivered in the order of their requests. Those of one sender
to one receiver travel one after the other, as over one connection.
"""

from __future__ import annotations

from collections import deque
from heapq import heappush
from math import isinf
from typing import TYPE_CHECKING

from paracosm.engine.scheduler import Stale
from paracosm.errors import InputError
from paracosm.network.fair import LAST_INSTANT, FairConnection, FairTraffic
from paracosm.network.stations import Stations

if TYPE_CHECKING:
    from paracosm.engine.messages import Route, Transfer
    from paracosm.engine.simulator import Simulator

__all__ = ["FlowWay", "Flows"]

_AFTER_ALL = float(2**51)  # events of an instant have smaller numbers, the mark of its end infinity
_PER_SECOND = 1e12
# What waits where nothing ever waited: a deque takes half a kilobyte.
_NOTHING: deque[tuple[Transfer, float | None]] = deque(maxlen=0)


class Flows:
    """What flows through the ports of a simulated cluster.

    Attributes:
        under_way: the transfers that flow, by number.
        stale: how many events in the queue would do nothing.
    """

    def __init__(self, sim: Simulator, stations: Stations) -> None:
        self.under_way: dict[int, Transfer] = {}
        self.stale = 0
        self._sim = sim
        self._stations = stations
        self._traffic = FairTraffic()
        self._known = 0
        self._seconds, self._instant = 0.0, 0
        self._due = LAST_INSTANT
        self._settling = False

    def open(self, route: Route) -> FlowWay:
        """Return the way of a route that is used for the first time."""
        found = self._stations.connect(route.source.name, route.target.name)
        for capacity in self._stations.capacity[self._known :]:
            self._traffic.add_station(capacity)
        self._known = len(self._stations.capacity)
        if not found.in_bytes:
            return FlowWay(self, route, None)
        return FlowWay(self, route, self._traffic.connect(found.stations, self.now()))

    def now(self) -> int:
        """Return the picoseconds of the present instant."""
        seconds = self._sim.now
        if seconds != self._seconds:
            self._seconds = seconds
            self._instant = max(self._instant, round(seconds * _PER_SECOND))
        return self._instant

    def send(self, transfer: Transfer, connection: FairConnection, demand: float) -> None:
        """Let a transfer flow, from the next settling of rates on."""
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
                "fair sharing counts picoseconds, up to 106 days of virtual time, and a message "
                "would take longer: use sharing serial"
            )
        if due == self._due:
            return
        self.stale += self._due != LAST_INSTANT
        self._due = due
        if due != LAST_INSTANT:
            when = max(self._sim.now, due / _PER_SECOND)
            heappush(self._sim.near, (when, self._sim._tick(), self._end, due))

    def _end(self, due: int) -> None:
        """Let the flows end that end at this instant."""
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


class FlowWay:
    """The connection of one sender to one receiver.

    Attributes:
        current: the transfer that is under way.
    """

    __slots__ = ("_connection", "_flows", "_held", "_route", "_waiting", "current")

    def __init__(self, flows: Flows, route: Route, connection: FairConnection | None) -> None:
        self._flows = flows
        self._route = route
        self._connection = connection
        self._waiting = _NOTHING
        self.current: Transfer | None = None
        # Overhead, and latency that holds a port, count as the bytes that could flow meanwhile.
        link = route.link
        shared = connection is not None and not isinf(link.bandwidth)
        self._held = link.occupancy(0.0) * link.bandwidth if shared else 0.0

    def request(self, transfer: Transfer, delay: float | None) -> None:
        """Let a transfer begin when those before it have ended; it lasts `delay`, if given."""
        if self.current is None:
            self._begin(transfer, delay)
        elif self._waiting is _NOTHING:
            self._waiting = deque([(transfer, delay)])
        else:
            self._waiting.append((transfer, delay))

    def finish(self, transfer: Transfer) -> None:
        """See that a transfer has ended; the next one begins."""
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
