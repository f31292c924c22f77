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

    def head_start(self) -> None:
        """Let the host get ahead of the device, so that launching what comes next is not timed."""

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

    def head_start(self) -> None:
        """Do nothing: on the CPU there is no device to be ahead of."""

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

    On a device that has nothing to do, the first event is over at once, and the time until the call
    is launched counts as well. After a `head_start` the events and the call are in its queue before
    it gets there.
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

    def head_start(self) -> None:
        self._torch.cuda._sleep(_HEAD_START)

    def wait(self) -> None:
        self._torch.cuda.synchronize()


_HEAD_START = 1_000_000  # cycles of the device: half a millisecond, time to launch many kernels


def clock_for(device: str, threads: int = 1) -> Clock:
    """Return the clock for a device, "cpu" or "cuda"."""
    return CudaClock() if device == "cuda" else HostClock(threads)


def _nothing() -> None:
    pass
