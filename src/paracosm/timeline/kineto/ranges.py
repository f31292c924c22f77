"""Ranges of a trace's threads by what they are for: backward pass, optimizer, data loading."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.timeline.kineto.trace import KinetoTrace
from paracosm.timeline.kineto.window import backward_threads
from paracosm.timeline.kineto.words import is_backward

__all__ = ["Ranges", "Steps", "steps_of_training"]

Floats = npt.NDArray[np.float64]


class Ranges:
    """Times that a set of ranges covers, on each lane.

    Args:
        trace: of which they are.
        rows: the ranges.
    """

    def __init__(self, trace: KinetoTrace, rows: Iterable[int]) -> None:
        chosen = np.array(sorted(rows), dtype=np.int64)
        self._of: dict[int, tuple[Floats, Floats]] = {}
        for lane in np.unique(trace.lane[chosen]).tolist():
            mine = chosen[trace.lane[chosen] == lane]
            self._of[lane] = (trace.begin[mine], np.maximum.accumulate(trace.end[mine]))

    def covers(self, lane: int, time: float) -> bool:
        """Whether a range of a lane has begun and not ended at an instant."""
        begin, reached = self._of.get(lane, (np.empty(0), np.empty(0)))
        at = int(np.searchsorted(begin, time, side="right")) - 1
        return at >= 0 and time < reached[at]

    def edges(self, lane: int) -> Floats:
        """Return all begins and ends on a lane."""
        return np.concatenate(self._of.get(lane, (np.empty(0), np.empty(0))))


@dataclass(frozen=True, eq=False)
class Steps:
    """What the threads of a trace are at, at every instant.

    Attributes:
        engine: the threads on which autograd runs backward passes alone.
        backward, optimizer, loading: ranges of the names that say so.
    """

    engine: frozenset[int]
    backward: Ranges
    optimizer: Ranges
    loading: Ranges

    def of(self, lane: int, time: float) -> str:
        """Return the step of the training, one of `STEPS`, that a thread is at."""
        if lane < 0 or self.loading.covers(lane, time):
            return "other"
        if lane in self.engine or self.backward.covers(lane, time):
            return "backward"
        return "optimizer" if self.optimizer.covers(lane, time) else "forward"


def steps_of_training(trace: KinetoTrace) -> Steps:
    """Return what the names of ops and annotations say."""

    def named(is_meant: Callable[[str], bool]) -> Ranges:
        codes = [code for code, name in enumerate(trace.names) if is_meant(name)]
        threads = [code for code, lane in enumerate(trace.lanes) if lane.kind == "thread"]
        rows = np.isin(trace.name, codes) & np.isin(trace.lane, threads)
        return Ranges(trace, np.flatnonzero(rows).tolist())

    return Steps(
        engine=frozenset(backward_threads(trace)),
        backward=named(is_backward),
        optimizer=named(lambda name: name.startswith("Optimizer.step")),
        loading=named(lambda name: name.startswith("enumerate(DataLoader)")),
    )
