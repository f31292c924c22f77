"""Who waits for whom at the end of a step: nobody, or in synchronous training most for all."""

from __future__ import annotations

__all__ = ["Iterations"]


class Iterations:
    """The iterations of synchronous training; asynchronous steps are each for themselves.

    An iteration is over when all workers but `backup` have ended a step that they began in it. A
    worker that is later has its gradients refused and takes part in the iteration that is current
    when its next step begins.

    Args:
        workers: how many.
        backup: how many of them an iteration does not wait for; None: asynchronous.
    """

    def __init__(self, workers: int, backup: int | None) -> None:
        self.needed = None if backup is None else workers - backup
        self.current = 0
        self.of = [0] * workers  # the iteration that each worker's step is for
        self.waiting: list[int] = []

    def begin(self, w: int) -> None:
        """Let a step of worker w be for the current iteration."""
        self.of[w] = self.current

    def end(self, w: int) -> tuple[bool, list[int]]:
        """Return whether the step of worker w is accepted, and the workers that may go on now."""
        if self.needed is None:
            return True, [w]
        if self.of[w] < self.current:
            return False, [w]
        self.waiting.append(w)
        if len(self.waiting) < self.needed:
            return True, []
        released, self.waiting = self.waiting, []
        self.current += 1
        return True, released
