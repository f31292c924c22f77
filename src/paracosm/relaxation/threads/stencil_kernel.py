"""The paper's implementation 2, the finite-difference Jacobi solver (Algorithm 4): STENCIL.

Each thread has a band of the grid's rows, in two matrices of which one is read and the other is
written, in turn. What its neighbours need, the first and the last of its rows, it puts into shared
memory under the lock of that row. Algorithm 4 copies a neighbour's row just before the row that
needs it; here both are copied first, so that copy, compute and update follow each other.

Every k-th iteration a thread computes its local residual, which is a by-product of the relaxation:
a_ii times the change of a component is the residual of the iterate that was read. It adds what it
changed to the global one; the first thread looks at that and raises the flag. Two things more than
Algorithm 4 says. A running sum of squares keeps the rounding errors of its largest values, so where
it is small the local residuals are summed afresh. And local residuals are of different times: bands
that take turns on a core are each solved for the other's old edges, while the whole is far from a
solution. So the flag goes up only when every thread has measured again, and none of them, at any
time since the sum was small, more than what is allowed for all.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paracosm.compiled import compiled
from paracosm.relaxation.threads.atomics import add, add_float, load, now, store
from paracosm.relaxation.threads.control import (
    BEGAN,
    DETECTED,
    LINE,
    STOP,
    acquire,
    begin_together,
    release,
)
from paracosm.relaxation.threads.solver_kernel import (
    CONVERGED,
    DIVERGED,
    LIMIT,
    note_iteration,
    stop,
)

__all__ = ["relax_band"]

_TOP, _BOTTOM = 0, 1
_CONFIRMATIONS = 2  # of them, the first may have read its neighbours before the sum was small
_ROUNDING = 1e-13  # of a running sum of squares, relative to what it began with


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
    measured: Any,
    timed: Any,
    most: Any,
    stamps: Any,
    sums: Any,
) -> int:
    """Relax a band of rows until told to stop; return the iterations made.

    Args:
        thread: the band's number, from the top.
        band: the two matrices with a frame of zeros, shape (2, rows + 2, columns + 2); iteration k
            reads `band[k % 2]` and writes the other one.
        b: right-hand side of the band, shape (rows, columns).
        coefficients: of the point itself, the ones above, below, left and right of it.
        edges: the newest first and last row of every band, shape (threads, 2, columns).
        locks: one for each of these rows, a cache line apart.
        threshold: residual norm at which the first thread stops the run.
        every: iterations from one local residual to the next.
        total: the global residual, squared, shape (1,).
        parts: the local residuals, squared, a cache line apart.
        measured: how often each thread has computed its own, a cache line apart; and at the end how
            often one alone was above the threshold.
        (The others are those of `relax_rows`.)
    """
    rows, columns = b.shape
    centre, above, below, left, right = coefficients
    enough = threshold * threshold
    floor = _ROUNDING * total[0]
    iterations = 0
    copied = computed = 0
    seen = np.full(threads + 1, -1)  # `measured` when the sum was first small
    begin_together(control, threads)
    start = load(control, BEGAN)
    while load(control, STOP) == 0:
        old, new = band[iterations % 2], band[1 - iterations % 2]
        if thread > 0:
            _copy_edge(edges, locks, thread - 1, _BOTTOM, old[0])
        if thread < threads - 1:
            _copy_edge(edges, locks, thread + 1, _TOP, old[rows + 1])
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
            if square > enough:
                add(measured, threads * LINE, 1)
            add(measured, thread * LINE, 1)
            if thread == 0:
                _check(total, parts, measured, seen, enough, floor, control)
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
def _check(
    total: Any, parts: Any, measured: Any, seen: Any, enough: Any, floor: Any, control: Any
) -> None:
    """Raise the flag if the global residual is small, and stays so, or is no number."""
    square = add_float(total, 0, 0.0)
    if not square < np.inf:
        stop(control, DIVERGED)
        return
    threads = seen.size - 1
    if square <= enough + floor:
        square = 0.0
        for thread in range(threads):
            square += parts[thread * LINE]
    if square > enough:
        seen[0] = -1
        return
    begin = seen[0] < 0 or load(measured, threads * LINE) != seen[threads]
    confirmed = not begin
    for thread in range(threads + 1):
        if begin:
            seen[thread] = load(measured, thread * LINE)
        elif thread < threads and load(measured, thread * LINE) < seen[thread] + _CONFIRMATIONS:
            confirmed = False
    if confirmed and load(control, STOP) == 0:
        store(control, DETECTED, now())
        stop(control, CONVERGED)


@compiled
def _copy_edge(edges: Any, locks: Any, thread: Any, side: Any, row: Any) -> None:
    """Copy a neighbour's edge into a row of the own matrix."""
    lock = (2 * thread + side) * LINE
    acquire(locks, lock)
    for j in range(edges.shape[2]):
        row[j + 1] = edges[thread, side, j]
    release(locks, lock)


@compiled
def _update_edge(edges: Any, locks: Any, thread: Any, side: Any, row: Any) -> None:
    """Show the neighbours the newest values of an edge of the own band."""
    lock = (2 * thread + side) * LINE
    acquire(locks, lock)
    for j in range(edges.shape[2]):
        edges[thread, side, j] = row[j + 1]
    release(locks, lock)
