"""The paper's implementation 1, the general Jacobi solver (Algorithm 3): SAFE and RACE.

A relaxation thread copies all of x, relaxes its rows and updates them, over and over; one more
thread copies x and computes the residual norm. SAFE holds one lock while it copies and while it
updates, RACE none.

The clock is read three times an iteration: the end of an update is the start of the next
iteration, so no time goes unaccounted. Under SAFE the clock is read before the lock is given back:
the order of the stamps is the order in which the threads had x.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paracosm.compiled import compiled
from paracosm.relaxation.threads.atomics import compare_and_swap, load, now, store
from paracosm.relaxation.threads.control import (
    BEGAN,
    DETECTED,
    LOCK,
    STATUS,
    STOP,
    acquire,
    begin_together,
    release,
)

__all__ = ["CONVERGED", "DIVERGED", "LIMIT", "relax_rows", "watch_residual"]

CONVERGED, DIVERGED, LIMIT = 1, 2, 3


@compiled
def relax_rows(
    first: Any,
    last: Any,
    pointer: Any,
    columns: Any,
    values: Any,
    diagonal: Any,
    b: Any,
    x: Any,
    control: Any,
    threads: Any,
    locked: Any,
    timed: Any,
    most: Any,
    stamps: Any,
    sums: Any,
) -> int:
    """Relax the rows from `first` to `last` until told to stop; return the iterations made.

    Args:
        pointer, columns, values, diagonal, b: the system, A in CSR.
        x: the shared iterate.
        control: the shared flags.
        threads: how many begin together.
        locked: whether to hold the lock while x is copied and updated.
        timed: whether to read the clock.
        most: iterations after which the thread stops the run.
        stamps: start, copied, computed, updated of each iteration as far as it has rows, in
            nanoseconds, shape (capacity, 4).
        sums: seconds and squared seconds of copy, compute, update and the whole, shape (2, 4),
            over all iterations.
    """
    mine = np.empty(x.size)
    fresh = np.empty(last - first)
    iterations = 0
    copied = computed = updated = 0
    begin_together(control, threads)
    start = load(control, BEGAN)
    while load(control, STOP) == 0:
        if locked:
            acquire(control, LOCK)
        for i in range(x.size):
            mine[i] = x[i]
        if timed:
            copied = now()
        if locked:
            release(control, LOCK)
        for i in range(first, last):
            rest = b[i]
            for k in range(pointer[i], pointer[i + 1]):
                rest -= values[k] * mine[columns[k]]
            fresh[i - first] = mine[i] + rest / diagonal[i]
        if timed:
            computed = now()
        if locked:
            acquire(control, LOCK)
        for i in range(first, last):
            x[i] = fresh[i - first]
        if timed:
            updated = now()
        if locked:
            release(control, LOCK)
        if timed:
            note_iteration(iterations, start, copied, computed, updated, stamps, sums)
            start = updated
        iterations += 1
        if iterations == most:
            stop(control, LIMIT)
    return iterations


@compiled
def watch_residual(
    threshold: Any,
    lingering: Any,
    pointer: Any,
    columns: Any,
    values: Any,
    b: Any,
    x: Any,
    control: Any,
    threads: Any,
    locked: Any,
    timed: Any,
    stamps: Any,
    norms: Any,
    detecting: Any,
) -> int:
    """Compute ||b - Ax|| until it is at most `threshold`; return how often it was computed.

    Args:
        lingering: how many checks to make after the detecting one, before all are told to stop.
        stamps: start, copied, checked of each check, shape (capacity, 3).
        norms: the residual norm that each check found, shape (capacity,).
        detecting: set to the index of the check that detected convergence, shape (1,).
        (The others are those of `relax_rows`.)
    """
    mine = np.empty(x.size)
    checks = 0
    copied = 0
    begin_together(control, threads)
    start = load(control, BEGAN)
    while load(control, STOP) == 0:
        if locked:
            acquire(control, LOCK)
        for i in range(x.size):
            mine[i] = x[i]
        if timed:
            copied = now()
        if locked:
            release(control, LOCK)
        square = 0.0
        for i in range(b.size):
            rest = b[i]
            for k in range(pointer[i], pointer[i + 1]):
                rest -= values[k] * mine[columns[k]]
            square += rest * rest
        norm = np.sqrt(square)
        if norm <= threshold and detecting[0] < 0:
            detecting[0] = checks
            store(control, DETECTED, now())
            compare_and_swap(control, STATUS, 0, CONVERGED)
        if timed:
            checked = now()
            if checks < stamps.shape[0]:
                stamps[checks, 0], stamps[checks, 1], stamps[checks, 2] = start, copied, checked
                norms[checks] = norm
            start = checked
        checks += 1
        if detecting[0] >= 0 and checks > detecting[0] + lingering:
            store(control, STOP, 1)
        elif not norm < np.inf:
            stop(control, DIVERGED)
    return checks


@compiled
def stop(control: Any, status: Any) -> None:
    """Tell all threads to stop, for the reason `status` unless there is one already."""
    compare_and_swap(control, STATUS, 0, status)
    store(control, STOP, 1)


@compiled
def note_iteration(
    iteration: Any, start: Any, copied: Any, computed: Any, updated: Any, stamps: Any, sums: Any
) -> None:
    """Record an iteration while there is room, and count it in the sums in any case."""
    if iteration < stamps.shape[0]:
        stamps[iteration, 0], stamps[iteration, 1] = start, copied
        stamps[iteration, 2], stamps[iteration, 3] = computed, updated
    spans = (copied - start, computed - copied, updated - computed, updated - start)
    for phase in range(4):
        seconds = 1e-9 * spans[phase]
        sums[0, phase] += seconds
        sums[1, phase] += seconds * seconds
