"""What gloo's algorithms have in common: who enters when, and who may send what after what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

__all__ = ["Members", "Schedule", "Split"]

Split = Callable[[int, int, int], tuple[float, float]]
"""(source, target, bytes) -> latency of a message, and the seconds for which it holds its link."""


@dataclass(frozen=True)
class Members:
    """Those who take part in one operation, by their ranks in the group.

    Attributes:
        size: how many.
        real: which are real.
        entry: when an emulated member comes to the operation (seconds of the clock).
        split: the times of messages among emulated members.
    """

    size: int
    real: tuple[int, ...]
    entry: Callable[[int], float]
    split: Split

    def is_real(self, member: int) -> bool:
        """Whether a member is real."""
        return member in self.real

    def hop(self, source: int, target: int, size: int) -> float:
        """Return the seconds of a message between emulated members on an idle link."""
        latency, busy = self.split(source, target, size)
        return latency + busy


class Schedule(Protocol):
    """One operation: the messages to real members and what each of them waits for.

    Messages are counted from 0 for each sender and receiver, as gloo's algorithm has them.
    """

    def allows(self, source: int, target: int, index: int) -> bool:
        """Return whether the algorithm has such a message at all."""

    def arrived(self, real: int, peer: int, index: int, size: int, now: float) -> None:
        """Learn that a message of a real member has come to an emulated one."""

    def send_at(self, peer: int, real: int, index: int, size: int) -> float | None:
        """Return the instant from which a message may go; None while it waits for another."""

    def accept_at(self, peer: int, real: int, index: int) -> float | None:
        """Return the instant from which `peer` is ready to receive; None as above."""
