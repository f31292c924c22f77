"""What the threads of a run share besides vectors: flags, locks, a starting line.

Flags live in one int64 array, each in a cache line of its own, so that a thread that spins on one
does not slow down the others.
"""

from __future__ import annotations

from typing import Any

from paracosm.compiled import compiled
from paracosm.relaxation.threads.atomics import (
    add,
    compare_and_swap,
    load,
    now,
    pause,
    step_aside,
    store,
)

__all__ = [
    "BEGAN",
    "CONTROL_WORDS",
    "DETECTED",
    "LINE",
    "LOCK",
    "STATUS",
    "STOP",
    "acquire",
    "begin_together",
    "release",
]

LINE = 8  # int64 words of a cache line
# Places in the array: x's lock; whether to stop; the starting line; when the run began, and when
# its convergence was detected (nanoseconds); how it ended.
LOCK, STOP, ARRIVED, GO, BEGAN, DETECTED, STATUS = range(0, 7 * LINE, LINE)
CONTROL_WORDS = 7 * LINE

_SPINS = 64  # between two attempts to give the core away


@compiled
def acquire(locks: Any, at: Any) -> None:
    """Take the lock `locks[at]`: spin while it is held, and let others run now and then."""
    spins = 0
    while not compare_and_swap(locks, at, 0, 1):
        while load(locks, at) != 0:
            spins += 1
            if spins % _SPINS == 0:
                step_aside()
            else:
                pause()


@compiled
def release(locks: Any, at: Any) -> None:
    """Give the lock `locks[at]` back."""
    store(locks, at, 0)


@compiled
def begin_together(control: Any, threads: Any) -> None:
    """Wait until all `threads` are here (or the run is stopped); the last one notes the time."""
    if add(control, ARRIVED, 1) + 1 == threads:
        store(control, BEGAN, now())
        store(control, GO, 1)
    while load(control, GO) == 0 and load(control, STOP) == 0:
        step_aside()
