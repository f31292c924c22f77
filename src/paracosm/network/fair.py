"""Max-min fair flows in Python, for simulations that open connections as they go.

Time is in whole picoseconds, with the arithmetic of `paracosm.network.compiled_fair`; results are
equal to the bit. A compiled loop knows all routes in advance; here a station is left out of a
connection as long as that is the only one there and another of its stations is no wider: around one
server, all workers are one route. When a second connection comes to such a station, the first one
gets it back, in mid-flow if need be.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import copy
from heapq import heapify, heappop, heappush
from typing import Self

from paracosm.network.clock import LAST_INSTANT, whole_instant

SAME = 1 + 1e-12
"""The ratio of two rates that are the same but for rounding."""


class _Station:
    """A port, or a link that is slower than its ports.

    Attributes:
        bandwidth: bytes/ps.
        left: what of it is not given away yet, while rates are worked out, but for what `fixed`
            flows get at `level`.
        load: how many flows still wait for a rate.
        used: the routes through it that have flows.
        connections: how many pass it.
        first: the first of them.
    """

    __slots__ = (
        *("bandwidth", "connections", "first", "fixed", "is_near", "left", "level"),
        *("load", "number", "used"),
    )

    def __init__(self, number: int, bandwidth: float) -> None:
        self.number = number
        self.bandwidth = bandwidth
        self.left = self.level = 0.0
        self.load = self.fixed = self.connections = 0
        self.used: dict[FairRoute, None] = {}
        self.first: FairConnection | None = None
        self.is_near = False


class FairRoute:
    """The flows through the same stations.

    Attributes:
        stations: these.
        flows: a heap of (virtual time at which it ends, number of the request, message).
        shared: for how many flows the rate is.
        rate: bytes/ps of each flow.
        limit: the station that it is of, of several that with the smallest number.
        virtual: bytes that each flow has got by `since`, in ps.
        version: counts how often it was set when the first flow ends.
        due: when that is.
        is_changed: whether it gained or lost flows since rates were worked out.
    """

    __slots__ = (
        *("due", "flows", "is_changed", "is_near", "is_touched", "limit", "number", "rate"),
        *("shared", "since", "stations", "version", "virtual"),
    )

    def __init__(self, number: int, stations: tuple[_Station, ...]) -> None:
        self.number = number
        self.stations = stations
        self.flows: list[tuple[float, int, int]] = []
        self.shared = self.limit = 0
        self.rate = self.virtual = 0.0
        self.since = self.version = 0
        self.due = LAST_INSTANT
        self.is_touched = self.is_near = self.is_changed = False

    def copy(self, stations: tuple[_Station, ...]) -> FairRoute:
        """Return the same route, with its flows, through the stations of a copy."""
        new = FairRoute(self.number, stations)
        new.flows = self.flows.copy()
        new.shared, new.limit = self.shared, self.limit
        new.rate, new.virtual = self.rate, self.virtual
        new.since, new.version, new.due = self.since, self.version, self.due
        new.is_touched, new.is_changed = self.is_touched, self.is_changed
        if new.flows:
            for station in stations:
                station.used[new] = None
        return new


class FairConnection:
    """The path from one node to another: all of its stations, and the route without idle ones.

    Attributes:
        message: the one that is under way; -1 for none.
    """

    __slots__ = ("message", "route", "stations")

    def __init__(self, stations: tuple[_Station, ...], route: FairRoute) -> None:
        self.stations = stations
        self.route = route
        self.message = -1


class FairTraffic:
    """Flows that share stations.

    Instants are played as in `paracosm.network.compiled`: `pop_end` until there is none, `request`
    for whatever begins, then `settle`; and again while `next_end` is still that instant.
    """

    def __init__(self, capacities: Iterable[float] = ()) -> None:
        """Begin with stations of these capacities, in bytes/s."""
        self._stations: list[_Station] = []
        self._routes: dict[tuple[int, ...], FairRoute] = {}
        self._order: list[tuple[int, int, int, FairRoute]] = []  # due, route's number, version
        self._touched: list[FairRoute] = []
        self._done: list[tuple[int, int]] = []
        self._done_at = 0
        self._requests = 0
        for capacity in capacities:
            self.add_station(capacity)

    def copy(self) -> Self:
        """Return traffic that goes on as this does if nothing else is requested.

        It has routes of its own, which its `route` returns, and no connections.
        """
        new = copy(self)
        new._stations = [_Station(old.number, old.bandwidth) for old in self._stations]
        new._routes = {
            path: old.copy(tuple(new._stations[number] for number in path))
            for path, old in self._routes.items()
        }
        same = dict(zip(self._routes.values(), new._routes.values(), strict=True))
        new._order = [
            (due, number, version, same[route])
            for due, number, version, route in self._order
            if version == route.version
        ]
        heapify(new._order)
        new._touched = [same[route] for route in self._touched]
        new._done = self._done.copy()
        return new

    def add_station(self, capacity: float) -> None:
        """Add a station of `capacity` bytes/s; stations are numbered as they are added."""
        self._stations.append(_Station(len(self._stations), capacity * 1e-12))

    def route(self, stations: Iterable[int]) -> FairRoute:
        """Return the route through stations; the same ones, in whatever order, are one route."""
        path = tuple(sorted(stations))
        if path not in self._routes:
            through = tuple(self._stations[number] for number in path)
            self._routes[path] = FairRoute(len(self._routes), through)
        return self._routes[path]

    def connect(self, stations: Iterable[int], now: int) -> FairConnection:
        """Return a new connection through stations, at least one, from `now` on."""
        path = tuple(self._stations[number] for number in sorted(stations))
        for station in path:
            station.connections += 1
        for station in path:
            if station.connections == 2 and station.first is not None:
                self._reroute(station.first, now)
        connection = FairConnection(path, self._binding(path))
        for station in path:
            if station.first is None:
                station.first = connection
        return connection

    def send(self, message: int, connection: FairConnection, demand: float, now: int) -> None:
        """Do as `request`. A connection has one message at a time, until `finish`."""
        connection.message = message
        self.request(message, connection.route, demand, now)

    def request(
        self, message: int, route: FairRoute, demand: float, now: int, stream: Hashable = None
    ) -> None:
        """Start `demand` bytes over a route; `settle` sets the rate. Flows belong to no stream."""
        self._enter(message, self._requests, route, demand, now)
        self._requests += 1

    def withdraw(self, connection: FairConnection, now: int) -> None:
        """Abort the message that flows over a connection."""
        route = connection.route
        flows = [flow for flow in route.flows if flow[2] != connection.message]
        if len(flows) == len(route.flows):  # it ends now
            self._done = [end for end in self._done if end[1] != connection.message]
            heapify(self._done)
            return
        _advance(route, now)
        heapify(flows)
        route.flows = flows
        self._leave(route)

    def set_capacity(self, number: int, capacity: float, now: int) -> None:
        """Set the capacity, in bytes/s, of a station without flows."""
        station = self._stations[number]
        station.bandwidth = capacity * 1e-12
        if station.first is not None:
            self._reroute(station.first, now)
            station.first.route.shared = -1  # its rate is not that of the last flow

    def next_end(self) -> int:
        """Return the instant at which the next flow ends; the last instant if there is none."""
        if self._done:
            return self._done_at
        order = self._order
        while order and order[0][2] != order[0][3].version:
            heappop(order)
        return order[0][0] if order else LAST_INSTANT

    def pop_end(self, now: int) -> int:
        """Remove the earliest requested flow that ends now and return its message; -1 for none."""
        self._gather(now)
        return heappop(self._done)[1] if self._done else -1

    def settle(self, now: int) -> None:
        """Set every flow's max-min fair rate, after all begins and ends of the instant."""
        self._gather(now)
        near: list[FairRoute] = []
        for route in self._touched:
            route.is_touched = False
            if len(route.flows) != route.shared:
                route.shared = len(route.flows)
                if not route.flows:
                    route.rate = 0.0
                route.is_near = route.is_changed = True
                near.append(route)
            elif route.flows:
                self._set_due(route)
        self._touched.clear()
        if near:
            self._fill(near, _stations_near(near), now)

    def _enter(self, message: int, number: int, route: FairRoute, demand: float, now: int) -> None:
        while route.flows and route.due == now:
            self._end_first(route, now)
        if not route.flows:
            route.virtual = 0.0
            route.since = now
            for station in route.stations:
                station.used[route] = None
        _advance(route, now)
        heappush(route.flows, (route.virtual + demand, number, message))
        self._touch(route)

    def _leave(self, route: FairRoute) -> None:
        """Note that a route has lost a flow."""
        self._touch(route)
        if route.flows:
            self._set_due(route)
        else:
            route.version += 1
            route.due = LAST_INSTANT
            for station in route.stations:
                del station.used[route]

    def _gather(self, now: int) -> None:
        """Collect all flows that end now."""
        order = self._order
        while order and order[0][0] <= now:
            _, _, version, route = order[0]
            if version == route.version:
                self._end_first(route, now)
            else:
                heappop(order)

    def _end_first(self, route: FairRoute, now: int) -> None:
        _advance(route, now)
        _, number, message = heappop(route.flows)
        heappush(self._done, (number, message))
        self._done_at = now
        self._leave(route)

    def _touch(self, route: FairRoute) -> None:
        if not route.is_touched:
            route.is_touched = True
            self._touched.append(route)

    def _fill(self, near: list[FairRoute], stations: list[_Station], now: int) -> None:
        """Divide near stations among near routes."""
        for station in stations:
            station.is_near = False
            station.left = station.bandwidth
            station.load = sum(len(route.flows) for route in station.used)
            station.level, station.fixed = 0.0, 0
        opened = [
            (station.left / station.load, station.number) for station in stations if station.load
        ]
        heapify(opened)
        while opened:
            level, number = heappop(opened)
            station = self._stations[number]
            if station.load > 0:
                # What was fixed since has left more for each of the others; less only by rounding.
                share = (station.left - station.level * station.fixed) / station.load
                if share > level * SAME:
                    heappush(opened, (share, number))
                else:
                    self._fix_all(station, level, now)
        for route in near:
            route.is_near = route.is_changed = False

    def _fix_all(self, full: _Station, level: float, now: int) -> None:
        """Fix the rates of the flows over a full station, summed first: order has no effect."""
        for route in full.used:
            if route.is_near:
                for station in route.stations:
                    if station.level != level:
                        station.left -= station.level * station.fixed
                        station.level, station.fixed = level, 0
                    station.fixed += len(route.flows)
                    station.load -= len(route.flows)
                route.is_near = False
                route.limit = full.number
                if route.rate != level or route.is_changed:
                    _advance(route, now)
                    route.rate = level
                    self._set_due(route)

    def _set_due(self, route: FairRoute) -> None:
        """Set when the first flow of a route ends if rates remain as they are from `since` on."""
        route.due = LAST_INSTANT
        if route.rate > 0:
            left = route.flows[0][0] - route.virtual
            route.due = whole_instant(route.since, left / route.rate)
        route.version += 1
        heappush(self._order, (route.due, route.number, route.version, route))

    def _binding(self, path: tuple[_Station, ...]) -> FairRoute:
        """Return the route through those of a connection's stations that can limit it."""
        kept = list(path)
        for station in sorted(path, key=lambda port: (-port.bandwidth, port.number)):
            others = (other for other in kept if other is not station)
            if station.connections == 1 and any(x.bandwidth <= station.bandwidth for x in others):
                kept.remove(station)
        return self.route(station.number for station in kept)

    def _reroute(self, connection: FairConnection, now: int) -> None:
        """Route a connection, and its flow, through the stations that can limit it now."""
        old, new = connection.route, self._binding(connection.stations)
        connection.route = new
        flowing = [flow for flow in old.flows if flow[2] == connection.message]
        if old is not new and flowing:
            _advance(old, now)
            key, number, message = flowing[0]
            old.flows.remove(flowing[0])
            heapify(old.flows)
            self._leave(old)
            self._enter(message, number, new, max(0.0, key - old.virtual), now)


def _stations_near(near: list[FairRoute]) -> list[_Station]:
    """Find all stations, and routes in use, connected with the routes `near`; extend `near`."""
    stations: list[_Station] = []
    for route in near:  # which grows meanwhile
        for station in route.stations:
            if not station.is_near:
                station.is_near = True
                stations.append(station)
                for other in station.used:
                    if not other.is_near:
                        other.is_near = True
                        near.append(other)
    return stations


def _advance(route: FairRoute, now: int) -> None:
    """Account for what the flows of a route have received since, at their rate so far."""
    route.virtual += route.rate * (now - route.since)
    route.since = now
