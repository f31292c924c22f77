"""Sleeping until an instant, better than the operating system's timer has it."""

from __future__ import annotations

import ctypes
import select
import time
from collections.abc import Callable

__all__ = ["Sleeper", "precise_timer"]

_MOST_EARLY = 300e-6  # seconds of spinning at most
_STEP = 4e-6
_NAP = 600e-6
_LAST = 20e-6


class Sleeper:
    """Sleeps short of the instant, by what nine wake-ups of ten were late, and spins the rest.

    How late the operating system wakes this thread is learnt from every sleep. A long sleep ends
    with a nap: a core that was idle for long takes longer to wake.

    Attributes:
        early: how much before the instant the spinning begins, in seconds.
    """

    def __init__(self) -> None:
        self.early = 60e-6

    def until(self, instant: float, sleep: Callable[[float], bool] | None = None) -> bool:
        """Return at an instant of `time.monotonic`, or at once when it has passed.

        Args:
            instant: in seconds.
            sleep: a sleep of so many seconds that may end before its time, and then returns True.

        Returns:
            Whether the sleep ended before its time.
        """
        sleep = sleep or _sleep
        left = instant - time.monotonic()
        if left > 2 * _NAP:
            if sleep(left - _NAP):
                return True
            left = instant - time.monotonic()
        if left > self.early:
            target = instant - self.early
            if sleep(left - self.early):
                return True
            self._learn(time.monotonic() - target)
        while (left := instant - time.monotonic()) > 0:
            if left > _LAST:  # the last instants are too precious to let another thread run Python
                _let_others_run_python()
        return False

    def calibrate(self, rounds: int = 24) -> None:
        """Learn from a few short sleeps."""
        late = []
        for _ in range(rounds):
            target = time.monotonic() + 100e-6
            time.sleep(100e-6)
            late.append(time.monotonic() - target)
        self.early = min(sorted(late)[int(0.9 * rounds)], _MOST_EARLY)

    def _learn(self, late: float) -> None:
        # the quantile of 90 %: as many steps of 9 up as of 1 down where one sleep in ten is later
        step = _STEP * 0.9 if late > self.early else -_STEP * 0.1
        self.early = min(max(self.early + step, 0.0), _MOST_EARLY)


def precise_timer() -> None:
    """Ask Linux not to round the sleeps of this thread to 50 us; elsewhere nothing happens."""
    try:
        ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)  # PR_SET_TIMERSLACK, 1 ns
    except (AttributeError, OSError):
        return


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False


def _let_others_run_python() -> None:
    # `time.sleep(0)` takes 50 us or more, `sched_yield` gives the core away for milliseconds
    select.select((), (), (), 0)
