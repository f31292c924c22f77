"""The compiled loop of schedules: workers compute, push to servers, and pull, without values.

A worker's step: it computes, pushes a gradient of every tensor to the tensor's server, and
continues when all of them have answered. The rule (`schedule.Rule`) defines what a server does with
gradients. At an instant, transfers end first, in the order of requests; then scheduled events
happen, in the order of scheduling.
"""

from typing import Any, NamedTuple

import numpy as np

from paracosm.arrays import Ints
from paracosm.compiled import columns, compiled_whole, inlined
from paracosm.network.clock import LAST_INSTANT
from paracosm.network.compiled import Traffic, next_end, pop_end, request, settle
from paracosm.network.heaps import NOBODY, later, place_event, pop_event

ENDED, DURATIONS, ROOM, STUCK = range(4)
"""Why the loop came back: all updates are made and the last answers are there; `counts[HUNGRY]` has
no durations left; there is little room for further rows; nothing is left that could happen."""

EACH, ALL, GATHERED = range(3)
"""Whom a server answers: every push at once; all workers after an update; those whose gradients
went into it."""

COMPUTED, ARRIVED, ANSWERED = range(3)
"""Events: a gradient is computed; a push has arrived; an answer has arrived."""

PULL, PUSH = range(2)  # directions, as in `system`

EVENTS, TICK, HUNGRY, FINISHED, NOW, READS, UPDATES, STEPS, DROPPED = range(9)
"""In `Plan.counts`: how many stand in the heap, were scheduled so far; who has no durations left;
servers that have finished; the instant; rows written; gradients dropped."""

EVENT = np.dtype([("key", "i8"), ("item", "i8"), ("op", "i8")])
"""When, the how manieth, and (kind * W + worker) * S + tensor."""

WORKER = np.dtype(
    columns("i8", "step", "missing", "begin", "drawn", "until", "computed", "accepted")
)
"""A worker: its step, answers that it waits for, when the step began, durations used of the row,
until when it computes, picoseconds computed, whether a gradient of the step was accepted."""

SERVER = np.dtype(
    columns("i8", "version", "gathered", "last_answers", "slowest", "held", "is_finished")
)
"""A server: updates made, gradients gathered for the next, answers with the last version that are
on their way, the slowest worker's clock, how many workers are held, whether it has finished."""

PAIR = np.dtype([("version", "i8"), ("clock", "i8")])
"""A worker and a server: the version in the newest answer, gradients applied."""

PUSHED = np.dtype([("worker", "i8"), ("step", "i8"), ("version", "i8")])
"""A gradient that waits for its update: whose, of which step, of which version."""

STATION = np.dtype([("busy", "i8"), ("flows", "i8"), ("since", "i8")])
"""A port: picoseconds of transfers that ended; with fair sharing those for which some were under
way, how many are, and since when there are any."""


class Plan(NamedTuple):
    """Everything that the loop reads and writes, for W workers and S tensors."""

    # what is asked for
    pushes: int
    answers: int
    drops_late: bool
    slack: int
    updates: int
    flows: bool
    demand: Any
    propagation: Ints
    ports: Ints
    durations: Ints
    # the state
    traffic: Traffic
    counts: Ints
    heap: Any
    workers: Any
    servers: Any
    pairs: Any
    pushed: Any
    held: Ints
    standing: Ints
    stations: Any
    # the result
    read_rows: Any
    update_rows: Any
    step_rows: Any


@compiled_whole
def play_schedule(plan: Any) -> Any:
    """Play until all servers have made their last update; return why the loop came back."""
    counts, traffic, heap = plan.counts, plan.traffic, plan.heap
    now = counts[NOW]
    workers, tensors = plan.workers.size, plan.servers.size
    if counts[HUNGRY] != NOBODY:
        worker = counts[HUNGRY]
        counts[HUNGRY] = NOBODY
        _compute(plan, worker, now)
    while True:
        if plan.read_rows.size - counts[READS] < workers * tensors:
            return ROOM
        message = pop_end(traffic, now)
        if message >= 0:
            _end_transfer(plan, message, now)
        elif counts[EVENTS] > 0 and heap[0].key == now:
            what = heap[0].op
            pop_event(heap, counts[EVENTS])
            counts[EVENTS] -= 1
            tensor = what % tensors
            worker = (what // tensors) % workers
            kind = what // (tensors * workers)
            if kind == COMPUTED:
                for other in range(tensors):
                    _send(plan, PUSH, worker, other, now)
            elif kind == ARRIVED:
                _push(plan, worker, tensor, now)
            else:
                _answered(plan, worker, tensor, now)
        else:
            settle(traffic, now)
            end = next_end(traffic)
            if counts[EVENTS] > 0:
                end = min(end, heap[0].key)
            if end == LAST_INSTANT:
                return STUCK
            now = counts[NOW] = end
            continue
        if counts[FINISHED] == tensors:
            return ENDED
        if counts[HUNGRY] != NOBODY:
            return DURATIONS


@inlined
def _compute(plan: Any, worker: Any, now: Any) -> None:
    """Begin a worker's next step, if there is a duration for it."""
    one = plan.workers[worker]
    if one.drawn == plan.durations.shape[1]:
        plan.counts[HUNGRY] = worker
        return
    duration = plan.durations[worker, one.drawn]
    one.drawn += 1
    one.begin = now
    one.missing = plan.servers.size
    one.accepted = 0
    one.until = later(now, duration)
    one.computed += one.until - now
    _schedule(plan, one.until, (COMPUTED * plan.workers.size + worker) * plan.servers.size)


@inlined
def _send(plan: Any, way: Any, worker: Any, tensor: Any, now: Any) -> None:
    """Send a message between a worker and the server of a tensor."""
    route = (way * plan.workers.size + worker) * plan.servers.size + tensor
    request(plan.traffic, route, route, plan.demand[route], now)
    if plan.flows:
        for end in range(2):
            port = plan.ports[route, end]
            if plan.stations[port].flows == 0:
                plan.stations[port].since = now
            plan.stations[port].flows += 1


@inlined
def _end_transfer(plan: Any, route: Any, now: Any) -> None:
    """Remove a message from the network; it arrives at once, or when it has propagated."""
    for end in range(2):
        station = plan.stations[plan.ports[route, end]]
        if plan.flows:
            station.flows -= 1
            if station.flows == 0:
                station.busy += now - station.since
        else:
            station.busy += np.int64(plan.demand[route])
    tensors, workers = plan.servers.size, plan.workers.size
    is_push = route >= workers * tensors
    place = route - workers * tensors if is_push else route
    if plan.propagation[route] > 0:
        kind = ARRIVED if is_push else ANSWERED
        after = later(now, plan.propagation[route])
        _schedule(plan, after, kind * workers * tensors + place)
    elif is_push:
        _push(plan, place // tensors, place % tensors, now)
    else:
        _answered(plan, place // tensors, place % tensors, now)


@inlined
def _push(plan: Any, worker: Any, tensor: Any, now: Any) -> None:
    """Process a gradient at a server: gather it, update if there are enough, answer."""
    server = plan.servers[tensor]
    if server.version == plan.updates:
        return  # it has made its last update
    one = plan.workers[worker]
    pair = plan.pairs[worker * plan.servers.size + tensor]
    if plan.drops_late and pair.version < server.version:
        plan.counts[DROPPED] += 1
        _answer(plan, worker, tensor, now)
        return
    one.accepted = 1
    first = tensor * plan.pushes
    mine = plan.pushed[first + server.gathered]
    mine.worker, mine.step, mine.version = worker, one.step, pair.version
    server.gathered += 1
    gathered = server.gathered
    if gathered == plan.pushes:
        server.gathered = 0
        server.version += 1
        for index in range(first, first + gathered):
            _record_update(plan, plan.pushed[index], tensor, server.version, now)
    if plan.slack != NOBODY:
        _answer_within_slack(plan, worker, tensor, now)
    elif plan.answers == EACH:
        _answer(plan, worker, tensor, now)
    elif gathered == plan.pushes:
        if plan.answers == ALL:
            for other in range(plan.workers.size):
                _answer(plan, np.int64(other), tensor, now)
        else:
            for index in range(first, first + gathered):
                _answer(plan, plan.pushed[index].worker, tensor, now)
    if server.version == plan.updates and server.last_answers == 0:
        _finish(plan, server)


@inlined
def _answer_within_slack(plan: Any, worker: Any, tensor: Any, now: Any) -> None:
    """Answer a worker that is not too far ahead of the slowest, and those that were."""
    server = plan.servers[tensor]
    pair = plan.pairs[worker * plan.servers.size + tensor]
    clocks = plan.standing.shape[1]
    pair.clock += 1
    plan.standing[tensor, pair.clock % clocks] += 1
    plan.standing[tensor, (pair.clock - 1) % clocks] -= 1
    if pair.clock - server.slowest <= plan.slack:
        _answer(plan, worker, tensor, now)
    else:
        plan.held[tensor, server.held] = worker
        server.held += 1
    while plan.standing[tensor, server.slowest % clocks] == 0:
        server.slowest += 1
        for index in range(server.held):
            _answer(plan, plan.held[tensor, index], tensor, now)
        server.held = 0


@inlined
def _answer(plan: Any, worker: Any, tensor: Any, now: Any) -> None:
    """Send a worker the tensor as it is now: what it reads for its next step."""
    server = plan.servers[tensor]
    plan.pairs[worker * plan.servers.size + tensor].version = server.version
    row = plan.read_rows[plan.counts[READS]]
    row.time, row.worker, row.step = now, worker, plan.workers[worker].step + 1
    row.tensor, row.version = tensor, server.version
    plan.counts[READS] += 1
    if server.version == plan.updates:
        server.last_answers += 1
    _send(plan, PULL, worker, tensor, now)


@inlined
def _answered(plan: Any, worker: Any, tensor: Any, now: Any) -> None:
    """Deliver a tensor to a worker, whose next step begins with the last one."""
    server = plan.servers[tensor]
    one = plan.workers[worker]
    one.missing -= 1
    if plan.pairs[worker * plan.servers.size + tensor].version == plan.updates:
        server.last_answers -= 1
        if server.last_answers == 0:
            _finish(plan, server)
    if one.missing == 0:
        row = plan.step_rows[plan.counts[STEPS]]
        row.worker, row.step, row.begin, row.end = worker, one.step, one.begin, now
        row.accepted = one.accepted
        plan.counts[STEPS] += 1
        one.step += 1
        if plan.counts[FINISHED] < plan.servers.size:
            _compute(plan, worker, now)


@inlined
def _finish(plan: Any, server: Any) -> None:
    if not server.is_finished:
        server.is_finished = 1
        plan.counts[FINISHED] += 1


@inlined
def _record_update(plan: Any, pushed: Any, tensor: Any, version: Any, now: Any) -> None:
    row = plan.update_rows[plan.counts[UPDATES]]
    row.time, row.worker, row.step, row.tensor = now, pushed.worker, pushed.step, tensor
    row.version, row.read = version, pushed.version
    plan.counts[UPDATES] += 1


@inlined
def _schedule(plan: Any, time: Any, what: Any) -> None:
    place_event(plan.heap, plan.counts[EVENTS], time, plan.counts[TICK], what)
    plan.counts[EVENTS] += 1
    plan.counts[TICK] += 1
