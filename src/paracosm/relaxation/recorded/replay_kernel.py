"""The compiled loop of a replay: reads and commits at given instants, with the residual at hand.

The residual r = b - Ax is kept with x: a commit scatters each change through the columns of A. A
relaxation is then x_i + r_i / a_ii, and the norm that the residual processor finds at an instant is
the norm of r.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from paracosm.compiled import compiled

__all__ = [
    "CHECK",
    "CHECKED",
    "CHECKS",
    "COMMIT",
    "FOUND",
    "READ",
    "RELAXATIONS",
    "STATE",
    "play_events",
    "refresh",
]

# Kinds of events; at one instant, commits come first. A check reads x and has its norm later.
COMMIT, READ, CHECK, CHECKED = range(4)
# Places in the loop's scalars: checks so far; relaxations since r was computed afresh; whether the
# newest check found a norm that ends the play.
CHECKS, RELAXATIONS, FOUND, STATE = range(4)

_FRESH_AFTER = 1000  # sweeps; rounding errors of r grow by far less than the tolerance in that time


@compiled
def play_events(
    kinds: Any,
    who: Any,
    first: Any,
    pointer: Any,
    column_pointer: Any,
    rows: Any,
    values: Any,
    diagonal: Any,
    b: Any,
    x: Any,
    r: Any,
    pending: Any,
    threshold: Any,
    norms: Any,
    state: Any,
) -> int:
    """Play events from number `first`; return the number of the event that ended it, or of events.

    It ends when a check is done that found a norm of at most `threshold`, or one that is no number.

    Args:
        kinds, who: what happens, and to which processor, in order of time, shape (events,).
        pointer: processor k has the rows from `pointer[k]` to `pointer[k + 1]`.
        column_pointer, rows, values: A in CSC.
        diagonal, b: the rest of the system, shape (n,).
        x, r: iterate and residual b - Ax, shape (n,).
        pending: the change of x that each processor has computed and not committed, shape (n,).
        norms: the norm that each check found, as far as it has room.
        state: the scalars, shape (STATE,).
    """
    for event in range(first, kinds.size):
        kind, processor = kinds[event], who[event]
        if kind == CHECK:
            norm = _norm(r)
            if norm <= threshold:  # nothing is decided on rounding errors
                refresh(column_pointer, rows, values, b, x, r, state)
                norm = _norm(r)
            if state[CHECKS] < norms.size:
                norms[state[CHECKS]] = norm
            state[CHECKS] += 1
            state[FOUND] = norm <= threshold or not norm < np.inf
            continue
        if kind == CHECKED:
            if state[FOUND]:
                return int(event)
            continue
        begin, end = pointer[processor], pointer[processor + 1]
        if kind == READ:
            for i in range(begin, end):
                pending[i] = r[i] / diagonal[i]
            continue
        for i in range(begin, end):
            change = pending[i]
            x[i] += change
            for k in range(column_pointer[i], column_pointer[i + 1]):
                r[rows[k]] -= values[k] * change
        state[RELAXATIONS] += end - begin
        if state[RELAXATIONS] >= _FRESH_AFTER * x.size:
            refresh(column_pointer, rows, values, b, x, r, state)
    return int(kinds.size)


@compiled
def refresh(
    column_pointer: Any, rows: Any, values: Any, b: Any, x: Any, r: Any, state: Any
) -> None:
    """Compute r = b - Ax afresh."""
    r[:] = b
    for i in range(x.size):
        for k in range(column_pointer[i], column_pointer[i + 1]):
            r[rows[k]] -= values[k] * x[i]
    state[RELAXATIONS] = 0


@compiled
def _norm(r: Any) -> Any:
    square = 0.0
    for i in range(r.size):
        square += r[i] * r[i]
    return np.sqrt(square)
