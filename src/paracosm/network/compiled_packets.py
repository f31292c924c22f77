"""Packets, compiled: streams at a port are served in turn, a quantum at a time.

`paracosm.network.packets` describes the rule, and does the same arithmetic. Max-min rates, and the
port that limits each stream, are those of `compiled_fair`: there all flows are endless, and are
removed once a port has served them.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from paracosm.arrays import Ints
from paracosm.compiled import columns, inlined, subroutine
from paracosm.network import compiled_fair
from paracosm.network.clock import FAR, FORGIVEN, LAST_INSTANT
from paracosm.network.compiled_fair import (
    ALONE,
    DONE,
    EVENT,
    IN_USE,
    TOUCHED,
    Fair,
    end_message,
    fair_traffic,
    take_flow,
    whole_instant,
)
from paracosm.network.heaps import NOBODY, place_event, place_item, pop_item

MESSAGE = np.dtype(
    [
        *columns("f8", "left", "turn"),
        *columns("i8", "earliest", "route", "queue", "before", "after"),
    ]
)
"""A message under way: bytes that are left, and how many of them it may send in its turn; the
instant at which its narrowest port could have brought it; its route; the port at which it waits,
and its neighbours in the ring of those that do."""

QUEUE = np.dtype(
    [
        *columns("f8", "level", "rate", "ahead", "until", "rest"),
        *columns("i8", "head", "waiting", "since", "due", "last", "ended", "instant"),
        ("is_changed", "i8"),
    ]
)
"""The streams that a port serves in turn. Bytes/ps that each has in the long run, and the one that
is served; bytes that were served by `since` and not yet given to anybody; bytes that are served
until the message `last` ends, the first to do so, at `due`; the head of the ring, and how many are
in it; the route whose message ended last, when, and what was left of its turn."""

COMING = np.dtype([("key", "i8"), ("item", "i8")])
"""A stream that is to take its place: the number of its request, and its message."""


class Queues(NamedTuple):
    """Streams that are served in turn.

    Attributes:
        fair: who flows where, and the rates; nothing ends there by itself.
        quantum: bytes.
        messages: as those of `fair`.
        queues: of each station.
        ports: the stations that limit anybody.
        seen: of each path of `fair`, the station at which its streams wait.
        coming: a heap of those that are to take their places.
        counts: see below.
    """

    fair: Fair
    quantum: float
    messages: Any
    queues: Any
    ports: Ints
    seen: Ints
    coming: Any
    counts: Ints


COMING_COUNT, DUE = range(2)
"""In `Queues.counts`: how many stand in `coming`; when the next message ends."""


def packet_traffic(
    routes: Sequence[Sequence[int]], capacity: Sequence[float], room: Sequence[int], quantum: float
) -> Queues:
    """Return the traffic over these routes, without messages.

    Args:
        routes: stations of each, as indices into `capacity`; messages of one are a stream.
        capacity: bytes/s of each station.
        room: how many messages of each route are under way at once, at most.
        quantum: bytes.
    """
    fair = fair_traffic(routes, capacity, room)
    fair = fair._replace(alone=np.empty(len(fair.messages), dtype=EVENT))
    queues: Any = np.zeros(len(capacity), dtype=QUEUE)
    queues["head"] = queues["last"] = queues["ended"] = NOBODY
    queues["due"] = LAST_INSTANT
    most = len(fair.messages)
    counts = np.zeros(2, dtype=np.int64)
    counts[DUE] = LAST_INSTANT
    return Queues(
        fair=fair,
        quantum=float(quantum),
        messages=np.zeros(most, dtype=MESSAGE),
        queues=queues,
        ports=np.unique(fair.hops["station"]).astype(np.int64),
        seen=np.full(len(fair.paths), NOBODY, dtype=np.int64),
        coming=np.empty(most, dtype=COMING),
        counts=counts,
    )


@inlined
def request(queues: Any, route: Any, message: Any, demand: Any, now: Any, weight: Any) -> Any:
    """Start a message of a stream; `settle` decides where it waits."""
    amount = demand if queues.fair.path_of[route] < 0 else np.inf
    slot = compiled_fair.request(queues.fair, route, message, amount, now, 1.0)
    record = queues.messages[slot]
    record.left, record.turn = demand, queues.quantum
    record.route, record.queue = route, NOBODY
    path = queues.fair.messages[slot].path
    if path >= 0:
        bandwidth = np.inf
        for hop in range(queues.fair.paths[path].first, queues.fair.paths[path + 1].first):
            station = queues.fair.stations[queues.fair.hops[hop].station]
            bandwidth = min(bandwidth, station.bandwidth)
        record.earliest = whole_instant(now, demand / bandwidth)
        _join_ring(queues, slot)
    return slot


@inlined
def next_end(queues: Any) -> Any:
    """Return the instant at which the next message ends; the last instant if there is none."""
    due = compiled_fair.next_end(queues.fair)
    if queues.fair.counts[DONE] == 0:
        due = min(due, queues.counts[DUE])
    return due


@inlined
def earliest_end(queues: Any, slot: Any, now: Any) -> Any:
    """Return a lower bound of the end of a message: as if it were alone."""
    flow = queues.fair.messages[slot]
    end = np.int64(min(flow.until, FAR))
    if flow.path >= 0:
        end = queues.messages[slot].earliest
    return max(now, end)


@inlined
def pop_end(queues: Any, now: Any) -> Any:
    """Remove a message that ends now and return it; -1 if there is none left."""
    if queues.counts[DUE] <= now:
        _gather(queues, now)
    return compiled_fair.pop_end(queues.fair, now)


@inlined
def settle(queues: Any, now: Any) -> None:
    """Assign streams to the ports that limit them, after all begins and ends of the instant."""
    if queues.counts[DUE] <= now:
        _gather(queues, now)
    if queues.fair.counts[TOUCHED] > 0:
        compiled_fair.settle(queues.fair, now)
        _arrange(queues, now)


@inlined
def change_background(queues: Any, station: Any, weight: Any) -> None:
    """Do nothing: there is no background traffic with packets."""


@subroutine
def _gather(queues: Any, now: Any) -> None:
    """Collect all messages that end now."""
    for index in range(queues.ports.size):
        queue = queues.queues[queues.ports[index]]
        while queue.due <= now:
            _end(queues, queue, now)
    _find_due(queues)


@subroutine
def _arrange(queues: Any, now: Any) -> None:
    """Move streams to the ports that limit them, and update their rates."""
    fair = queues.fair
    for index in range(fair.counts[IN_USE]):
        number = fair.order[index]
        path = fair.paths[number]
        if queues.seen[number] != path.limit:
            queues.seen[number] = path.limit
            for place in range(path.of_flows, path.of_flows + path.flows):
                slot = fair.flows[place].item
                if queues.messages[slot].queue >= 0:
                    _join_ring(queues, slot)
    while queues.counts[COMING_COUNT] > 0:
        slot = queues.coming[0].item
        pop_item(queues.coming, 0, queues.counts[COMING_COUNT], LAST_INSTANT)
        queues.counts[COMING_COUNT] -= 1
        if queues.messages[slot].queue >= 0:
            _leave_ring(queues, slot, now)
        _enter(queues, fair.paths[fair.messages[slot].path].limit, slot, now)
    for index in range(fair.counts[IN_USE]):
        path = fair.paths[fair.order[index]]
        queue = queues.queues[path.limit]
        if queue.level != path.rate:
            _serve(queues.messages, queues.quantum, queue, now)
            queue.level = path.rate
            queue.is_changed = 1
    for index in range(queues.ports.size):
        queue = queues.queues[queues.ports[index]]
        if queue.is_changed:
            _serve(queues.messages, queues.quantum, queue, now)
            queue.is_changed = 0
            queue.rate = queue.level * queue.waiting
            _find_end(queues.messages, queues.quantum, queue)
    _find_due(queues)


@inlined
def _join_ring(queues: Any, slot: Any) -> None:
    """Enqueue a stream after all those requested before it."""
    count = queues.counts[COMING_COUNT]
    place_item(queues.coming, 0, count, queues.fair.messages[slot].number, slot)
    queues.counts[COMING_COUNT] += 1


@inlined
def _find_due(queues: Any) -> None:
    due = LAST_INSTANT
    for index in range(queues.ports.size):
        due = min(due, queues.queues[queues.ports[index]].due)
    queues.counts[DUE] = due


@subroutine
def _serve(messages: Any, quantum: Any, queue: Any, now: Any) -> None:
    """Distribute what a port has served by now, before which no message has ended."""
    amount = queue.ahead + queue.rate * (now - queue.since)
    queue.since = now
    queue.ahead = 0.0
    slack = queue.rate * FORGIVEN
    turns = 0
    while queue.waiting > 0 and amount > 0.0:
        if turns == queue.waiting:
            rounds = np.floor((amount + slack) / (queue.waiting * quantum))
            slot = queue.head
            for _ in range(queue.waiting):
                messages[slot].left -= rounds * quantum
                slot = messages[slot].after
            amount -= rounds * (queue.waiting * quantum)
        head = messages[queue.head]
        if amount < head.turn - slack or head.left <= head.turn + slack:
            part = min(amount, head.left)
            head.left -= part
            head.turn -= part
            return
        amount -= head.turn
        _end_turn(messages, quantum, queue)
        turns += 1


@subroutine
def _find_end(messages: Any, quantum: Any, queue: Any) -> None:
    """Find the message that ends first at a port if nothing changes, and when."""
    slack = queue.rate * FORGIVEN
    turns = 0.0
    slot = queue.head
    for _ in range(queue.waiting):
        turns += messages[slot].turn
        slot = messages[slot].after
    queue.until = np.inf
    queue.last = NOBODY
    before = 0.0
    for place in range(queue.waiting):
        message = messages[slot]
        end = before + message.left
        if message.left > message.turn + slack:
            over = message.left - message.turn
            rounds = np.ceil((over - slack) / quantum) - 1.0
            end = turns + (rounds * queue.waiting + place) * quantum
            end += over - rounds * quantum
        if end < queue.until:
            queue.until = end
            queue.last = slot
        before += message.turn
        slot = message.after
    queue.due = LAST_INSTANT
    if queue.last >= 0 and queue.rate > 0:
        queue.due = whole_instant(queue.since, (queue.until - queue.ahead) / queue.rate)


@inlined
def _end(queues: Any, queue: Any, now: Any) -> None:
    """Remove the message that ends now at a port."""
    messages, quantum, slot = queues.messages, queues.quantum, queue.last
    message = messages[slot]
    served = queue.ahead + queue.rate * (now - queue.since)
    queue.since = now
    queue.ahead = max(0.0, served - queue.until)
    slack = queue.rate * FORGIVEN
    if message.left > message.turn + slack:
        each = queue.head
        for _ in range(queue.waiting):
            messages[each].left -= messages[each].turn
            messages[each].turn = quantum
            each = messages[each].after
        rounds = np.ceil((message.left - slack) / quantum) - 1.0
        for _ in range(queue.waiting):
            messages[each].left -= rounds * quantum
            each = messages[each].after
    while queue.head != slot:
        _end_turn(messages, quantum, queue)
    _unlink(queues, queue, slot)
    queue.ended, queue.instant, queue.rest = message.route, now, message.turn - message.left
    queue.is_changed = 1
    _find_end(queues.messages, queues.quantum, queue)
    number = np.int64(queues.fair.messages[slot].path)
    path = queues.fair.paths[number]
    for place in range(path.of_flows, path.of_flows + path.flows):
        if queues.fair.flows[place].item == slot:
            queues.fair.flows[place].item = queues.fair.flows[path.of_flows].item
            queues.fair.flows[path.of_flows].item = slot
    take_flow(queues.fair, number, now)
    if message.earliest > now:
        count, request_number = queues.fair.counts[ALONE], queues.fair.messages[slot].number
        place_event(queues.fair.alone, count, message.earliest, request_number, slot)
        queues.fair.counts[ALONE] += 1
    else:
        end_message(queues.fair, slot, now)


@inlined
def _enter(queues: Any, station: Any, slot: Any, now: Any) -> None:
    """Enqueue a stream, or continue in the turn of its last message if that ended just now."""
    queue = queues.queues[station]
    _serve(queues.messages, queues.quantum, queue, now)
    queue.is_changed = 1
    messages = queues.messages
    message = messages[slot]
    is_new = message.queue < 0
    message.queue = station
    if queue.waiting == 0:
        message.before = message.after = slot
        queue.head = slot
    else:
        last = messages[queue.head].before
        message.before, message.after = last, queue.head
        messages[last].after = slot
        messages[queue.head].before = slot
    queue.waiting += 1
    goes_on = is_new and queue.instant == now and queue.ended == message.route
    if goes_on and queue.rest > queue.rate * FORGIVEN:
        message.turn = queue.rest
        queue.head = slot
        queue.ended = NOBODY


@inlined
def _leave_ring(queues: Any, slot: Any, now: Any) -> None:
    """Remove a stream that another port limits from now on."""
    queue = queues.queues[queues.messages[slot].queue]
    _serve(queues.messages, queues.quantum, queue, now)
    queue.is_changed = 1
    _unlink(queues, queue, slot)


@inlined
def _unlink(queues: Any, queue: Any, slot: Any) -> None:
    """Remove a message from the ring of those that wait at a port."""
    messages = queues.messages
    before, after = messages[slot].before, messages[slot].after
    messages[before].after = after
    messages[after].before = before
    if queue.head == slot:
        queue.head = after
    queue.waiting -= 1
    if queue.waiting == 0:
        queue.head = NOBODY


@inlined
def _end_turn(messages: Any, quantum: Any, queue: Any) -> None:
    """Begin the next stream's turn."""
    head = messages[queue.head]
    head.left -= head.turn
    head.turn = quantum
    queue.head = head.after
