"""A stretch of time on a lane of one rank, which becomes a task of its program."""

from __future__ import annotations

from dataclasses import dataclass, field

from paracosm.timeline.kineto import Collective

__all__ = ["WORK", "Piece"]

WORK = (
    "host",
    "data loading",
    "launch latency",
    "gap",
    "compute",
    "copy",
    "communication",
    "start",
)
"""What a piece is good for: work of a thread; waiting for data; the time from a call to what it
launches; the time between two spans of a stream; kernels; copies and memsets; collectives; the time
by which a rank begins later than the first one."""


@dataclass(slots=True, eq=False)
class Piece:
    """A stretch of time.

    Attributes:
        begin, end: seconds from the origin of the rank's trace.
        lane: that it keeps busy.
        name: of the task.
        work: one of `WORK`.
        step: one of `STEPS` of a program.
        after: pieces that end before it begins, beside the one before it on its lane.
        call: the collective that it is; None for none.
        row: in the program; -1 until it is written.
        iteration: which of the window's steps it was done in, or launched in; -1 for none.
    """

    begin: float
    end: float
    lane: str
    name: str
    work: str
    step: str = "other"
    after: list[Piece] = field(default_factory=list)
    call: Collective | None = None
    row: int = -1
    iteration: int = -1
