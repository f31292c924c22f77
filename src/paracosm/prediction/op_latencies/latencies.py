"""What an interval between two events says: the time on the device, and that on the host.

On an idle GPU the first event is over at once; then the host runs the node, the kernel (if it
launches one) runs, and the second event follows. Nodes that make no tensor (`size`) launch nothing:
what is measured around them is the *floor*, the cost of the two events, and part of every interval
in the file. It is taken off. What is left is a host time where a node launches nothing, and a
device time where it does.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from paracosm.prediction.op_latencies.table import Row

__all__ = ["Reading", "reading_of"]

VIEWS = frozenset(
    {
        *("view", "permute", "transpose", "expand", "unsqueeze", "squeeze", "detach", "t"),
        *("getitem", "narrow", "select", "unbind", "expand_as", "view_as"),
    }
)
"""Functions that never launch a kernel."""


@dataclass(frozen=True, slots=True)
class Reading:
    """How to read the intervals of one file.

    Attributes:
        floor: seconds that an interval has around nothing.
        longest_view: seconds of the longest interval around a node that launches nothing: others
            up to it (a dropout that drops nothing, the backward pass of a sum) launch nothing
            either.
        launch: seconds that the host takes to launch a kernel: the shortest interval around a node
            that does, without the floor.
    """

    floor: float
    longest_view: float
    launch: float

    def on_host(self, row: Row, interval: float) -> bool:
        """Whether an interval of a row is the host's alone."""
        return _launches_nothing(row) or interval <= self.longest_view

    def time(self, interval: float) -> float:
        """Return the seconds of an interval that are not its floor."""
        return max(interval - self.floor, 0.0)


def reading_of(rows: Sequence[Row]) -> Reading:
    """Return how to read the intervals of a file's rows; with no such nodes there is no floor."""
    timed = [row for row in rows if row.forward > 0]
    empty = [row.forward for row in timed if not row.makes_tensor]
    floor = statistics.median(empty) if empty else 0.0
    views = [row.forward for row in timed if row.makes_tensor and row.function in VIEWS]
    longest = max([floor, *views]) if empty else 0.0
    kernels = [row.forward for row in timed if not _launches_nothing(row) and row.forward > longest]
    launch = max(min(kernels) - floor, 0.0) if kernels and empty else 0.0
    return Reading(floor, longest, launch)


def _launches_nothing(row: Row) -> bool:
    return not row.makes_tensor or row.function in VIEWS
