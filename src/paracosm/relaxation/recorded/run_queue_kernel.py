"""The compiled run queue: threads on cores, round robin, and what they read and commit when.

Every thread always wants to run. A core gives its thread a time slice; when that is used up and
another thread waits, the first of the queue gets the core and the old one goes to the queue's end.
Threads up to `workers` relax: copy, read, compute, update, commit. The next one checks the
residual: copy, read, compute the norm. All others are foreign: they only take time.

The i-th durations of a thread, and the i-th slice of a core, depend on the seed, on whose they are
and on i: on nothing else that happens.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paracosm.compiled import compiled
from paracosm.relaxation.recorded.replay_kernel import CHECK, CHECKED, COMMIT, READ

__all__ = ["IDLE", "initial_cores", "schedule_events"]

IDLE = -1
_COPY, _COMPUTE, _UPDATE = range(3)


@compiled
def initial_cores(
    seed: Any,
    workers: Any,
    pointer: Any,
    samples: Any,
    slices: Any,
    phase: Any,
    drawn: Any,
    left: Any,
    running: Any,
    ends: Any,
    slice_ends: Any,
    queue: Any,
) -> None:
    """Put threads on cores at time 0 in the order of `queue`; the arrays are `schedule_events`'."""
    threads = queue.size
    for thread in range(threads):
        left[thread] = np.inf
        if thread <= workers:
            left[thread] = samples[_pick(seed, thread, 0, pointer), _COPY]
    order = queue.copy()
    for core in range(running.size):
        running[core], ends[core], slice_ends[core] = IDLE, np.inf, np.inf
        if core < threads:
            thread = order[core]
            running[core], ends[core] = thread, left[thread]
            if threads > running.size:
                slice_ends[core] = slices[_draw(seed, threads + core, 0) % slices.size]
    for waiting in range(threads - running.size):
        queue[waiting] = order[running.size + waiting]


@compiled
def schedule_events(
    seed: Any,
    workers: Any,
    pointer: Any,
    samples: Any,
    slices: Any,
    phase: Any,
    drawn: Any,
    left: Any,
    running: Any,
    ends: Any,
    slice_ends: Any,
    queue: Any,
    head: Any,
    taken: Any,
    kinds: Any,
    who: Any,
    times: Any,
) -> None:
    """Fill `kinds`, `who`, `times` with the next reads, commits and checks, in order of time.

    Args:
        pointer: thread k draws from the rows `pointer[k]` to `pointer[k + 1]` of `samples`.
        samples: seconds of copy, compute, update, drawn together, shape (samples, 3).
        slices: lengths of time slices to draw from, seconds.
        phase, drawn, left: of each thread: its phase, the iterations begun, the seconds of its
            phase when it lost its core.
        running, ends, slice_ends: of each core: its thread, when that thread's phase ends and its
            slice.
        queue, head: the ring of waiting threads, and where it begins, shape (1,).
        taken: slices that each core has drawn.
    """
    threads, cores = queue.size, running.size
    waiting = max(threads - cores, 0)
    event = 0
    while event < kinds.size:
        core, now = 0, np.inf
        for other in range(cores):
            end = min(ends[other], slice_ends[other])
            if end < now:
                core, now = other, end
        thread = running[core]
        if ends[core] > slice_ends[core]:
            left[thread] = ends[core] - now
            following = queue[head[0]]
            # The queue is always full: who leaves it makes room for who comes.
            queue[head[0]] = thread
            head[0] = (head[0] + 1) % waiting
            running[core], ends[core] = following, now + left[following]
            taken[core] += 1
            slice_ends[core] = now + slices[_draw(seed, threads + core, taken[core]) % slices.size]
            continue
        if phase[thread] == _COPY:
            kinds[event], who[event], times[event] = READ, thread, now
            if thread == workers:
                kinds[event] = CHECK
            event += 1
            phase[thread] = _COMPUTE
        elif phase[thread] == _COMPUTE and thread != workers:
            phase[thread] = _UPDATE
        else:
            kinds[event], who[event], times[event] = COMMIT, thread, now
            if thread == workers:
                kinds[event] = CHECKED
            event += 1
            phase[thread] = _COPY
            drawn[thread] += 1
        row = _pick(seed, thread, drawn[thread], pointer)
        ends[core] = now + samples[row, phase[thread]]


@compiled
def _pick(seed: Any, thread: Any, draw: Any, pointer: Any) -> Any:
    """Return the row of `samples` for a thread's iteration number `draw`."""
    count = pointer[thread + 1] - pointer[thread]
    return pointer[thread] + _draw(seed, thread, draw) % count


@compiled
def _draw(seed: Any, stream: Any, position: Any) -> Any:
    """Return 63 random bits: number `position` of a stream.

    Source: the mixing function of SplitMix64 (Steele, Lea, Flood 2014, figure 15), applied twice.
    """
    word = np.uint64(seed) + np.uint64(stream) * np.uint64(0xD1342543DE82EF95)
    for _ in range(2):
        word += np.uint64(position) * np.uint64(0x9E3779B97F4A7C15)
        word = (word ^ (word >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        word = (word ^ (word >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        word = word ^ (word >> np.uint64(31))
    return np.int64(word >> np.uint64(1))
