"""The cores of one parameter server, which the updates of all workers share."""

from __future__ import annotations

__all__ = ["Cores"]


class Cores:
    """A core runs one op; workers wait for one first come, first served, each for one at a time.

    Args:
        number: of cores; 0: each worker has one of its own (Li et al. 2020, section 3.2.3).
    """

    def __init__(self, number: int) -> None:
        self.number = number
        self.busy = 0
        self.waiting: list[int] = []

    def ask(self, w: int) -> bool:
        """Return whether worker w has a core now; otherwise it waits, or still waits, for one."""
        if w in self.waiting:
            return False
        if self.number and self.busy == self.number:
            self.waiting.append(w)
            return False
        self.busy += 1
        return True

    def release(self) -> int | None:
        """Take a core back and return the worker that it is handed on to, None if nobody waits."""
        if self.waiting:
            return self.waiting.pop(0)
        self.busy -= 1
        return None
