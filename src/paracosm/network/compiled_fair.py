"""The fair rule, compiled: max-min fair rates, and the times at which messages end.

Messages over the same stations are one group (a *path* here) and have one rate, so that a path
needs only the weights of its flows, the bytes that one of weight 1 has received since the path was
last idle (its *virtual time*: Parekh and Gallager, "A Generalized Processor Sharing Approach to
Flow Control", 1993), and a heap of the virtual times at which its flows end, which do not depend on
the rate.

Rates follow from progressive filling (Bertsekas and Gallager, "Data Networks", 1992, section
6.5.2): all grow alike until a station is full, whose paths are then fixed, and so on; of stations
that are full at one level the first comes first.

Once per instant, only what differs from the instant before is done again. A station is filled anew,
from nothing on, if its own flows have changed, or if another station fixes one of its paths at
another level than before, or no longer at that level. What is fixed up to a level depends on lower
levels only: stations come by level, each is filled once, and the others are not looked at. With
weights whose sums are exact, such as whole numbers, results are those of filling all to the bit.

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

UNCHANGED, FOUND, OPEN, CLOSED = range(4)
"""Of a station, while rates are set: as before; to be filled anew; on the way; all paths over it
are fixed."""

STATION = np.dtype(
    [
        *columns("f8", "bandwidth", "background", "left", "load", "level", "fixed"),
        *columns("f8", "share", "before"),
        *columns("i8", "first", "used", "unfixed", "early", "late", "end", "state"),
    ]
)
"""A station: bytes/ps; the weight of flows of others; bytes/ps that are not given away, but for
what flows of the weight `fixed` get at `level`; the weight of flows that are still to get a share;
what each of them would get; the level at which it was full before.
`Fair.used[first:first + used]` are the hops over it of paths that have flows, of which `unfixed`
are still to get a share. What others have fixed by then is in `Fair.fixes[early:2 * first + used]`
and, since the station is open, in `Fair.fixes[late:end]`, if it has not been subtracted."""

PATH = np.dtype(
    [
        *columns("i8", "first", "of_flows", "flows"),
        *columns("f8", "load", "period", "shared", "rate", "virtual"),
        *columns("i8", "since", "due", "rank"),
        *columns("i4", "limit", "is_touched", "is_changed"),
    ]
)
"""A path: where its hops and its heap of flows begin; how many flows it has, the sum of their
weights; picoseconds of a byte over its narrowest station; for which sum of weights its rate is,
bytes/ps of a flow of weight 1; the bytes that such a one has got by `since`; when its first flow
ends; where it stands in `Fair.order`; the station that its rate is of, of several that with the
smallest number, -1 while it is not fixed; whether it has other flows than when it was."""

HOP = np.dtype([("station", "i4"), ("path", "i4"), ("place", "i8")])
"""A station on a path, and where it stands in `Fair.used` when the path has flows."""

FLOW = np.dtype([("key", "f8"), ("item", "i8")])
"""A flow: the virtual time of its path at which it ends, and its message."""

LEVEL = np.dtype([("key", "f8"), ("item", "i8"), ("op", "i8")])
"""An entry of `Fair.open`: what a flow of weight 1 would get at a station, or got before, and the
station; of `Fair.fixes`: what it has got so far, where, and its path."""

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
        changed_paths: those of `touched` whose other flows have an effect on others.
        near_stations: those that are filled anew.
        open: a heap of those that are on the way.
        fixes: of each of those, its paths in use by the levels at which they were fixed before, and
            those that others have fixed since.
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
    changed_paths: Ints
    near_stations: Ints
    open: Any
    fixes: Any
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
        changed_paths=np.empty(count, dtype=np.int64),
        near_stations=np.empty(len(capacity), dtype=np.int64),
        open=np.empty(len(capacity), dtype=LEVEL),
        fixes=np.empty(2 * len(hops), dtype=LEVEL),
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
        changed = np.int64(0)  # of one type throughout: for 0 alone, callees are compiled again
        for index in range(counts[TOUCHED]):
            number = fair.touched[index]
            path = fair.paths[number]
            path.is_touched = 0
            is_settled = True
            if path.load != path.shared:
                path.shared = path.load
                is_settled = _is_alone(fair, number)
                if is_settled:
                    # Most are, and what is inlined costs a third of a call with all arrays.
                    _advance(path, now)
                    path.limit = fair.hops[path.first].station
                    station = fair.stations[path.limit]
                    path.rate = station.bandwidth / (station.background + path.load)
                else:
                    path.limit = NOBODY
                    path.is_changed = np.int32(path.flows > 0)
                    fair.changed_paths[changed] = number
                    changed += 1
            if path.flows == 0:
                path.rate = 0.0
            elif is_settled:
                _set_due(fair, number)
        counts[TOUCHED] = 0
        if changed > 0:
            _share_out(fair, changed, now)


@inlined
def _is_alone(fair: Any, number: Any) -> Any:
    """Return whether a path of one station shares it with no other path now."""
    path = fair.paths[number]
    one = fair.paths[number + 1].first == path.first + 1
    return one and fair.stations[fair.hops[path.first].station].used <= np.int64(path.flows > 0)


@subroutine
def _share_out(fair: Any, changed: Any, now: Any) -> None:
    """Set the rates that are others because of the first `changed` of `changed_paths`."""
    filled = opened = found = np.int64(0)
    while True:
        while changed > 0:
            changed -= 1
            found = _find_stations(fair, fair.changed_paths[changed], found)
        if filled < found:
            number = fair.near_stations[filled]
            station = fair.stations[number]
            filled += 1
            _open(fair, station, number)
        elif opened > 0:
            number, level = fair.open[0].item, fair.open[0].key
            station = fair.stations[number]
            pop_event(fair.open, opened)
            opened -= 1
            _subtract(fair, station, number, level)
            share = np.inf
            if station.unfixed > 0:
                share = (station.left - station.level * station.fixed) / station.load
            if station.unfixed == 0:
                station.state = CLOSED
            elif level == station.share and not share > level * SAME:
                # What was fixed since has left no more for each of the others.
                station.state = CLOSED
                changed = _change_all(fair, station, number, now)
            else:
                if level == station.share:
                    station.share = share
                if level == station.before:
                    station.before = np.inf
                    changed = _change_all(fair, station, number, now)
        else:
            break
        if station.state == OPEN:
            place_event(fair.open, opened, min(station.share, station.before), number, 0)
            opened += 1
    for index in range(found):
        fair.stations[fair.near_stations[index]].state = UNCHANGED


@inlined
def _find_stations(fair: Any, path_number: Any, found: Any) -> Any:
    """Let the stations of a changed path know; return how many are found to be filled anew."""
    path = fair.paths[path_number]
    is_fixed = path.limit != NOBODY
    for hop in range(path.first, fair.paths[path_number + 1].first):
        station = fair.stations[fair.hops[hop].station]
        if station.state == OPEN and is_fixed:
            fix = fair.fixes[station.end]
            fix.key, fix.item, fix.op = path.rate, path.limit, path_number
            station.end += 1
        # Of one that has no other path it is known that it would fix this one later.
        elif station.state == UNCHANGED and not (is_fixed and station.used == 1):
            station.state = FOUND
            fair.near_stations[found] = fair.hops[hop].station
            found += 1
    return found


@inlined
def _open(fair: Any, station: Any, number: Any) -> None:
    """Begin to fill a station, unless no path over it has flows.

    Its paths are sorted by insertion: most are where they were when it was last filled.
    """
    first = station.first
    station.state = CLOSED if station.used == 0 else OPEN
    station.left = station.bandwidth
    station.load = station.background
    station.level = station.fixed = 0.0
    station.before = np.inf
    station.unfixed = station.used
    station.early = 2 * first
    station.late = station.end = 2 * first + station.used
    for place in range(first, first + station.used):
        hop = fair.used[place]
        path_number = np.int64(fair.hops[hop].path)
        path = fair.paths[path_number]
        level, limit = path.rate, np.int64(path.limit)
        station.load += path.load
        if limit == number:
            station.before = level
        at = place
        while at > first:
            above = fair.fixes[first + at - 1]
            if above.key < level or (above.key == level and above.item <= limit):
                break
            below = fair.fixes[first + at]
            below.key, below.item, below.op = above.key, above.item, above.op
            fair.used[at] = fair.used[at - 1]
            fair.hops[fair.used[at]].place = at
            at -= 1
        fix = fair.fixes[first + at]
        fix.key, fix.item, fix.op = level, limit, path_number
        fair.used[at] = hop
        fair.hops[hop].place = at
    station.share = station.left / station.load


@inlined
def _subtract(fair: Any, station: Any, number: Any, level: Any) -> None:
    """Subtract at a station what others have fixed before it is full at this level."""
    last = 2 * station.first + station.used
    while station.early < last or station.late < station.end:
        is_late = station.early == last
        if not is_late and station.late < station.end:
            early, late = fair.fixes[station.early], fair.fixes[station.late]
            is_late = late.key < early.key or (late.key == early.key and late.item < early.item)
        fix = fair.fixes[station.late if is_late else station.early]
        if fix.key > level or (fix.key == level and fix.item >= number):
            break
        station.late += np.int64(is_late)
        station.early += np.int64(not is_late)
        path = fair.paths[fix.op]
        # Others were not fixed, or are fixed anew.
        if fix.item != NOBODY and path.limit == fix.item and path.rate == fix.key:
            if station.level != path.rate:
                station.left -= station.level * station.fixed
                station.level = path.rate
                station.fixed = 0.0
            station.fixed += path.load
            station.load -= path.load
            station.unfixed -= 1


@inlined
def _change_all(fair: Any, station: Any, number: Any, now: Any) -> Any:
    """Fix the rates of the flows over a full station that no other has fixed before; or release
    those that it had fixed at a level at which it is not full now. Return how many paths change.
    """
    changed = np.int64(0)
    level, is_full = station.share, station.state == CLOSED
    for place in range(station.first, station.first + station.used):
        path_number = np.int64(fair.hops[fair.used[place]].path)
        path = fair.paths[path_number]
        does_change = path.limit == number
        if is_full:
            is_later = path.rate > level or (path.rate == level and path.limit > number)
            does_change = path.limit == NOBODY or is_later
        if does_change:
            path.limit = NOBODY
            if is_full:
                path.limit = number
                if path.rate != level or path.is_changed:
                    _advance(path, now)
                    path.rate = level
                    path.is_changed = 0
                    _set_due(fair, path_number)
            fair.changed_paths[changed] = path_number
            changed += 1
    return changed


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
