"""How much of its communication a rank waits for, and how much its computing hides.

A collective lasts from when the rank asks for it until the rank has its result. What of that lies
in a wait of the rank is exposed, the rest is hidden. Over several collectives, and over several
waits, time counts once.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Floats", "Parts", "covered_before", "exposed_of_each", "parts_between", "union"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Parts:
    """What communication and waiting are made of in each of k stretches of time.

    Attributes:
        exposed: seconds with both a collective under way and a wait, shape (k,).
        hidden: seconds with a collective under way and no wait, shape (k,).
        other: seconds of waits with no collective under way, shape (k,).
    """

    exposed: Floats
    hidden: Floats
    other: Floats


def exposed_of_each(collectives: Floats, waits: Floats) -> Floats:
    """Return the exposed seconds of each collective, shape (n,); the rest of it is hidden.

    Args:
        collectives: when each was asked for and done, shape (n, 2), seconds.
        waits: when each wait began and ended, shape (m, 2), seconds; they may overlap.
    """
    asked, done = collectives.T
    waited = covered_before(waits, done) - covered_before(waits, asked)
    return np.clip(waited, 0.0, done - asked)


def parts_between(begin: Floats, end: Floats, collectives: Floats, waits: Floats) -> Parts:
    """Return what collectives, taken together, and waits are made of in stretches of time.

    Args:
        begin, end: of the stretches, shape (k,), seconds.
        collectives: shape (n, 2), as `exposed_of_each` takes them.
        waits: shape (m, 2).
    """

    def seconds(spans: Floats) -> Floats:
        return covered_before(spans, end) - covered_before(spans, begin)

    under_way, waited = seconds(collectives), seconds(waits)
    # Of two sets of instants: what both hold is what each holds less what one of them holds.
    either = seconds(np.concatenate([collectives, waits]))
    both = np.clip(under_way + waited - either, 0.0, np.minimum(under_way, waited))
    return Parts(exposed=both, hidden=under_way - both, other=waited - both)


def covered_before(spans: Floats, times: Floats) -> Floats:
    """Return for each of the `times` how many seconds before it some of the spans (n, 2) cover."""
    pieces = union(spans)
    if not len(pieces):
        return np.zeros(len(times))
    reached = np.cumsum(pieces[:, 1] - pieces[:, 0])
    # Between the ends of pieces, the covered time is a broken line.
    seconds = np.column_stack([np.concatenate([[0.0], reached[:-1]]), reached])
    found: Floats = np.interp(times, pieces.ravel(), seconds.ravel())
    return found


def union(spans: Floats) -> Floats:
    """Return spans, shape (m, 2), in order and apart, that cover the same instants as (n, 2)."""
    spans = spans[spans[:, 0] < spans[:, 1]]
    if not len(spans):
        return np.empty((0, 2))
    begin, end = spans[np.argsort(spans[:, 0], kind="stable")].T
    reached = np.maximum.accumulate(end)
    first = np.flatnonzero(np.concatenate([[True], begin[1:] > reached[:-1]]))
    last = np.append(first[1:], len(begin)) - 1
    return np.column_stack([begin[first], reached[last]])
