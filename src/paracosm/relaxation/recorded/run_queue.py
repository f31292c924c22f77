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
from typing import TYPE_CHECKING

import numpy as np

from paracosm.errors import InputError
from paracosm.relaxation.recorded.player import Player
from paracosm.relaxation.threads.measurement import Phases

if TYPE_CHECKING:
    from paracosm.relaxation.problems.problem import Problem

__all__ = ["RunQueue", "SimulatedRun", "simulate_threads"]

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
    from paracosm.relaxation.recorded.replay_kernel import COMMIT
    from paracosm.relaxation.recorded.run_queue_kernel import initial_cores, schedule_events
    from paracosm.relaxation.threads.run import block_pointer

    if not len(phases.residual):
        raise InputError("the simulation needs phases of a residual thread: measure race or safe")
    workers = len(phases.workers)
    threads = workers + 1 + (queue.load if queue else 0)
    cores = min(queue.cores, threads) if queue else threads
    check = np.column_stack([phases.residual, np.zeros(len(phases.residual))])
    pieces = [*phases.workers, check]
    samples = np.ascontiguousarray(np.concatenate(pieces))
    pointer = np.concatenate([[0], np.cumsum([len(piece) for piece in pieces])]).astype(np.int64)
    slices = np.array(queue.slices if queue else (1.0,), np.float64)
    order = np.random.default_rng(seed).permutation(threads).astype(np.int64)
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
