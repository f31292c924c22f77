"""The paper's implementation 1, the general Jacobi solver (Algorithm 3): SAFE and RACE.

A relaxation thread copies all of x, relaxes its rows and updates them, over and over; one more
thread copies x and computes the residual norm. SAFE holds one lock while it copies and while it
updates, RACE none.

The clock is read three times an iteration: the end of an update is the start of the next
iteration, so no time goes unaccounted. Under SAFE the clock is read before the lock is given back:
the order of the stamps is the order in which the threads had x.
"""

from typing import Any

import numpy as np

from paracosm.compiled import compiled, shaped
from paracosm.relaxation.threads.atomics import (
    BEGAN,
    CALLED,
    DECIDED,
    DETECTED,
    LINE,
    LOCK,
    STATUS,
    STOP,
    WAITING,
    acquire,
    add,
    add_float,
    begin_together,
    compare_and_swap,
    load,
    now,
    release,
    step_aside,
    store,
)

CONVERGED, DIVERGED, LIMIT = 1, 2, 3


@shaped("n+1: pointer; nonzeros: columns values; n: diagonal b x; * 4: stamps; 2 4: sums")
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

    The system is A in CSR. `stamps`, shape (capacity, 4), takes the nanoseconds of start, copied,
    computed, updated; `sums`, shape (2, 4), seconds and squared seconds of the phases and the
    whole. `most` iterations of one thread stop the run; `threads` begin together.
    """
    mine = np.empty(x.size)
    fresh = np.empty(last - first)
    iterations = 0
    copied = computed = updated = 0
    begin_together(control, threads)
    start = load(control, BEGAN)
    while load(control, STOP) == 0:
        copied = _copy_shared(x, mine, control, locked, timed)
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


@shaped("n+1: pointer; nonzeros: columns values; n: b x; checks 3: stamps; checks: norms")
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

    After the detecting check, whose index goes to `detecting[0]`, it makes `lingering` more.
    `stamps` takes start, copied, checked, shape (capacity, 3); `norms` what each check found.
    """
    mine = np.empty(x.size)
    checks = 0
    copied = 0
    begin_together(control, threads)
    start = load(control, BEGAN)
    while load(control, STOP) == 0:
        copied = _copy_shared(x, mine, control, locked, timed)
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
def _copy_shared(x: Any, mine: Any, control: Any, locked: Any, timed: Any) -> Any:
    copied = 0
    if locked:
        acquire(control, LOCK)
    for i in range(x.size):
        mine[i] = x[i]
    if timed:
        copied = now()
    if locked:
        release(control, LOCK)
    return copied


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


_TOP, _BOTTOM = 0, 1
_ROUNDING = 1e-13  # of a running sum of squares, relative to what it began with


@shaped("2 rows+2 columns+2: band; rows columns: b; * 2 columns: edges; * 4: stamps; 2 4: sums")
@compiled
def relax_band(
    thread: Any,
    band: Any,
    b: Any,
    coefficients: Any,
    edges: Any,
    locks: Any,
    control: Any,
    threads: Any,
    threshold: Any,
    every: Any,
    total: Any,
    parts: Any,
    timed: Any,
    most: Any,
    stamps: Any,
    sums: Any,
) -> int:
    """Relax a band of rows until told to stop; return the iterations made.

    Iteration k reads `band[k % 2]`, a matrix with a frame of zeros, and writes the other one.
    `coefficients` are of the point itself, those above, below, left and right of it; `edges`,
    shape (threads, 2, columns), the newest first and last rows. `locks` and `parts` (local
    residuals, squared) stand a cache line apart. Every `every` iterations the local residual goes
    into `total`. Those are of different instants: when their sum is small, all threads stop once,
    and the run has converged if the residual of the x that they then have is small too.
    """
    rows, columns = b.shape
    centre, above, below, left, right = coefficients
    enough = threshold * threshold
    floor = _ROUNDING * total[0]
    iterations = 0
    copied = computed = 0
    confirmations = 0
    begin_together(control, threads)
    start = load(control, BEGAN)
    while load(control, STOP) == 0:
        old, new = band[iterations % 2], band[1 - iterations % 2]
        confirming = load(control, CALLED) > confirmations
        if confirming:
            _arrive(control, (2 * confirmations + 1) * threads)
        if thread > 0:
            _copy_edge(edges, locks, thread - 1, _BOTTOM, old[0])
        if thread < threads - 1:
            _copy_edge(edges, locks, thread + 1, _TOP, old[rows + 1])
        if confirming:
            square = _local_residual(old, b, coefficients)
            add_float(total, 0, square - parts[thread * LINE])
            parts[thread * LINE] = square
            confirmations += 1
            _arrive(control, 2 * confirmations * threads)
            if thread == 0:
                _decide(parts, threads, enough, control)
            while load(control, DECIDED) < confirmations and load(control, STOP) == 0:
                step_aside()
            continue
        if timed:
            copied = now()
        measuring = iterations % every == 0
        square = 0.0
        for i in range(1, rows + 1):
            for j in range(1, columns + 1):
                around = above * old[i - 1, j] + below * old[i + 1, j]
                around += left * old[i, j - 1] + right * old[i, j + 1]
                new[i, j] = (b[i - 1, j - 1] - around) / centre
            if measuring:
                for j in range(1, columns + 1):
                    residual = centre * (new[i, j] - old[i, j])
                    square += residual * residual
        if measuring:
            add_float(total, 0, square - parts[thread * LINE])
            parts[thread * LINE] = square
            if thread == 0:
                _check(total, parts, threads, enough, floor, control)
        if timed:
            computed = now()
        if thread > 0:
            _update_edge(edges, locks, thread, _TOP, new[1])
        if thread < threads - 1:
            _update_edge(edges, locks, thread, _BOTTOM, new[rows])
        if timed:
            updated = now()
            note_iteration(iterations, start, copied, computed, updated, stamps, sums)
            start = updated
        iterations += 1
        if iterations == most:
            stop(control, LIMIT)
    return iterations


@compiled
def _check(total: Any, parts: Any, threads: Any, enough: Any, floor: Any, control: Any) -> None:
    """Call the threads together if the sum of local residuals is small; stop if it is no number."""
    square = add_float(total, 0, 0.0)
    if not square < np.inf:
        stop(control, DIVERGED)
    elif square <= enough + floor and _sum(parts, threads) <= enough:
        add(control, CALLED, 1)


@compiled
def _decide(parts: Any, threads: Any, enough: Any, control: Any) -> None:
    if load(control, STOP) == 0 and _sum(parts, threads) <= enough:
        store(control, DETECTED, now())
        stop(control, CONVERGED)
    add(control, DECIDED, 1)


@compiled
def _arrive(control: Any, expected: Any) -> None:
    """Wait until threads have arrived `expected` times in all, or the run is stopped."""
    add(control, WAITING, 1)
    while load(control, WAITING) < expected and load(control, STOP) == 0:
        step_aside()


@compiled
def _sum(parts: Any, threads: Any) -> float:
    square = 0.0
    for thread in range(threads):
        square += parts[thread * LINE]
    return square


@compiled
def _local_residual(x: Any, b: Any, coefficients: Any) -> float:
    """Return the square of ||b - Ax|| over the rows of a band with its frame."""
    centre, above, below, left, right = coefficients
    square = 0.0
    for i in range(1, b.shape[0] + 1):
        for j in range(1, b.shape[1] + 1):
            residual = b[i - 1, j - 1] - centre * x[i, j]
            residual -= above * x[i - 1, j] + below * x[i + 1, j]
            residual -= left * x[i, j - 1] + right * x[i, j + 1]
            square += residual * residual
    return square


@compiled
def _copy_edge(edges: Any, locks: Any, thread: Any, side: Any, row: Any) -> None:
    lock = (2 * thread + side) * LINE
    acquire(locks, lock)
    for j in range(edges.shape[2]):
        row[j + 1] = edges[thread, side, j]
    release(locks, lock)


@compiled
def _update_edge(edges: Any, locks: Any, thread: Any, side: Any, row: Any) -> None:
    lock = (2 * thread + side) * LINE
    acquire(locks, lock)
    for j in range(edges.shape[2]):
        edges[thread, side, j] = row[j + 1]
    release(locks, lock)


@compiled
def read_clock(times: Any) -> int:
    """Read the clock so many times; return the nanoseconds that it took."""
    start = now()
    last = start
    for _ in range(times):
        last = now()
    return int(last - start)
