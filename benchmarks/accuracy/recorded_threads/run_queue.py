"""Measured phases on modelled cores: how long a parallel run takes, threads waiting for cores.

Where every thread has a core, threads draw their durations independently. Where there are more
threads than cores, that is wrong: a thread that waits for a core is not slow now and then at
random, it stands still for whole time slices while others relax thousands of times. Here a run
queue decides who is on a core: round robin, one queue for all cores, given time slices, and foreign
threads that want to run as well.

What it does not model: threads that give their slice away while they spin on a lock, a queue for
each core, caches that are cold after a switch.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paracosm.compiled import compiled
from paracosm.errors import InputError
from paracosm.relaxation.problems import Problem
from paracosm.relaxation.threads.measurement import Phases
from paracosm.relaxation.threads.run import block_pointer
from paracosm.rng import generator
from recorded_threads.replay import CHECK, CHECKED, COMMIT, READ, Player

IDLE = -1
_COPY, _COMPUTE, _UPDATE = range(3)
_EVENTS = 1 << 16  # scheduled at a time


@dataclass(frozen=True)
class RunQueue:
    """The cores that the threads run on.

    Args:
        cores: how many there are.
        slices: lengths of a time slice in seconds, each equally likely.
        load: foreign threads that always want to run.

    Raises:
        InputError: no cores, a slice that is not positive, a negative load.
    """

    cores: int
    slices: Sequence[float] = (0.003,)
    load: int = 0

    def __post_init__(self) -> None:
        if self.cores < 1:
            raise InputError(f"cores: give 1 or more, not {self.cores}")
        if not self.slices or min(self.slices) <= 0:
            raise InputError("slices: give one time slice or more, in seconds, all above 0")
        if self.load < 0:
            raise InputError(f"load: give the number of foreign threads, not {self.load}")


@dataclass(frozen=True)
class SimulatedRun:
    """What a simulated run of threads did.

    `time` is when the detecting check was done, in seconds; `iterations` those of every relaxation
    thread; `residual` is ||b - Ax|| then; `status` "converged", "diverged" or "stopped".
    """

    status: str
    time: float
    checks: int
    iterations: tuple[int, ...]
    residual: float


def simulate_threads(
    problem: Problem,
    phases: Phases,
    threshold: float,
    *,
    queue: RunQueue | None = None,
    seed: int = 0,
    longest: float = 600.0,
) -> SimulatedRun:
    """Simulate threads that relax equal blocks of `problem`, and one that checks the residual.

    Args:
        phases: measured phases of each relaxation thread and of the residual thread; each
            iteration draws one of its thread's, copy, compute and update together.
        threshold: the residual norm to reach.
        queue: the cores; None gives every thread its own.
        seed: of the draws, and of who gets a core first.
        longest: virtual seconds after which the run is stopped.

    Raises:
        InputError: there are no phases of the residual thread.
    """
    if not len(phases.residual):
        raise InputError("the simulation needs phases of a residual thread: measure race or safe")
    workers = len(phases.workers)
    threads = workers + 1 + (queue.load if queue else 0)
    cores = min(queue.cores, threads) if queue else threads
    check = np.column_stack([phases.residual, np.zeros(len(phases.residual))])
    segments = [*phases.workers, check]
    samples = np.ascontiguousarray(np.concatenate(segments))
    pointer = np.concatenate([[0], np.cumsum([len(segment) for segment in segments])]).astype(
        np.int64
    )
    slices = np.array(queue.slices if queue else (1.0,), np.float64)
    order = generator(seed).permutation(threads).astype(np.int64)
    state = (
        np.zeros(threads, np.int64), np.zeros(threads, np.int64), np.zeros(threads),
        np.zeros(cores, np.int64), np.zeros(cores), np.zeros(cores), order,
    )  # fmt: skip
    place = (np.zeros(1, np.int64), np.zeros(cores, np.int64))
    initial_cores(seed, workers, pointer, samples, slices, *state)
    kinds, who = np.empty(_EVENTS, np.int8), np.empty(_EVENTS, np.int32)
    times = np.empty(_EVENTS)
    iterations = np.zeros(workers, np.int64)
    player = Player(problem, block_pointer(problem.n, workers), threshold)
    end, now = _EVENTS, 0.0
    while end == _EVENTS and now <= longest:
        schedule_events(seed, workers, pointer, samples, slices, *state, *place, kinds, who, times)
        end = player.play(kinds, who, np.empty(0))
        made = who[:end][kinds[:end] == COMMIT]
        iterations += np.bincount(made, minlength=workers)
        now = float(times[min(end, _EVENTS - 1)])
    status = "stopped" if end == _EVENTS else "converged"
    if not np.isfinite(player.residual):
        status = "diverged"
    return SimulatedRun(status, now, player.checks, tuple(iterations.tolist()), player.residual)


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
