"""Sleeping until instants, calling functions at deadlines."""

from __future__ import annotations

import contextlib
import ctypes
import heapq
import os
import select
import statistics
import sys
import threading
import time
from collections import deque
from collections.abc import Callable

import torch

_LATENESSES = 16_384  # that are kept
_SOON, _ROUNDS_SOON = 0.3e-3, 15  # of the measurement: seconds, how often
_LATE, _ROUNDS_LATE = 10e-3, 4
_MOST_LEAD = 0.5e-3  # a machine that takes longer is busy: calling earlier would be too early
_NEVER = float("inf")
_NICENESS = -10


class Completion:
    """A thread that calls short functions at their deadlines.

    It calls them early by the time that a waiting thread takes to run after a future completes.
    This lead is measured at the start, for short waits and for long ones, since cores that were
    idle for long take longer to wake.
    """

    def __init__(self) -> None:
        self.lateness: deque[float] = deque(maxlen=_LATENESSES)  # of the last calls, seconds
        self._lead_soon = self._lead_late = 0.0
        self._due: list[tuple[float, int, Callable[[], None]]] = []  # a heap
        self._count = 0
        self._lock = threading.Lock()
        self._alarm = threading.Lock()  # held but for when something earlier has come up
        self._alarm.acquire()
        self._awake = True
        self._asleep_until = _NEVER
        self._closed = False
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread and measure the lead; takes 60 ms."""
        self._thread = threading.Thread(target=self._run, name="paracosm-done", daemon=True)
        self._thread.start()
        soon = statistics.median(_wake_up(self, _SOON) for _ in range(_ROUNDS_SOON))
        late = statistics.median(_wake_up(self, _LATE) for _ in range(_ROUNDS_LATE))
        self._lead_soon = min(max(soon, 0.0), _MOST_LEAD)
        self._lead_late = min(max(soon, late, 0.0), _MOST_LEAD)
        self.lateness.clear()

    def at(self, deadline: float, call: Callable[[], None]) -> None:
        """Call a function at a deadline of `time.monotonic`; those of one deadline in order.

        After `close` the calling thread sleeps until the deadline.
        """
        left = deadline - time.monotonic()
        instant = deadline - (self._lead_late if left > _LATE / 2 else self._lead_soon)
        with self._lock:
            if not self._closed:
                heapq.heappush(self._due, (instant, self._count, call))
                self._count += 1
                if not self._awake and instant < self._asleep_until:
                    self._ring()
                return
        time.sleep(max(deadline - time.monotonic(), 0.0))
        call()

    def close(self) -> None:
        with self._lock:
            self._closed = True
            if not self._awake:
                self._ring()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(1.0)

    def _ring(self) -> None:
        self._awake = True
        self._alarm.release()

    def _run(self) -> None:
        precise_timer()
        with contextlib.suppress(OSError, AttributeError):  # go before threads that compute
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
        sleeper = Sleeper()
        while True:
            with self._lock:
                if self._closed:
                    break
                instant = self._due[0][0] if self._due else _NEVER
                self._awake, self._asleep_until = False, instant
            if instant == _NEVER:
                self._alarm.acquire()
                continue
            if sleeper.until(instant, lambda seconds: self._alarm.acquire(timeout=seconds)):
                continue
            with self._lock:
                if self._awake:  # it rang in the last instant
                    self._alarm.acquire()
                self._awake = True
                instant, _, call = heapq.heappop(self._due)
            self.lateness.append(time.monotonic() - instant)
            try:
                call()
            except Exception:  # of a script that has completed the future itself
                sys.excepthook(*sys.exc_info())


def _wake_up(completion: Completion, wait: float) -> float:
    """Return the seconds from the completion of a future until a thread waiting for it runs."""
    future: torch.futures.Future[None] = torch.futures.Future()
    deadline = time.monotonic() + wait
    completion.at(deadline, lambda: future.set_result(None))
    future.wait()
    return time.monotonic() - deadline


_MOST_EARLY = 300e-6  # seconds of spinning at most
_STEP = 4e-6
_NAP = 600e-6
_LAST = 20e-6


class Sleeper:
    """Sleeps until shortly before an instant, then spins.

    The margin is what 90 % of wake-ups stay within. A long sleep ends with a nap: a core that was
    idle for long takes longer to wake.
    """

    def __init__(self) -> None:
        self.early = 60e-6  # how much before the instant the spinning begins, in seconds

    def until(self, instant: float, sleep: Callable[[float], bool] | None = None) -> bool:
        """Return False at an instant, or True as soon as `sleep` returns True before it."""
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
                # `time.sleep(0)` takes 50 us or more, `sched_yield` gives the core away for ms.
                select.select((), (), (), 0)
        return False

    def calibrate(self, rounds: int = 24) -> None:
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
    with contextlib.suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(29, 1, 0, 0, 0)  # PR_SET_TIMERSLACK, 1 ns


def _sleep(seconds: float) -> bool:
    time.sleep(seconds)
    return False
