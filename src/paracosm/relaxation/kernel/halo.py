"""Distributed memory: halo values travel as messages.

Everything is lazy: a message is looked at when its receiver reads, so it costs no event of its own.
Where messages share ports, the network is played up to the instant at which somebody sends or
reads: transfers end in order, and each time the values that wait for the link ask for it then.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from paracosm.cluster import Link, switch
from paracosm.compiled import inlined, subroutine
from paracosm.errors import InputError
from paracosm.network.compiled import make_traffic, next_end, pop_end, request, settle
from paracosm.network.stations import Connection, Stations
from paracosm.relaxation.kernel.arrays import (
    ASKED,
    HALO,
    IDLE,
    RECORD,
    REQUEST,
    SUM,
    UPDATES,
    Halos,
    Ports,
)
from paracosm.relaxation.spec import RunSpec
from paracosm.rng import RelaxationStream, stream_keys
from paracosm.timing.compiled import draw, uniform


@subroutine
def send(
    iterate: Any,
    halos: Any,
    ports: Any,
    draws: Any,
    counters: Any,
    processor: Any,
    instant: Any,
    offered: Any,
    records: Any,
) -> None:
    """Send what `processor` has just written to all who read it.

    `offered` is the sum of squared residuals for its parent in the tree of detection, -1: none;
    `records` says whether this is what it records, and whether its children are to do the same.
    """
    for position in range(halos.out_pointer[processor], halos.out_pointer[processor + 1]):
        link = halos.out[position]
        first, end = halos.link[link], halos.link[link + 1]
        kind = halos.kind[link]
        if (kind == SUM and offered < 0.0) or (kind >= REQUEST and not records):
            continue
        if halos.missed[link] < 0:
            halos.missed[link] = counters[UPDATES] - 1
        _send_waiting(halos, draws, link, instant)
        for place in range(first, end):
            row = halos.rows[place]
            halos.waiting[place] = iterate.x[row] if row >= 0 else offered
        if halos.wait_count[link] < 0:
            halos.wait_count[link] = counters[UPDATES] - 1
        if halos.free_at[link] <= instant:
            if ports is not None and ports.route[link] >= 0:
                _request_ports(halos, ports, link, _picoseconds(halos, instant))
                continue
            halos.free_at[link] = instant
            _send_waiting(halos, draws, link, instant)


@subroutine
def restore(halos: Any, x: Any) -> None:
    """Put values of `x` in place of what processors have of others' rows, or are being sent."""
    for link in range(halos.kind.size):
        if halos.kind[link] != HALO:
            continue
        for place in range(halos.link[link], halos.link[link + 1]):
            value = x[halos.rows[place]]
            halos.have[place] = value
            halos.waiting[place] = value
            for message in range(halos.under_way[link]):
                halos.payload[halos.buffer[link, message], place] = value


@subroutine
def _send_waiting(halos: Any, draws: Any, link: Any, instant: Any) -> None:
    """Send the values that wait for their link, if it was free by `instant`."""
    if halos.wait_count[link] < 0 or halos.free_at[link] > instant:
        return
    if halos.under_way[link] > halos.arrival.shape[1] - 3:
        _drop_overtaken(halos, link, instant)
    halos.free_at[link] += halos.occupancy[link]
    _make_message(halos, link)
    _set_arrival(halos, draws, link, halos.free_at[link] + halos.latency[link])


@subroutine
def _set_arrival(halos: Any, draws: Any, link: Any, arrival: Any) -> None:
    """Set the arrival of the newest message in flight to `arrival`, or later."""
    newest = halos.under_way[link] - 1
    number = halos.number[link, newest]
    if halos.jitter[link] >= 0:
        late = draw(draws, halos.jitter[link], uniform(halos.streams[link], number), number)
        arrival += late * halos.ticks[0]
    if halos.ordered[0]:
        arrival = max(arrival, halos.last_arrival[link])
    halos.last_arrival[link] = arrival
    halos.arrival[link, newest] = arrival


@subroutine
def _make_message(halos: Any, link: Any) -> None:
    """Turn the values that wait for their link into a message in flight."""
    newest = halos.under_way[link]
    buffer = halos.buffer[link, newest]
    for place in range(halos.link[link], halos.link[link + 1]):
        halos.payload[buffer, place] = halos.waiting[place]
    halos.arrival[link, newest] = np.inf
    halos.number[link, newest] = halos.sent[link]
    halos.news[link, newest] = halos.wait_count[link]
    halos.under_way[link] = newest + 1
    halos.fullest[0] = max(halos.fullest[0], newest + 1)
    halos.sent[link] += 1
    halos.wait_count[link] = -1


@subroutine
def _request_ports(halos: Any, ports: Any, link: Any, now: Any) -> None:
    """Request the ports of a link for the values that wait for it."""
    if halos.under_way[link] > halos.arrival.shape[1] - 3:
        _drop_overtaken(halos, link, _instant(halos, now))
    _make_message(halos, link)
    halos.free_at[link] = np.inf
    request(ports.traffic, ports.route[link], link, ports.demand[link], now)
    ports.unsettled[0] = now


@subroutine
def move_network(halos: Any, ports: Any, draws: Any, instant: Any) -> None:
    """Move the network, if there is one, up to and including an instant, before who sends or reads.

    Its rates are settled after it.
    """
    if ports is None:
        return
    now = _picoseconds(halos, instant)
    if 0 <= ports.unsettled[0] < now:
        settle(ports.traffic, ports.unsettled[0])
        ports.unsettled[0] = -1
    while True:
        end = next_end(ports.traffic)
        if end > now:
            return
        link = pop_end(ports.traffic, end)
        while link >= 0:
            halos.free_at[link] = -np.inf
            _set_arrival(halos, draws, link, _instant(halos, end + ports.propagation[link]))
            if halos.wait_count[link] >= 0:
                _request_ports(halos, ports, link, end)
            link = pop_end(ports.traffic, end)
        ports.unsettled[0] = end
        if end < now:
            settle(ports.traffic, end)
            ports.unsettled[0] = -1


@subroutine
def _picoseconds(halos: Any, instant: Any) -> Any:
    return np.int64(np.rint(instant / halos.ticks[0] * 1e12))


@subroutine
def _instant(halos: Any, picoseconds: Any) -> Any:
    return picoseconds / 1e12 * halos.ticks[0]


@subroutine
def _drop_overtaken(halos: Any, link: Any, instant: Any) -> None:
    """Of the messages that wait for a receiver who does not read, keep the newest."""
    newest = -1
    for message in range(halos.under_way[link]):
        if halos.arrival[link, message] <= instant:
            newest = max(newest, halos.number[link, message])
    kept = np.int64(0)  # as a literal it would have a type of its own
    for message in range(halos.under_way[link]):
        if halos.number[link, message] >= newest:
            _move_message(halos, link, message, kept)
            kept += 1
    halos.under_way[link] = kept


@subroutine
def _move_message(halos: Any, link: Any, source: Any, target: Any) -> None:
    """Move a message under way; buffers change places, so that those beyond the last are free."""
    buffer = halos.buffer[link, target]
    halos.buffer[link, target] = halos.buffer[link, source]
    halos.buffer[link, source] = buffer
    halos.arrival[link, target] = halos.arrival[link, source]
    halos.number[link, target] = halos.number[link, source]
    halos.news[link, target] = halos.news[link, source]


@subroutine
def receive(halos: Any, ports: Any, draws: Any, counters: Any, processor: Any, instant: Any) -> Any:
    """Receive the messages that have arrived at `processor`; the newest values of each link
    win.

    Returns how many updates had been written when all that it now knows was the newest there was.
    """
    known = counters[UPDATES]
    for position in range(halos.into_pointer[processor], halos.into_pointer[processor + 1]):
        link = halos.into[position]
        seen = instant
        if ports is not None and ports.route[link] >= 0:
            seen = _instant(halos, _picoseconds(halos, instant))
        _send_waiting(halos, draws, link, instant)
        # In order, the first under way is the next to arrive.
        if not (halos.ordered[0] and halos.under_way[link] and halos.arrival[link, 0] > seen):
            _take_newest(halos, link, seen)
        if halos.missed[link] >= 0 and halos.kind[link] == HALO:
            known = min(known, halos.missed[link])
    return known


@subroutine
def _take_newest(halos: Any, link: Any, seen: Any) -> None:
    """Take the newest values that have arrived over a link."""
    best = -1
    for message in range(halos.under_way[link]):
        if halos.arrival[link, message] <= seen:
            number = halos.number[link, message]
            if number > halos.version[link]:
                halos.version[link] = number
                best = halos.buffer[link, message]
    if best >= 0:
        for place in range(halos.link[link], halos.link[link + 1]):
            halos.have[place] = halos.payload[best, place]
    _drop_arrived(halos, link, seen)


@subroutine
def _drop_arrived(halos: Any, link: Any, instant: Any) -> None:
    """Forget the messages that have arrived, and find the oldest news that has not."""
    kept = np.int64(0)
    missed = halos.wait_count[link]
    for message in range(halos.under_way[link]):
        if halos.arrival[link, message] <= instant:
            continue
        if halos.number[link, message] > halos.version[link]:
            count = halos.news[link, message]
            missed = count if missed < 0 else min(missed, count)
        _move_message(halos, link, message, kept)
        kept += 1
    halos.under_way[link] = kept
    halos.missed[link] = missed


@subroutine
def gather(matrix: Any, halos: Any, sources: Any, x: Any, rows: Any, first: Any, end: Any) -> None:
    """Compute the residual of `rows[first:end]` from what their processor knows, or recorded."""
    for place in range(first, end):
        row = rows[place]
        total = matrix.b[row]
        for entry in range(halos.pointer[row], halos.pointer[row + 1]):
            source = sources[entry]
            value = x[source] if source >= 0 else halos.have[-1 - source]
            total -= halos.data[entry] * value
        halos.residual[row] = total


@subroutine
def exchange(iterate: Any, halos: Any, processor: Any) -> None:
    """Swap what `processor` knows of others' rows with what they are.

    That is done before and after a call of a function of the user's.
    """
    for position in range(halos.into_pointer[processor], halos.into_pointer[processor + 1]):
        link = halos.into[position]
        if halos.kind[link] != HALO:
            continue
        for place in range(halos.link[link], halos.link[link + 1]):
            row = halos.rows[place]
            iterate.x[row], halos.have[place] = halos.have[place], iterate.x[row]


@subroutine
def take_part(s: Any, processor: Any) -> None:
    """Take the step of a snapshot for which all has arrived that `processor` waits for.

    What it says is sent with the update that begins now. The n-th message of a link is of the n-th
    snapshot: nobody is asked for the next one before processor 0 has the sum of this one.
    """
    rules, tally, halos, blocks = s.rules, s.tally, s.halos, s.blocks
    idle = tally.stage[processor] == IDLE
    if tally.stage[processor] == ASKED or tally.offered[processor] >= 0.0:
        return  # a fault made it read twice for one update
    if idle and processor == 0 and s.flight.updates[processor] % rules.every != 0:
        return
    total = 0.0
    for position in range(halos.into_pointer[processor], halos.into_pointer[processor + 1]):
        link = halos.into[position]
        kind = halos.kind[link]
        if kind == HALO or idle != (kind == REQUEST):
            continue
        if halos.version[link] < tally.snapshots[processor]:
            return
        if kind == SUM:
            total = _with(rules, total, halos.have[halos.link[link]])
    if idle:
        tally.stage[processor] = ASKED
        return
    first, end = blocks.pointer[processor], blocks.pointer[processor + 1]
    gather(s.matrix, halos, halos.recorded_source, tally.recorded, blocks.rows, first, end)
    for place in range(first, end):
        total = _with(rules, total, halos.residual[blocks.rows[place]] ** 2)
    tally.offered[processor] = total if total >= 0.0 else np.inf


@inlined
def _with(rules: Any, total: Any, square: Any) -> Any:
    """Return a squared norm with one more part; a NaN stays one."""
    if not rules.infinity:
        return total + square
    return square if square > total or square != square else total


BYTES = 8  # of one value
_CAPACITY = 4  # messages under way on a link, to begin with
MOST_UNDER_WAY = 8192  # each update looks at all that are under way to its processor
_MOST_BYTES = 2**29  # of what they carry


def no_links() -> Halos:
    """Return the halos of shared memory: none."""
    w, f = np.zeros(0, np.int64), np.zeros(0)
    keys, flags = np.zeros(0, np.uint64), np.zeros(1, np.bool_)
    return Halos(
        w, w, w, f, f, f, w, w, w, w, w, w, w, f, f, w, keys, flags, f, f, f, w, np.zeros((0, 0)),
        np.zeros((0, 0), np.int64), np.zeros((0, 0)), np.zeros((0, 0), np.int64),
        np.zeros((0, 0), np.int64), w, np.zeros(1, np.int64), w, w, w, f,
    )  # fmt: skip


def halo_links(spec: RunSpec, jitter: int) -> tuple[Halos, Ports | None]:
    """Return the links of the run's pattern, and the ports that they share, if any.

    In shared memory they carry snapshots only, at no cost.
    `jitter` is the row of the table of distributions that adds to latencies, or -1.
    """
    problem, pattern, ticks = spec.problem, spec.pattern, spec.ticks
    processors = pattern.processors
    cluster = switch(processors, link=Link()) if spec.cluster is None else spec.cluster
    names = cluster.workers
    A, n = problem.A, problem.n
    if pattern.choice != "fixed" or pattern.rows.size != n:
        raise InputError(
            f"distributed memory: pattern {pattern.name} lets several processors write a row; "
            "use one whose blocks do not overlap and stay"
        )
    owner = np.empty(n, np.int64)
    owner[pattern.rows] = np.repeat(np.arange(processors), np.diff(pattern.pointer))
    reader = np.repeat(owner, np.diff(A.indptr))
    writer = owner[A.indices]
    outside = np.flatnonzero(reader != writer)
    # One place for each (reader, row) that is read from outside, grouped by link, and one for the
    # sum of residuals that goes from each processor to its parent, on a link of its own; a snapshot
    # has requests the other way, and recorded values beside those that are iterated.
    test, child = spec.config.detect.by, np.arange(1, processors)
    parent = (child - 1) // 2
    halo = writer[outside], reader[outside], A.indices[outside]
    kinds: list[tuple[Any, ...]] = [] if spec.cluster is None else [(HALO, *halo)]
    if test in ("tree", "snapshot"):
        kinds.append((SUM, child, parent, -1))
    if test == "snapshot":
        kinds += [(REQUEST, parent, child, -1), (RECORD, *halo)]
    wanted = [np.broadcast_arrays(a, b, kind, rows) for kind, a, b, rows in kinds]
    places, inverse = np.unique(
        np.concatenate(wanted, axis=1, dtype=np.int64), axis=1, return_inverse=True
    )
    # Halo values come first of all that is wanted, recorded ones last.
    source, recorded_source = A.indices.astype(np.int64), np.zeros(0, np.int64)
    if test == "snapshot":
        recorded_source = source.copy()
        recorded_source[outside] = -1 - inverse.ravel()[inverse.size - outside.size :]
    if spec.cluster is not None:
        source[outside] = -1 - inverse.ravel()[: outside.size]
    pairs, first = np.unique(places[:3], axis=1, return_index=True)
    links = pairs.shape[1]
    link = np.append(first, places.shape[1]).astype(np.int64)
    stations = Stations(cluster)
    channels = [stations.connect(names[a], names[b]) for a, b, _ in pairs.T.tolist()]
    sent = list(zip(channels, (BYTES * np.diff(link)).tolist(), strict=True))
    into = np.argsort(pairs[1], kind="stable")
    shape = (links, _CAPACITY)
    halos = Halos(
        pointer=A.indptr.astype(np.int64),
        source=source,
        recorded_source=recorded_source,
        data=A.data.copy() if problem.map is None else np.zeros(0),
        residual=np.zeros(n),
        have=np.where(places[3] < 0, np.inf, problem.x0[places[3]]),
        link=link,
        rows=places[3].astype(np.int64),
        kind=pairs[2].astype(np.int64),
        out_pointer=_pointer(pairs[0], processors),
        out=np.arange(links, dtype=np.int64),
        into_pointer=_pointer(pairs[1], processors),
        into=into.astype(np.int64),
        occupancy=ticks
        * np.array([connection.link.occupancy(size) for connection, size in sent], np.float64),
        latency=ticks
        * np.array([connection.link.propagation(size) for connection, size in sent], np.float64),
        jitter=np.full(links, jitter, np.int64),
        # What detects convergence comes last, so that it changes no halo's random numbers.
        streams=stream_keys(spec.seed, RelaxationStream.MESSAGES, links)[
            np.argsort(np.argsort(pairs[2], kind="stable"))
        ],
        ordered=np.array([spec.config.order == "ordered"]),
        ticks=np.array([ticks]),
        free_at=np.full(links, -np.inf),
        waiting=np.zeros(places.shape[1]),
        wait_count=np.full(links, -1, np.int64),
        payload=np.zeros((_CAPACITY, places.shape[1])),
        buffer=np.tile(np.arange(_CAPACITY, dtype=np.int64), (links, 1)),
        arrival=np.zeros(shape),
        number=np.zeros(shape, np.int64),
        news=np.zeros(shape, np.int64),
        under_way=np.zeros(links, np.int64),
        fullest=np.zeros(1, np.int64),
        sent=np.zeros(links, np.int64),
        version=np.full(links, -1, np.int64),
        missed=np.full(links, -1, np.int64),
        last_arrival=np.full(links, -np.inf),
    )
    return halos, _ports(stations, sent)


def _ports(stations: Stations, sent: Sequence[tuple[Connection, int]]) -> Ports | None:
    """Return the ports of the links; None where no message ever waits for another one's bytes."""
    demand = [channel.demand(size) for channel, size in sent]
    if not any(
        connection.stations and asked for (connection, _), asked in zip(sent, demand, strict=True)
    ):
        return None
    # Several links join neighbours that detect convergence together: each has a message.
    rooms = np.bincount([connection.number for connection, _ in sent]).tolist()
    return Ports(
        traffic=make_traffic(stations.sharing, stations.routes, stations.capacity, rooms),
        route=np.array(
            [connection.number if connection.stations else -1 for connection, _ in sent], np.int64
        ),
        demand=np.array(demand, np.float64),
        propagation=np.array([connection.propagation(size) for connection, size in sent], np.int64),
        unsettled=np.array([-1], np.int64),
    )


def with_more_room(halos: Halos) -> Halos:
    """Return the same halos with room for twice as many messages under way."""
    links, capacity = halos.arrival.shape
    if capacity >= MOST_UNDER_WAY or halos.payload.nbytes > _MOST_BYTES:
        raise InputError(
            f"{halos.fullest[0]:,} messages are under way on one link: give a shorter latency, or "
            "end the run earlier (max_time, max_sweeps)"
        )

    def doubled(array: np.ndarray, axis: int) -> np.ndarray:
        return np.concatenate([array, np.zeros_like(array)], axis=axis)

    buffer = np.tile(np.arange(2 * capacity, dtype=np.int64), (links, 1))
    buffer[:, :capacity] = halos.buffer
    return halos._replace(
        payload=doubled(halos.payload, 0),
        buffer=buffer,
        arrival=doubled(halos.arrival, 1),
        number=doubled(halos.number, 1),
        news=doubled(halos.news, 1),
    )


def _pointer(processor: np.ndarray, processors: int) -> np.ndarray:
    counts = np.bincount(processor, minlength=processors)
    return np.concatenate([[0], np.cumsum(counts)]).astype(np.int64)
