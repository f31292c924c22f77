"""The ops of one worker that wait for one of its resources, and which chunk of them is next.

The model of HTTP/2's multiplexing of Li et al. 2020, section 3.2.2 and figure 12.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

__all__ = ["Chunk", "Scheduler"]


@dataclass(slots=True)
class Chunk:
    """A piece of an op that runs without interruption.

    Attributes:
        op: that it is a piece of (`main_op` in the paper).
        turn: 0 for the op's first piece, 1 for its second.
        remaining: bytes of a transfer, seconds of a computation, that are left.
        rest: bytes of the op that are left for its next turn.
        begin: seconds; set when it begins to run.
    """

    op: int
    turn: int
    remaining: float
    rest: float
    begin: float = 0.0

    @property
    def is_last(self) -> bool:
        """Whether the op has no further piece."""
        return self.rest == 0


@dataclass(frozen=True, slots=True)
class _Stream:
    op: int
    size: float
    turn: int
    arrival: int


class Scheduler:
    """A queue of ops, first come, first served, or the lowest priority first.

    Args:
        window: of a longer op so many bytes make its first turn, and the rest its second.
        priority: by op; None: first come, first served, whatever the turn.
    """

    def __init__(self, window: float = inf, priority: Sequence[float] | None = None) -> None:
        self.window = window
        self.priority = priority
        self.waiting: list[_Stream] = []
        self.arrivals = 0

    def __len__(self) -> int:
        """How many ops wait."""
        return len(self.waiting)

    def add(self, op: int, size: float, turn: int = 0) -> None:
        """Put an op, or what is left of it after its first turn, at the end of the queue."""
        self.waiting.append(_Stream(op, size, turn, self.arrivals))
        self.arrivals += 1

    def remove_chunk(self) -> Chunk:
        """Take the next chunk: at most a window of an op's first turn, all that is left then."""
        stream = min(self.waiting, key=self._key)
        self.waiting.remove(stream)
        if stream.turn == 0 and stream.size > self.window:
            return Chunk(stream.op, 0, self.window, stream.size - self.window)
        return Chunk(stream.op, stream.turn, stream.size, 0)

    def _key(self, stream: _Stream) -> tuple[float, ...]:
        if self.priority is None:
            return (stream.arrival,)
        return (stream.turn, self.priority[stream.op], stream.arrival)
