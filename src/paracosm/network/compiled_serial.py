"""The serial rule, compiled: a message holds all of its stations alone, for as long as it takes.

After Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect", sections
3.2 and 3.3. Of all requests that could start, the earliest does: a request waits at one busy
station that it needs; when a message ends, it frees all of its stations, and those that wait there
are examined in the order of their requests. Each starts, or moves on to another busy station that
it needs. So there are no scans, whoever waits for whom.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from paracosm.arrays import Codes, Ints
from paracosm.compiled import columns, inlined
from paracosm.network.clock import FAR, LAST_INSTANT
from paracosm.network.heaps import NOBODY, later, place_event, place_item, pop_event, pop_item

STATION = np.dtype([("first", "i8"), ("waiting", "i8"), ("is_busy", "i8")])
"""A station: where its heap begins, how many wait in it, whether a message holds the station."""

REQUEST = np.dtype([("key", "i8"), ("item", "i8")])
"""Who waits: the number of the request, and its record in `Serial.messages`."""

EVENT = np.dtype([("key", "i8"), ("item", "i8"), ("op", "i8")])
"""A message ends: the instant, the number of the request, its record."""

MESSAGE = np.dtype(columns("i8", "message", "number", "route", "lasts", "end", "free"))
"""A message that was asked for: its caller's number, that of the request, its route, picoseconds,
its end once that is known; the next free record after this one."""


class Serial(NamedTuple):
    """The stations, the routes through them, and who waits.

    Attributes:
        first, hops: CSR: the stations of each route.
        stations: s.
        waiting: of each station, a heap by request.
        messages: all that wait or are under way.
        ends: a heap of the messages that are under way.
        counts: see below.
    """

    first: Ints
    hops: Codes
    stations: Any
    waiting: Any
    messages: Any
    ends: Any
    counts: Ints


REQUESTS, ENDS, FREE = range(3)
"""In `Serial.counts`: requests so far, how many stand in `ends`, the first free record."""


def serial_traffic(
    routes: Sequence[Sequence[int]], capacity: Sequence[float], room: Sequence[int]
) -> Serial:
    """Return the traffic over these routes, without messages.

    Args:
        routes: stations of each, as indices into `capacity`.
        capacity: one entry for each station; callers state how long messages take.
        room: how many messages of each route wait or are under way at once, at most.
    """
    lengths = np.array([len(route) for route in routes], dtype=np.int64)
    hops = np.array([station for route in routes for station in route], dtype=np.int32)
    rooms = np.bincount(hops, np.repeat(np.asarray(room), lengths), minlength=len(capacity))
    stations: Any = np.zeros(len(capacity) + 1, dtype=STATION)
    stations["first"][1:] = np.cumsum(rooms)
    most = int(np.sum(room, dtype=np.int64))
    messages: Any = np.zeros(most, dtype=MESSAGE)
    messages["free"] = np.arange(1, most + 1)
    return Serial(
        first=np.concatenate(([0], np.cumsum(lengths))).astype(np.int64),
        hops=hops,
        stations=stations,
        waiting=np.empty(stations["first"][-1], dtype=REQUEST),
        messages=messages,
        ends=np.empty(most, dtype=EVENT),
        counts=np.zeros(3, dtype=np.int64),
    )


def under_way(serial: Serial) -> list[tuple[int, int]]:
    """Return each message that has its stations, and since when."""
    ends = serial.ends[: serial.counts[ENDS]]
    records = serial.messages[ends["op"]]
    return list(
        zip(records["message"].tolist(), (records["end"] - records["lasts"]).tolist(), strict=True)
    )


@inlined
def request(serial: Any, route: Any, message: Any, demand: Any, now: Any, weight: Any) -> Any:
    """Start a message that holds its stations for so many picoseconds as soon as it can."""
    counts = serial.counts
    slot = counts[FREE]
    record = serial.messages[slot]
    counts[FREE] = record.free
    record.message, record.number, record.route = message, counts[REQUESTS], route
    record.lasts = np.int64(min(demand, FAR))
    record.end = NOBODY
    counts[REQUESTS] += 1
    _start(serial, slot, now)
    return slot


@inlined
def next_end(serial: Any) -> Any:
    """Return the instant at which the next message ends; the last instant if there is none."""
    due = LAST_INSTANT
    if serial.counts[ENDS] > 0:
        due = serial.ends[0].key
    return due


@inlined
def earliest_end(serial: Any, slot: Any, now: Any) -> Any:
    """Return an instant before which a message does not end."""
    record = serial.messages[slot]
    end = record.end
    if end == NOBODY:
        end = later(now, record.lasts)
    return end


@inlined
def pop_end(serial: Any, now: Any) -> Any:
    """End a message that ends now, pass on its stations, and return it; -1 for none."""
    counts = serial.counts
    message = np.int64(NOBODY)
    if counts[ENDS] > 0 and serial.ends[0].key == now:
        slot = serial.ends[0].op
        pop_event(serial.ends, counts[ENDS])
        counts[ENDS] -= 1
        message = serial.messages[slot].message
        route = serial.messages[slot].route
        serial.messages[slot].free = counts[FREE]
        counts[FREE] = slot
        for hop in range(serial.first[route], serial.first[route + 1]):
            serial.stations[serial.hops[hop]].is_busy = 0
        _serve(serial, route, now)
    return message


@inlined
def settle(serial: Any, now: Any) -> None:
    """Do nothing: starts are decided at every request and every end."""


@inlined
def change_background(serial: Any, station: Any, weight: Any) -> None:
    """Do nothing: there is no background traffic with serial sharing."""


@inlined
def _start(serial: Any, slot: Any, now: Any) -> None:
    """Start a message, or enqueue it at the first of its stations that is busy."""
    record = serial.messages[slot]
    first, last = serial.first[record.route], serial.first[record.route + 1]
    for hop in range(first, last):
        station = serial.stations[serial.hops[hop]]
        if station.is_busy:
            place_item(serial.waiting, station.first, station.waiting, record.number, slot)
            station.waiting += 1
            return
    for hop in range(first, last):
        serial.stations[serial.hops[hop]].is_busy = 1
    end = record.end = later(now, record.lasts)
    place_event(serial.ends, serial.counts[ENDS], end, record.number, slot)
    serial.counts[ENDS] += 1


@inlined
def _serve(serial: Any, route: Any, now: Any) -> None:
    """Start or move on the messages that wait at a route's stations, in order of request."""
    while True:
        oldest, number = np.int64(NOBODY), np.int64(LAST_INSTANT)
        for hop in range(serial.first[route], serial.first[route + 1]):
            station = serial.stations[serial.hops[hop]]
            may_serve = station.waiting > 0 and not station.is_busy
            if may_serve and serial.waiting[station.first].key < number:
                number = serial.waiting[station.first].key
                oldest = np.int64(serial.hops[hop])
        if oldest < 0:
            return
        station = serial.stations[oldest]
        slot = serial.waiting[station.first].item
        pop_item(serial.waiting, station.first, station.waiting, LAST_INSTANT)
        station.waiting -= 1
        _start(serial, slot, now)
