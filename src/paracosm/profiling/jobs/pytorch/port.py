"""A server's port by waiting: what a link does, where this machine cannot shape one."""

import threading
import time


class Port:
    """Carries bytes of several workers at once, each at an even share of the rate.

    Nothing is sent here: whoever calls `carry` waits for as long as a fluid link would take, and
    sends over one that is much faster.
    """

    def __init__(self, rate: float) -> None:
        """`rate` in bytes/s."""
        self._rate = rate
        self._changed = threading.Condition()  # of who is being carried
        self._left: dict[int, float] = {}  # bytes, by worker
        self._at = time.monotonic()  # until when `_left` is right

    def carry(self, worker: int, size: int) -> None:
        """Wait until so many bytes of a worker, who has no others under way, have passed."""
        with self._changed:
            self._pass_until(time.monotonic())
            self._left[worker] = float(size)
            self._changed.notify_all()
            while worker in self._left:
                self._changed.wait(self._left[worker] * len(self._left) / self._rate)
                self._pass_until(time.monotonic())
            self._changed.notify_all()

    def _pass_until(self, now: float) -> None:
        while self._left:
            least, count = min(self._left.values()), len(self._left)
            end = self._at + least * count / self._rate
            if end > now:
                passed = (now - self._at) * self._rate / count
                self._left = {each: left - passed for each, left in self._left.items()}
                break
            self._at = end
            self._left = {each: left - least for each, left in self._left.items() if left > least}
        self._at = now
