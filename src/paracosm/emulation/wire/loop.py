"""One thread that waits for sockets and for instants."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import select
import time
from collections.abc import Callable
from typing import Any

__all__ = ["Loop"]

_COARSE = 2e-3  # seconds: epoll counts milliseconds, and rounds up
_EARLY = 60e-6  # seconds by which the kernel wakes late; the rest is polled
_LONGEST = 0.5  # seconds


class Loop:
    """Calls back when a descriptor is ready, when an instant has come, or when another thread asks.

    All descriptors that are ready have their turn before any has another.
    """

    def __init__(self) -> None:
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = itertools.count()
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._soon: list[Callable[[], None]] = []
        self._running = True
        self._awake = 0.0
        self.watch(self._woken, self._drain)

    def watch(self, descriptor: int, ready: Callable[[int], None]) -> None:
        """Call `ready(events)` whenever there is something to read."""
        self._ready[descriptor] = ready
        self._epoll.register(descriptor, select.EPOLLIN)

    def writable(self, descriptor: int, wanted: bool) -> None:
        """Say whether `ready` is to be called for room to write as well."""
        events = select.EPOLLIN | (select.EPOLLOUT if wanted else 0)
        self._epoll.modify(descriptor, events)

    def forget(self, descriptor: int) -> None:
        """Watch no longer."""
        if self._ready.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def at(self, instant: float, call: Callable[..., None], *arguments: Any) -> None:
        """Call once `time.monotonic` has come to an instant."""
        heapq.heappush(self._timers, (instant, next(self._count), call, arguments))

    def soon(self, call: Callable[[], None]) -> None:
        """Call before the next wait, after all that is ready has had its turn."""
        self._soon.append(call)

    def stay_awake(self, seconds: float) -> None:
        """Wait without sleeping for a while: something will come, and waking up takes long."""
        self._awake = time.monotonic() + seconds

    def wake(self) -> None:
        """Have the loop look around now; any thread may ask."""
        with contextlib.suppress(OSError):
            os.eventfd_write(self._woken, 1)

    def stop(self) -> None:
        """End `run` after what is being called; any thread, or a signal's handler, may ask."""
        self._running = False
        self.wake()

    def run(self, around: Callable[[], None]) -> None:
        """Serve until `stop`; `around` is called after every wake-up."""
        try:
            while self._running:
                for descriptor, events in self._wait():
                    ready = self._ready.get(descriptor)
                    if ready is not None:
                        ready(events)
                self._call_due()
                while self._soon:
                    calls, self._soon = self._soon, []
                    for call in calls:
                        call()
                around()
        finally:
            self._epoll.close()
            os.close(self._woken)

    def _wait(self) -> list[tuple[int, int]]:
        """Return what is ready, when something is or a timer is due."""
        now = time.monotonic()
        while now < self._awake:
            found = self._epoll.poll(0)
            if found or (self._timers and self._timers[0][0] <= now):
                return found
            now = time.monotonic()
        return self._epoll.poll(self._patience())

    def _patience(self) -> float:
        """Return how long epoll may wait; sleep first where it is too coarse for that."""
        if not self._timers:
            return _LONGEST
        until = self._timers[0][0] - time.monotonic()
        if until > _COARSE:
            return min(until - _COARSE / 2, _LONGEST)
        if until > _EARLY:
            select.select([self._epoll.fileno()], [], [], until - _EARLY)
        return 0.0

    def _call_due(self) -> None:
        while self._timers and self._timers[0][0] <= time.monotonic():
            _, _, call, arguments = heapq.heappop(self._timers)
            call(*arguments)

    def _drain(self, events: int) -> None:
        del events
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._woken)
