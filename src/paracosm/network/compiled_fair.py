"""The fair rule, compiled: max-min fair rates, and the times at which messages end.

Messages over the same stations are one group (a *path* here) and have one rate, so that a path
needs only the weights of its flows, the bytes that one of weight 1 has received since the path was
last idle (its *virtual time*: Parekh and Gallager, "A Generalized Processor Sharing Approach to
Flow Control", 1993), and a heap of the virtual times at which its flows end, which do not depend on
the rate.

Rates follow from progressive filling (Bertsekas and Gallager, "Data Networks", 1992, section
6.5.2): all grow alike until a station is full, whose paths are then fixed, and so on; of stations
that are full at one level the first comes first. Once per instant, only stations connected by paths
in use to those that gained or lost flows are updated.

A flow ends at the first whole picosecond by which all of its bytes have arrived, and has its share
until then: no station carries more than its bandwidth, no flow loses a byte. The bytes of 1/1024 ps
are forgiven, because rounding errors would otherwise cost a picosecond where an end falls on a
whole one.

A message over no station shares nothing, and ends after the picoseconds that it asks for.
"""

from collections.abc import Collection, Sequence
from typing import Any, NamedTuple

import numpy as np

from paracosm.arrays import Codes, Ints
from paracosm.compiled import columns, inlined, subroutine
from paracosm.network.clock import FAR, FORGIVEN, LAST_INSTANT
from paracosm.network.fair import SAME
from paracosm.network.heaps import NOBODY, place_event, place_item, pop_event, pop_item
from paracosm.network.stations import binding_routes

NEAR, CHANGED = 1, 2
"""Of a path, whose rate may change: it has others' flows beside its own, or other flows."""

STATION = np.dtype(
    [
        *columns("f8", "bandwidth", "background", "left", "load", "level", "fixed"),
        *columns("i8", "first", "used", "is_near"),
    ]
)
"""A station: bytes/ps; the weight of flows of others; bytes/ps that are not given away, but for
what flows of the weight `fixed` get at `level`; the weight of flows that are still to get a share;
`Fair.used[first:first + used]` are the hops over it of paths that have flows."""

PATH = np.dtype(
    [
        *columns("i8", "first", "of_flows", "flows"),
        *columns("f8", "load", "period", "shared", "rate", "virtual"),
        *columns("i8", "since", "due", "rank"),
        *columns("i4", "limit", "is_touched", "is_near"),
    ]
)
"""A path: where its hops and its heap of flows begin; how many flows it has, the sum of their
weights; picoseconds of a byte over its narrowest station; for which sum of weights its rate is,
bytes/ps of a flow of weight 1; the bytes that such a one has got by `since`; when its first flow
ends; where it stands in `Fair.order`; the station that its rate is of, of several that with the
smallest number."""

HOP = np.dtype([("station", "i4"), ("path", "i4"), ("place", "i8")])
"""A station on a path, and where it stands in `Fair.used` when the path has flows."""

FLOW = np.dtype([("key", "f8"), ("item", "i8")])
"""A flow: the virtual time of its path at which it ends, and its message."""

LEVEL = np.dtype([("key", "f8"), ("item", "i8"), ("op", "i8")])
"""An entry of `Fair.open`: what a flow of weight 1 would get at a station, and the station."""

EVENT = np.dtype([("key", "i8"), ("item", "i8"), ("op", "i8")])
"""An instant, the number of a request, its message. Of `Fair.done` the key is the number."""

MESSAGE = np.dtype(
    [*columns("i8", "message", "number", "path"), *columns("f8", "until", "weight"), ("free", "i8")]
)
"""A message that is under way: its caller's number and that of its request; its path, and the
virtual time of that at which it ends, or without a path the instant; its weight; the next free
record after this one."""


class Fair(NamedTuple):
    """The stations, the paths through them, and what flows.

    Attributes:
        path_of: the path of each route; -1 where a route has no station.
        stations: s.
        paths: p, and one more for its `first`.
        hops: of each path.
        used: of each station, hops.
        flows: of each path, a heap.
        order: a heap by `due` of the paths that have flows.
        touched: paths that gained or lost flows.
        near_stations, near_paths: those whose rates may change.
        open: a heap of stations that have something left for flows that have no rate yet.
        alone: a heap of messages over no station.
        done: a heap by request of messages that have ended.
        messages: all that are under way.
        counts: see below.
    """

    path_of: Codes
    stations: Any
    paths: Any
    hops: Any
    used: Ints
    flows: Any
    order: Ints
    touched: Ints
    near_stations: Ints
    near_paths: Ints
    open: Any
    alone: Any
    done: Any
    messages: Any
    counts: Ints


IN_USE, TOUCHED, ALONE, DONE, REQUESTS, FREE, NOW = range(7)
"""In `Fair.counts`: how many stand in `order`, `touched`, `alone` and `done`; requests so far; the
first free record of `messages`; the instant at which those in `done` have ended."""


def fair_traffic(
    routes: Sequence[Sequence[int]],
    capacity: Sequence[float],
    room: Sequence[int],
    kept: Collection[int] = (),
) -> Fair:
    """Return the traffic over these routes, without flows.

    Args:
        routes: stations of each, as indices into `capacity`.
        capacity: bytes/s of each station.
        room: how many messages of each route are under way at once, at most.
        kept: stations where there may be background traffic.
    """
    numbers: dict[tuple[int, ...], int] = {}
    path_of = np.full(len(routes), NOBODY, dtype=np.int32)
    for route, stations in enumerate(binding_routes(routes, capacity, kept)):
        if stations:
            path_of[route] = numbers.setdefault(stations, len(numbers))
    count, has_path = len(numbers), path_of >= 0
    rooms = np.bincount(path_of[has_path], np.asarray(room)[has_path], minlength=count)
    lengths = np.array([len(path) for path in numbers], dtype=np.int64)
    hops: Any = np.zeros(lengths.sum(), dtype=HOP)
    hops["station"] = [station for path in numbers for station in path]
    hops["path"] = np.repeat(np.arange(count), lengths)
    paths: Any = np.zeros(count + 1, dtype=PATH)
    paths["first"][1:] = np.cumsum(lengths)
    paths["of_flows"][1:] = np.cumsum(rooms)
    paths["period"][:-1] = [1e12 / min(capacity[at] for at in path) for path in numbers]
    stations_: Any = np.zeros(len(capacity) + 1, dtype=STATION)
    stations_["bandwidth"][:-1] = np.asarray(capacity, dtype=float) * 1e-12
    stations_["first"][1:] = np.cumsum(np.bincount(hops["station"], minlength=len(capacity)))
    most = int(np.sum(room, dtype=np.int64))
    messages: Any = np.zeros(most, dtype=MESSAGE)
    messages["free"] = np.arange(1, most + 1)
    return Fair(
        path_of=path_of,
        stations=stations_,
        paths=paths,
        hops=hops,
        used=np.empty(len(hops), dtype=np.int64),
        flows=np.empty(paths["of_flows"][-1], dtype=FLOW),
        order=np.empty(count, dtype=np.int64),
        touched=np.empty(count, dtype=np.int64),
        near_stations=np.empty(len(capacity), dtype=np.int64),
        near_paths=np.empty(count, dtype=np.int64),
        open=np.empty(len(capacity), dtype=LEVEL),
        alone=np.empty(most - paths["of_flows"][-1], dtype=EVENT),
        done=np.empty(most, dtype=EVENT),
        messages=messages,
        counts=np.zeros(7, dtype=np.int64),
    )


@inlined
def request(fair: Any, route: Any, message: Any, demand: Any, now: Any, weight: Any) -> Any:
    """Start a flow over a route; `settle` sets its rate."""
    counts = fair.counts
    slot = counts[FREE]
    record = fair.messages[slot]
    counts[FREE] = record.free
    record.message, record.number, record.weight = message, counts[REQUESTS], weight
    counts[REQUESTS] += 1
    number = record.path = np.int64(fair.path_of[route])
    if number >= 0:
        _begin_flow(fair, number, slot, demand / weight, weight, now)
    else:
        end = now + np.int64(min(demand, np.float64(LAST_INSTANT - now)))
        record.until = end
        place_event(fair.alone, counts[ALONE], end, record.number, slot)
        counts[ALONE] += 1
    return slot


@inlined
def next_end(fair: Any) -> Any:
    """Return the instant at which the next message ends; the last instant if there is none."""
    due = LAST_INSTANT
    if fair.counts[DONE] > 0:
        due = fair.counts[NOW]
    else:
        if fair.counts[IN_USE] > 0:
            due = fair.paths[fair.order[0]].due
        if fair.counts[ALONE] > 0:
            due = min(due, fair.alone[0].key)
    return due


@inlined
def earliest_end(fair: Any, slot: Any, now: Any) -> Any:
    """Return a lower bound of the end of a message: as if it were alone."""
    record = fair.messages[slot]
    end = record.until
    if record.path >= 0:
        path = fair.paths[record.path]
        got = path.virtual + path.rate * (now - path.since)
        end = now + (record.until - got) * record.weight * path.period * (1.0 - 1e-9)
    return np.int64(max(np.float64(now), min(end, FAR)))


@inlined
def pop_end(fair: Any, now: Any) -> Any:
    """Remove a message that ends now and return it; -1 if there is none left."""
    _gather(fair, now)
    counts = fair.counts
    message = np.int64(NOBODY)
    if counts[DONE] > 0:
        slot = fair.done[0].item
        message = fair.messages[slot].message
        pop_item(fair.done, 0, counts[DONE], LAST_INSTANT)
        counts[DONE] -= 1
        fair.messages[slot].free = counts[FREE]
        counts[FREE] = slot
    return message


@inlined
def _gather(fair: Any, now: Any) -> None:
    """Collect all messages that end now."""
    counts = fair.counts
    while counts[IN_USE] > 0 and fair.paths[fair.order[0]].due == now:
        _end_flow(fair, fair.order[0], now)
    while counts[ALONE] > 0 and fair.alone[0].key == now:
        end_message(fair, fair.alone[0].op, now)
        pop_event(fair.alone, counts[ALONE])
        counts[ALONE] -= 1


@inlined
def end_message(fair: Any, slot: Any, now: Any) -> None:
    place_item(fair.done, 0, fair.counts[DONE], fair.messages[slot].number, slot)
    fair.counts[DONE] += 1
    fair.counts[NOW] = now


@inlined
def _begin_flow(fair: Any, number: Any, slot: Any, bytes_: Any, weight: Any, now: Any) -> None:
    """Add a flow to a path, after ending the path's flows that end now."""
    path = fair.paths[number]
    while path.flows > 0 and path.due == now:
        _end_flow(fair, number, now)
    if path.flows == 0:
        path.virtual = 0.0
        path.load = 0.0
        path.since = now
        _occupy(fair, number)
    _advance(path, now)
    fair.messages[slot].until = path.virtual + bytes_
    place_item(fair.flows, path.of_flows, path.flows, path.virtual + bytes_, slot)
    path.flows += 1
    path.load += weight
    _touch(fair, number)


@inlined
def _end_flow(fair: Any, number: Any, now: Any) -> None:
    """End the first flow of a path."""
    end_message(fair, fair.flows[fair.paths[number].of_flows].item, now)
    take_flow(fair, number, now)


@inlined
def take_flow(fair: Any, number: Any, now: Any) -> None:
    """Remove the first flow of a path."""
    path = fair.paths[number]
    slot = fair.flows[path.of_flows].item
    _advance(path, now)
    pop_item(fair.flows, path.of_flows, path.flows, np.inf)
    path.flows -= 1
    path.load -= fair.messages[slot].weight
    _touch(fair, number)
    if path.flows > 0:
        # Its next one ends now as well, or when rates are settled.
        if fair.flows[path.of_flows].key - path.virtual > path.rate * FORGIVEN:
            path.due = LAST_INSTANT
            _reorder(fair, path.rank)
    else:
        path.load = 0.0
        _vacate(fair, number)


@inlined
def change_background(fair: Any, station: Any, weight: Any) -> None:
    """Set the sum of weights of background flows at a station."""
    place = fair.stations[station]
    if place.background != weight:
        place.background = weight
        for index in range(place.first, place.first + place.used):
            number = np.int64(fair.hops[fair.used[index]].path)
            fair.paths[number].shared = -1.0
            _touch(fair, number)


@inlined
def settle(fair: Any, now: Any) -> None:
    """Set every flow's max-min fair rate, after all begins and ends of the instant."""
    counts = fair.counts
    if counts[TOUCHED] > 0:
        _gather(fair, now)
        count = 0
        for index in range(counts[TOUCHED]):
            number = fair.touched[index]
            path = fair.paths[number]
            path.is_touched = 0
            if path.load == path.shared:
                if path.flows > 0:
                    _set_due(fair, number)
            elif _is_alone(fair, number):
                # Most are, and what is inlined costs a third of a call with all arrays.
                path.shared = path.load
                _advance(path, now)
                path.rate = 0.0
                if path.flows > 0:
                    path.limit = fair.hops[path.first].station
                    station = fair.stations[path.limit]
                    path.rate = station.bandwidth / (station.background + path.load)
                    _set_due(fair, number)
            else:
                path.shared = path.load
                if path.flows == 0:
                    path.rate = 0.0
                fair.near_paths[count] = number
                path.is_near = CHANGED
                count += 1
        counts[TOUCHED] = 0
        if count > 0:
            _share_out(fair, count, now)


@inlined
def _is_alone(fair: Any, number: Any) -> Any:
    """Return whether a path of one station shares it with no other path now."""
    path = fair.paths[number]
    one = fair.paths[number + 1].first == path.first + 1
    return one and fair.stations[fair.hops[path.first].station].used <= np.int64(path.flows > 0)


@subroutine
def _share_out(fair: Any, count: Any, now: Any) -> None:
    """Set the rates of all flows connected with the first `found` of `near_paths`."""
    near_paths, near_stations = _find_connected(fair, count)
    _fill(fair, near_paths, near_stations, now)


@inlined
def _find_connected(fair: Any, found: Any) -> Any:
    """Find all stations and paths in use connected with `near_paths`; return how many."""
    near_stations = at = 0
    while at < found:
        number = fair.near_paths[at]
        at += 1
        for hop in range(fair.paths[number].first, fair.paths[number + 1].first):
            station = fair.stations[fair.hops[hop].station]
            if not station.is_near:
                station.is_near = 1
                fair.near_stations[near_stations] = fair.hops[hop].station
                near_stations += 1
                for place in range(station.first, station.first + station.used):
                    other = fair.hops[fair.used[place]].path
                    if not fair.paths[other].is_near:
                        fair.paths[other].is_near = NEAR
                        fair.near_paths[found] = other
                        found += 1
    return found, near_stations


@inlined
def _fill(fair: Any, near_paths: Any, near_stations: Any, now: Any) -> None:
    """Divide the near stations among the near paths."""
    for index in range(near_stations):
        station = fair.stations[fair.near_stations[index]]
        station.is_near = 0
        station.left = station.bandwidth
        station.load = station.background
        station.level = 0.0
        station.fixed = 0.0
    for index in range(near_paths):
        number = fair.near_paths[index]
        for hop in range(fair.paths[number].first, fair.paths[number + 1].first):
            fair.stations[fair.hops[hop].station].load += fair.paths[number].load
    open_stations = 0
    for index in range(near_stations):
        number = fair.near_stations[index]
        station = fair.stations[number]
        if station.load > 0:
            place_event(fair.open, open_stations, station.left / station.load, number, 0)
            open_stations += 1
    while open_stations > 0:
        number, level = fair.open[0].item, fair.open[0].key
        station = fair.stations[number]
        pop_event(fair.open, open_stations)
        open_stations -= 1
        if station.load > 0:
            # What was fixed since has left more for each of the others; less only by rounding.
            share = (station.left - station.level * station.fixed) / station.load
            if share > level * SAME:
                place_event(fair.open, open_stations, share, number, 0)
                open_stations += 1
            else:
                _fix_all(fair, number, level, now)
    for index in range(near_paths):
        fair.paths[fair.near_paths[index]].is_near = 0


@inlined
def _fix_all(fair: Any, number: Any, level: Any, now: Any) -> None:
    """Fix the rates of the flows over a full station, summed first: order has no effect."""
    station = fair.stations[number]
    for place in range(station.first, station.first + station.used):
        path_number = np.int64(fair.hops[fair.used[place]].path)
        path = fair.paths[path_number]
        if path.is_near:
            load = path.load
            for hop in range(path.first, fair.paths[path_number + 1].first):
                other = fair.stations[fair.hops[hop].station]
                if other.level != level:
                    other.left -= other.level * other.fixed
                    other.level = level
                    other.fixed = 0.0
                other.fixed += load
                other.load -= load
            if path.rate != level or path.is_near == CHANGED:
                _advance(path, now)
                path.rate = level
                _set_due(fair, path_number)
            path.limit = number
            path.is_near = 0


@inlined
def _advance(path: Any, now: Any) -> None:
    """Account for what the flows of a path have received since, at their rate so far."""
    path.virtual += path.rate * (now - path.since)
    path.since = now


@inlined
def _set_due(fair: Any, number: Any) -> None:
    """Set when the first flow of a path ends if rates remain as they are from `since` on."""
    path = fair.paths[number]
    due = LAST_INSTANT
    if path.rate > 0:
        left = fair.flows[path.of_flows].key - path.virtual
        due = whole_instant(path.since, left / path.rate)
    path.due = due
    _reorder(fair, path.rank)


@inlined
def whole_instant(since: Any, lasts: Any) -> Any:
    """Return the first whole picosecond `lasts` after `since`; the last instant if that is far."""
    due = LAST_INSTANT
    lasts = max(0.0, lasts)
    if lasts < FAR - since:
        whole = np.int64(lasts)
        due = since + whole
        if lasts - whole > FORGIVEN:
            due += 1
    return due


@inlined
def _reorder(fair: Any, at: Any) -> None:
    """Restore the heap of paths after the instant of the one at `at` has changed."""
    order, paths, size = fair.order, fair.paths, fair.counts[IN_USE]
    number = order[at]
    due = paths[number].due
    while at > 0 and paths[order[(at - 1) >> 1]].due > due:
        order[at] = order[(at - 1) >> 1]
        paths[order[at]].rank = at
        at = (at - 1) >> 1
    while True:
        child = 2 * at + 1
        if child + 1 < size and paths[order[child + 1]].due < paths[order[child]].due:
            child += 1
        if child >= size or due <= paths[order[child]].due:
            break
        order[at] = order[child]
        paths[order[at]].rank = at
        at = child
    order[at] = number
    paths[number].rank = at


@inlined
def _touch(fair: Any, number: Any) -> None:
    if not fair.paths[number].is_touched:
        fair.paths[number].is_touched = 1
        fair.touched[fair.counts[TOUCHED]] = number
        fair.counts[TOUCHED] += 1


@inlined
def _occupy(fair: Any, number: Any) -> None:
    """Add a path that gets its first flow to the lists of its stations, and last in the order."""
    for hop in range(fair.paths[number].first, fair.paths[number + 1].first):
        station = fair.stations[fair.hops[hop].station]
        fair.hops[hop].place = station.first + station.used
        fair.used[station.first + station.used] = hop
        station.used += 1
    fair.paths[number].due = LAST_INSTANT
    fair.paths[number].rank = fair.counts[IN_USE]
    fair.order[fair.counts[IN_USE]] = number
    fair.counts[IN_USE] += 1


@inlined
def _vacate(fair: Any, number: Any) -> None:
    """Undo `_occupy` for a path that has lost its last flow."""
    for hop in range(fair.paths[number].first, fair.paths[number + 1].first):
        station = fair.stations[fair.hops[hop].station]
        station.used -= 1
        last = fair.used[station.first + station.used]
        place = fair.hops[hop].place
        fair.used[place] = last
        fair.hops[last].place = place
    fair.counts[IN_USE] -= 1
    at, last = fair.paths[number].rank, fair.order[fair.counts[IN_USE]]
    if last != number:
        fair.order[at] = last
        _reorder(fair, at)
