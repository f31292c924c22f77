"""Distributed memory: halo values travel as messages.

Everything is lazy: a message is looked at when its receiver reads, so it costs no event of its own.
Where messages share ports, the network is played up to the instant at which somebody sends or
reads: transfers end in order, and each time the values that wait for the link ask for it then.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paracosm.network.compiled import next_end, pop_end, request, settle
from paracosm.relaxation.kernel.compiled import compiled
from paracosm.relaxation.kernel.scalars import UPDATES
from paracosm.timing.compiled import draw, uniform

__all__ = ["exchange", "gather", "receive", "send"]


@compiled
def send(
    iterate: Any, halos: Any, ports: Any, draws: Any, counters: Any, who: Any, instant: Any
) -> None:
    """Send what processor `who` has just written to all who read it."""
    if ports is not None:
        _play(halos, ports, draws, instant)
    for position in range(halos.out_pointer[who], halos.out_pointer[who + 1]):
        link = halos.out[position]
        if halos.missed[link] < 0:
            halos.missed[link] = counters[UPDATES] - 1
        _leave(halos, draws, link, instant)
        first, end = halos.link[link], halos.link[link + 1]
        for place in range(first, end):
            halos.waiting[place] = iterate.x[halos.rows[place]]
        if halos.wait_count[link] < 0:
            halos.wait_count[link] = counters[UPDATES] - 1
        if halos.free_at[link] <= instant:
            if ports is not None and ports.route[link] >= 0:
                _ask(halos, ports, link, _picoseconds(halos, instant))
                continue
            halos.free_at[link] = instant
            _leave(halos, draws, link, instant)


@compiled
def _leave(halos: Any, draws: Any, link: Any, instant: Any) -> None:
    """Let the values that wait for their link leave, if it was free by `instant`."""
    if halos.wait_count[link] < 0 or halos.free_at[link] > instant:
        return
    if halos.under_way[link] > halos.arrival.shape[1] - 3:
        _drop_overtaken(halos, link, instant)
    halos.free_at[link] += halos.occupancy[link]
    _put_under_way(halos, link)
    _arrive(halos, draws, link, halos.free_at[link] + halos.latency[link])


@compiled
def _arrive(halos: Any, draws: Any, link: Any, arrival: Any) -> None:
    """Let the newest message under way be there at `arrival`, or later."""
    newest = halos.under_way[link] - 1
    number = halos.number[link, newest]
    if halos.jitter[link] >= 0:
        late = draw(draws, halos.jitter[link], uniform(halos.streams[link], number), number)
        arrival += late * halos.ticks[0]
    if halos.ordered[0]:
        arrival = max(arrival, halos.last_arrival[link])
    halos.last_arrival[link] = arrival
    halos.arrival[link, newest] = arrival


@compiled
def _put_under_way(halos: Any, link: Any) -> None:
    """Let the values that wait for their link be a message, which is not there yet."""
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


@compiled
def _ask(halos: Any, ports: Any, link: Any, now: Any) -> None:
    """Let the values that wait for their link ask for its ports."""
    if halos.under_way[link] > halos.arrival.shape[1] - 3:
        _drop_overtaken(halos, link, _instant(halos, now))
    _put_under_way(halos, link)
    halos.free_at[link] = np.inf
    request(ports.traffic, ports.route[link], link, ports.demand[link], now)
    ports.unsettled[0] = now


@compiled
def _play(halos: Any, ports: Any, draws: Any, instant: Any) -> None:
    """Play the network up to and with an instant; its rates are settled when it has passed."""
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
            _arrive(halos, draws, link, _instant(halos, end + ports.propagation[link]))
            if halos.wait_count[link] >= 0:
                _ask(halos, ports, link, end)
            link = pop_end(ports.traffic, end)
        ports.unsettled[0] = end
        if end < now:
            settle(ports.traffic, end)
            ports.unsettled[0] = -1


@compiled
def _picoseconds(halos: Any, instant: Any) -> Any:
    """Return an instant of the processors' clock as the network counts."""
    return np.int64(np.rint(instant / halos.ticks[0] * 1e12))


@compiled
def _instant(halos: Any, picoseconds: Any) -> Any:
    """Return an instant of the network on the processors' clock."""
    return picoseconds / 1e12 * halos.ticks[0]


@compiled
def _drop_overtaken(halos: Any, link: Any, instant: Any) -> None:
    """Of the messages that wait for a receiver who does not read, keep the newest."""
    newest = -1
    for message in range(halos.under_way[link]):
        if halos.arrival[link, message] <= instant:
            newest = max(newest, halos.number[link, message])
    kept = 0
    for message in range(halos.under_way[link]):
        if halos.number[link, message] >= newest:
            _move(halos, link, message, kept)
            kept += 1
    halos.under_way[link] = kept


@compiled
def _move(halos: Any, link: Any, source: Any, target: Any) -> None:
    """Move a message under way; buffers change places, so that those beyond the last are free."""
    buffer = halos.buffer[link, target]
    halos.buffer[link, target] = halos.buffer[link, source]
    halos.buffer[link, source] = buffer
    halos.arrival[link, target] = halos.arrival[link, source]
    halos.number[link, target] = halos.number[link, source]
    halos.news[link, target] = halos.news[link, source]


@compiled
def receive(halos: Any, ports: Any, draws: Any, counters: Any, who: Any, instant: Any) -> Any:
    """Let processor `who` take what has arrived; of each link, the newest values win.

    Returns:
        How many updates had been written when everything that `who` now knows was the newest there
        was: as `read_at` in shared memory, where it is the number of all updates so far.
    """
    known = counters[UPDATES]
    if ports is not None:
        _play(halos, ports, draws, instant)
    for position in range(halos.into_pointer[who], halos.into_pointer[who + 1]):
        link = halos.into[position]
        seen = instant
        if ports is not None and ports.route[link] >= 0:
            seen = _instant(halos, _picoseconds(halos, instant))
        _leave(halos, draws, link, instant)
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
        if halos.missed[link] >= 0:
            known = min(known, halos.missed[link])
    return known


@compiled
def _drop_arrived(halos: Any, link: Any, instant: Any) -> None:
    """Forget the messages that have arrived, and find the oldest news that has not."""
    kept = 0
    missed = halos.wait_count[link]
    for message in range(halos.under_way[link]):
        if halos.arrival[link, message] <= instant:
            continue
        if halos.number[link, message] > halos.version[link]:
            count = halos.news[link, message]
            missed = count if missed < 0 else min(missed, count)
        _move(halos, link, message, kept)
        kept += 1
    halos.under_way[link] = kept
    halos.missed[link] = missed


@compiled
def gather(matrix: Any, halos: Any, iterate: Any, rows: Any, first: Any, end: Any) -> None:
    """Compute the residual of `rows[first:end]` from what their processor knows."""
    for place in range(first, end):
        row = rows[place]
        total = matrix.b[row]
        for entry in range(halos.pointer[row], halos.pointer[row + 1]):
            source = halos.source[entry]
            value = iterate.x[source] if source >= 0 else halos.have[-1 - source]
            total -= halos.data[entry] * value
        halos.residual[row] = total


@compiled
def exchange(iterate: Any, halos: Any, who: Any) -> None:
    """Swap what processor `who` knows of the others' rows with what these rows really are.

    Around a function of the user's, which so sees the iterate as its processor does.
    """
    for position in range(halos.into_pointer[who], halos.into_pointer[who + 1]):
        link = halos.into[position]
        for place in range(halos.link[link], halos.link[link + 1]):
            row = halos.rows[place]
            iterate.x[row], halos.have[place] = halos.have[place], iterate.x[row]
