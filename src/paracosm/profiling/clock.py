"""Clocks that time one call: CPU time of one thread, wall time of several, events on a GPU."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Protocol

from paracosm.errors import require

__all__ = ["Clock", "CudaClock", "HostClock", "clock_for"]

Call = Callable[[], object]


class Clock(Protocol):
    """Times calls; what a call returns is dropped, and the time to free it counts."""

    def seconds(self, call: Call, times: int = 1) -> float:
        """Return the seconds of `times` calls in a row, together."""

    def wait(self) -> None:
        """Wait until the device has nothing left to do."""


class HostClock:
    """CPU time of this thread, or wall time where an op uses several threads.

    CPU time does not count what other processes did to this core's time slices. A look at the clock
    takes a fraction of a microsecond, which is measured once and subtracted.
    """

    def __init__(self, threads: int = 1) -> None:
        self._now = time.thread_time_ns if threads == 1 else time.perf_counter_ns
        self._overhead = 0
        self._overhead = min(self._span(_nothing, 1) for _ in range(200))

    def seconds(self, call: Call, times: int = 1) -> float:
        return max(0, self._span(call, times) - self._overhead) * 1e-9

    def wait(self) -> None:
        """Return at once: calls on the CPU are done when they return."""

    def _span(self, call: Call, times: int) -> int:
        repeats, now = range(times), self._now
        begin = now()
        for _ in repeats:
            call()
        return now() - begin


class CudaClock:
    """Time between two events on the current stream.

    The device must be busy when `seconds` is called (flushing its cache, say): the events and what
    lies between them are then in its queue before it gets there, and launching costs nothing.
    """

    def __init__(self) -> None:
        self._torch: Any = require("torch", "torch", "profiling ops")

    def seconds(self, call: Call, times: int = 1) -> float:
        begin, end = (self._torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(times):
            call()
        end.record()
        end.synchronize()
        return float(begin.elapsed_time(end)) * 1e-3

    def wait(self) -> None:
        self._torch.cuda.synchronize()


def clock_for(device: str, threads: int = 1) -> Clock:
    """Return the clock for a device, "cpu" or "cuda"."""
    return CudaClock() if device == "cuda" else HostClock(threads)


def _nothing() -> None:
    pass
