"""Who waits for whom at the end of a step: nobody, the quick for the slow, or most for all."""

from __future__ import annotations

__all__ = ["Iterations"]


class Iterations:
    """The iterations of synchronous training; asynchronous steps are each for themselves.

    With a slack, a worker goes on when nobody has ended so many steps fewer that it would be
    further ahead.

    An iteration is over when all workers but `backup` have ended a step that they began in it. A
    worker that is later has its gradients refused and takes part in the iteration that is current
    when its next step begins.

    Args:
        workers: how many.
        backup: how many of them an iteration does not wait for; None: asynchronous.
        slack: how many steps a worker may be ahead of the slowest; None: as many as it can.
    """

    def __init__(self, workers: int, backup: int | None, slack: int | None) -> None:
        self.slack = slack
        self.ended = [0] * workers
        self.needed = None if backup is None else workers - backup
        self.current = 0
        self.of = [0] * workers  # the iteration that each worker's step is for
        self.waiting: list[int] = []

    def begin(self, w: int) -> None:
        """Let a step of worker w be for the current iteration."""
        self.of[w] = self.current

    def end(self, w: int) -> tuple[bool, list[int]]:
        """Return whether the step of worker w is accepted, and the workers that may go on now."""
        if self.slack is not None:
            self.ended[w] += 1
            self.waiting.append(w)
            near = [one for one in self.waiting if self.ended[one] <= min(self.ended) + self.slack]
            self.waiting = [one for one in self.waiting if one not in near]
            return True, near
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
