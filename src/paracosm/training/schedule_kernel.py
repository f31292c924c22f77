"""The compiled loop of a schedule: workers around one server, and nothing computed.

It plays the events that the engine would, in the engine's order (time, then the sequence in which
they were scheduled), so the result is the same to the bit. `schedule.py` says when it may take
over.

An event is about one worker and is one of five kinds. The loop's scalars live in an array, so that
it can stop when a worker has no compute times left, and go on when it got some.
"""

# Numba infers the types of compiled functions; mypy is told the same once, at `_compiled`.
from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import numba
import numpy as np
from numpy.typing import NDArray

__all__ = ["HUNGRY", "NOBODY", "NOT_BEGUN", "initial_state", "run_events"]

# Kinds of events: a gradient is computed; has left the ports; is there; likewise an answer.
COMPUTED, UPLOADED, PUSHED, DOWNLOADED, ANSWERED = range(5)
UP, DOWN = 0, 1
NOBODY = NOT_BEGUN = -1

# What `state` holds: sizes and counters; who needs compute times; the rings' heads and tails.
EVENTS, TICK, VERSION, GATHERED, CONTRIBUTIONS, LAST_ANSWERS, HUNGRY = range(7)
BUSY, HEAD, TAIL = 7, 9, 11  # each of two: up, down
SCALARS = 13

Heap = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def _compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return cast(Callable[..., Any], numba.njit(cache=True)(function))


def initial_state(workers: int) -> tuple[NDArray[np.int64], Heap]:
    """Return scalars and event heap at time 0, when every worker begins to compute, in order."""
    state = np.zeros(SCALARS, np.int64)
    state[HUNGRY] = NOBODY
    state[EVENTS] = state[TICK] = workers
    room = 2 * workers + 2  # a worker is in one place, and each port has a transfer in flight
    times, ticks = np.zeros(room), np.arange(room)
    return state, (times, ticks, np.full(room, ANSWERED), np.arange(room))


@_compiled
def run_events(
    state: Any,
    times: Any,
    ticks: Any,
    kinds: Any,
    who: Any,
    occupancy: Any,
    propagation: Any,
    durations: Any,
    drawn: Any,
    computed: Any,
    until: Any,
    read: Any,
    busy: Any,
    began: Any,
    queues: Any,
    pushes: Any,
    answer_all: Any,
    updates: Any,
    out_time: Any,
    out_worker: Any,
    out_age: Any,
) -> Any:
    """Play events until the answers to the last update have arrived; return the time of that.

    When a worker has no compute times left, `state[HUNGRY]` says who: fill its row of `durations`,
    set `drawn` to 0, and call again.

    Args:
        state: the loop's scalars, shape (SCALARS,).
        times, ticks, kinds, who: the event heap.
        occupancy, propagation: seconds of worker w's message, shape (2, W): up, down.
        durations: the next compute times of each worker, shape (W, B).
        drawn: how many of them each worker has used, shape (W,).
        computed, until: compute seconds of each worker; until when it computes, shape (W,).
        read: the version in the newest answer to each worker, shape (W,).
        busy: seconds of completed transfers, shape (2, W): up, down.
        began: when a transfer got its ports, -1 without one, shape (2, W).
        queues: rings of workers that wait for the server's ports, shape (2, W).
        pushes: how many make an update.
        answer_all: whether an update answers all, or every push at once its own worker.
        updates: how many there are to be.
        out_time, out_worker, out_age: of every contribution, shape (updates * pushes,).
    """
    heap = (times, ticks, kinds, who)
    now = 0.0
    if state[HUNGRY] != NOBODY:
        worker = state[HUNGRY]
        state[HUNGRY] = NOBODY
        # `until` is when it ran out: nothing has happened since.
        _compute(state, heap, worker, until[worker], durations, drawn, computed, until)
    while state[EVENTS] > 0:
        now, kind, worker = times[0], kinds[0], who[0]
        _pop(state, heap)
        if kind == COMPUTED:
            _request(state, heap, UP, worker, now, occupancy, began, queues)
            continue
        if kind in (UPLOADED, DOWNLOADED):
            way = UP if kind == UPLOADED else DOWN
            _release(state, heap, way, worker, now, occupancy, busy, began, queues)
            kind = PUSHED if way == UP else ANSWERED
            if propagation[way, worker] > 0.0:
                _push(state, heap, now + propagation[way, worker], kind, worker)
                continue
        if kind == PUSHED:
            if state[VERSION] == updates:
                continue  # the server has made its last update
            newest = state[CONTRIBUTIONS]
            state[CONTRIBUTIONS] += 1
            out_worker[newest] = worker
            out_age[newest] = read[worker]
            state[GATHERED] += 1
            complete = state[GATHERED] == pushes
            if complete:
                for index in range(newest + 1 - pushes, newest + 1):
                    out_time[index] = now
                    out_age[index] = state[VERSION] - out_age[index]
                state[GATHERED] = 0
                state[VERSION] += 1
            first, end = (0, read.size if complete else 0) if answer_all else (worker, worker + 1)
            for target in range(first, end):
                read[target] = state[VERSION]
                if state[VERSION] == updates:
                    state[LAST_ANSWERS] += 1
                _request(state, heap, DOWN, target, now, occupancy, began, queues)
        else:
            if read[worker] == updates:
                state[LAST_ANSWERS] -= 1
                if state[LAST_ANSWERS] == 0:
                    break
            if drawn[worker] == durations.shape[1]:
                until[worker] = now
                state[HUNGRY] = worker
                break
            _compute(state, heap, worker, now, durations, drawn, computed, until)
    return now


@_compiled
def _compute(
    state: Any,
    heap: Any,
    worker: Any,
    now: Any,
    durations: Any,
    drawn: Any,
    computed: Any,
    until: Any,
) -> None:
    """Let a worker begin its next gradient."""
    duration = durations[worker, drawn[worker]]
    drawn[worker] += 1
    computed[worker] += duration
    until[worker] = now + duration
    _push(state, heap, now + duration, COMPUTED, worker)


@_compiled
def _request(
    state: Any, heap: Any, way: Any, worker: Any, now: Any, occupancy: Any, began: Any, queues: Any
) -> None:
    """Start a transfer through the server's port, or let it wait there, first come first served."""
    if state[BUSY + way]:
        state[TICK] += 1  # a request takes a number, as it does in the engine
        queues[way, state[TAIL + way] % queues.shape[1]] = worker
        state[TAIL + way] += 1
    else:
        state[BUSY + way] = 1
        began[way, worker] = now
        kind = UPLOADED if way == UP else DOWNLOADED
        _push(state, heap, now + occupancy[way, worker], kind, worker)


@_compiled
def _release(
    state: Any,
    heap: Any,
    way: Any,
    worker: Any,
    now: Any,
    occupancy: Any,
    busy: Any,
    began: Any,
    queues: Any,
) -> None:
    """End a transfer and start the one that waits longest."""
    busy[way, worker] += occupancy[way, worker]
    began[way, worker] = NOT_BEGUN
    state[BUSY + way] = 0
    if state[HEAD + way] < state[TAIL + way]:
        following = queues[way, state[HEAD + way] % queues.shape[1]]
        state[HEAD + way] += 1
        _request(state, heap, way, following, now, occupancy, began, queues)


@_compiled
def _push(state: Any, heap: Any, time: Any, kind: Any, worker: Any) -> None:
    """Schedule an event: a binary heap by (time, tick)."""
    times, ticks, kinds, who = heap
    tick, at = state[TICK], state[EVENTS]
    state[TICK] += 1
    state[EVENTS] += 1
    while at > 0:
        parent = (at - 1) >> 1
        # The new event has the highest tick, so it goes behind all of the same time.
        if times[parent] <= time:
            break
        times[at], ticks[at] = times[parent], ticks[parent]
        kinds[at], who[at] = kinds[parent], who[parent]
        at = parent
    times[at], ticks[at], kinds[at], who[at] = time, tick, kind, worker


@_compiled
def _pop(state: Any, heap: Any) -> None:
    """Remove the first event, which the caller has read at index 0."""
    times, ticks, kinds, who = heap
    state[EVENTS] -= 1
    size = state[EVENTS]
    time, tick, kind, worker = times[size], ticks[size], kinds[size], who[size]
    at = 0
    while True:
        child = 2 * at + 1
        if child >= size:
            break
        right = child + 1
        if right < size and (
            times[right] < times[child]
            or (times[right] == times[child] and ticks[right] < ticks[child])
        ):
            child = right
        if time < times[child] or (time == times[child] and tick < ticks[child]):
            break
        times[at], ticks[at] = times[child], ticks[child]
        kinds[at], who[at] = kinds[child], who[child]
        at = child
    times[at], ticks[at], kinds[at], who[at] = time, tick, kind, worker
