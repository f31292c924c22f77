"""When a thread of the host works, and when it waits for another one.

The thread of the training loop starts the backward pass and waits; autograd's thread runs it. Both
show in a trace as gaps: what of autograd's lies within a gap of the loop's thread was handed over
in it. The loop's thread works up to the first of those ops and from the end of the last one on.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.timeline.kineto import KinetoTrace, Window

__all__ = ["HandOver", "busy_of", "hand_overs"]

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class HandOver:
    """The loop's thread waits from `begin` to `end`, while the threads `to` work.

    Attributes:
        begin: when the first of them begins.
        end: when the last of them ends.
        to: for each thread (a lane of the trace) when it ends.
    """

    begin: float
    end: float
    to: dict[int, float]


def busy_of(trace: KinetoTrace, thread: int, window: Window) -> Floats:
    """Return when a thread has an op or a call open: k x 2 begins and ends that do not overlap."""
    rows = trace.of("op", "runtime", "other")
    rows = rows[trace.lane[rows] == thread]
    rows = rows[(trace.end[rows] >= window.begin) & (trace.begin[rows] <= window.end)]
    if not len(rows):
        return np.empty((0, 2))
    begin, end = trace.begin[rows], np.maximum.accumulate(trace.end[rows])
    fresh = np.flatnonzero(np.concatenate(([True], begin[1:] > end[:-1])))
    last = np.concatenate((fresh[1:], [len(rows)])) - 1
    busy: Floats = np.stack((begin[fresh], end[last]), axis=1)
    return busy.clip(window.begin, window.end)


def hand_overs(
    trace: KinetoTrace, window: Window, backward: set[int], busy: dict[int, Floats]
) -> list[HandOver]:
    """Return the times in which the loop's thread waits for backward passes, in order."""
    own = busy.get(window.thread)
    if own is None or not len(own):
        return []
    opens = np.concatenate(([window.begin], own[:, 1]))
    closes = np.concatenate((own[:, 0], [window.end]))
    found: dict[int, HandOver] = {}
    for thread in sorted(backward & busy.keys()):
        spans = busy[thread]
        gap = np.searchsorted(opens, spans[:, 0], side="right") - 1
        inside = spans[:, 1] <= closes[gap]
        for number in np.unique(gap[inside]).tolist():
            within = spans[inside & (gap == number)]
            first, last = float(within[0, 0]), float(within[-1, 1])
            before = found.get(number)
            found[number] = HandOver(
                begin=first if before is None else min(before.begin, first),
                end=last if before is None else max(before.end, last),
                to={**(before.to if before else {}), thread: last},
            )
    return [found[number] for number in sorted(found)]
