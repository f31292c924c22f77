"""Virtual time: the event queue, and the loop that empties it.

Events are tuples `(time, sequence, call, argument)`. **They happen in the order of (time,
sequence)**: at the same time, the one that was scheduled first goes first. `sequence` counts up, so
no two events compare equal and nothing is ever ordered by its type, hash or address.

An event is one of two things. Where `call` is None, `argument` is resumed: it has a method `send`,
as coroutines have, and is usually the continuation of a walker that sleeps. Otherwise `call` is
called with `argument`: the end of a transfer is such an event. If it returns a continuation, that
one is resumed with `argument`: the receiver, with its message.

The queue is two binary heaps, of which the one with the earlier event at its top comes next. The
ends of transfers, of which only as many are under way as there are ports, have a heap of their own,
so that they need not sift through ten thousand walkers that sleep for much longer. The order of
events does not depend on it.

What an event wakes up at its own instant (the receiver of a message, the next holder of a resource)
does not go through a heap but through a queue, first come, first served, **which is emptied before
the next event**. A walker therefore never sees two things happen before it can react to the first
of them, and a wake-up costs O(1) instead of O(log n).

What a walker says when it blocks is what its coroutine yields: a number, the seconds that it
sleeps; or None, if it has left its continuation where somebody will find it. That is all of the
protocol, and why the kernel is fast: to sleep, no object is made besides the event itself. The
operations that block are generators marked with `types.coroutine`, which CPython resumes without
looking for an `__await__`.

Costs: scheduling and the next event O(log n); a wake-up O(1); cancelling O(1) amortised. What is
cancelled stays in the heap as a stale entry until its time comes or until most of the heap is
stale; it never moves the clock.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any, Protocol

from paracosm.engine.errors import Cancelled, duration_error
from paracosm.errors import InputError

# time, sequence (a half only for marks between two events), call, argument
Event = tuple[float, float, Callable[[Any], Any] | None, Any]

__all__ = ["Resumable", "Scheduler", "Stale", "Timer", "seconds"]

_FEW_STALE = 64


class Resumable(Protocol):
    """What can be scheduled: `send` continues it, and returns the seconds until the next time."""

    @property
    def send(self) -> Callable[[Any], float | None]: ...


class Stale(Exception):  # noqa: N818
    """Raised by the `send` of something that was cancelled after it was scheduled."""


class Halt(Exception):  # noqa: N818
    """Raised to leave the loop between two events."""


def seconds(what: str, value: object) -> float:
    """Return `value` as a float.

    Raises:
        InputError: it is no finite number of seconds, or below 0.
    """
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever it is, the error names it
    except (TypeError, ValueError):
        raise duration_error(what, value) from None
    if not 0.0 <= number < inf:
        raise duration_error(what, value)
    return number


class Timer:
    """A function that is called once, at a time to come, unless it is cancelled before."""

    __slots__ = ("_argument", "_call", "_scheduler")

    def __init__(
        self, scheduler: Scheduler, call: Callable[[Any], object], argument: object
    ) -> None:
        self._scheduler = scheduler
        self._call: Callable[[Any], object] | None = call
        self._argument = argument

    def send(self, _: object) -> None:
        """Make the call; the loop does, when the time has come."""
        call, self._call = self._call, None
        if call is None:
            raise Stale
        call(self._argument)

    @property
    def stale(self) -> bool:
        """Whether the call was cancelled, or made."""
        return self._call is None

    def cancel(self) -> bool:
        """Prevent the call; return whether it was still to come."""
        if self._call is None:
            return False
        self._call = self._argument = None
        self._scheduler._count_stale()
        return True


class Scheduler:
    """The clock and what is to happen.

    Attributes:
        now: the virtual time, in seconds.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self._events: list[Event] = []
        self.near: list[Event] = []  # of transfers
        self._ready: deque[tuple[Resumable, Any]] = deque()
        self._tick = count().__next__
        self._current: Any = None  # the continuation of the walker that runs
        self._stale = 0

    def call_later(
        self, delay: float, call: Callable[[Any], object], argument: object = None
    ) -> Timer:
        """Call `call(argument)` in `delay` seconds of virtual time, outside of any walker.

        Raises:
            InputError: the delay is negative or not finite.
        """
        timer = Timer(self, call, argument)
        heappush(self._events, (self.now + seconds("the delay", delay), self._tick(), None, timer))
        return timer

    def _anything_left(self) -> bool:
        """Whether something is still to happen; stale entries do not count."""
        if self._ready or self.near:
            return True
        return any(call or not what.stale for _, _, call, what in self._events)

    def _count_stale(self) -> None:
        """Note that one more entry is stale; drop them all once they are most of the heap."""
        self._stale += 1
        if self._stale > _FEW_STALE and 2 * self._stale > len(self._events):
            # In place: the loop holds on to the list. What is not stale keeps its order, since
            # the order of events does not depend on how the heap happens to lie.
            self._events[:] = [event for event in self._events if event[2] or not event[3].stale]
            heapify(self._events)
            self._stale = 0

    def _loop(self) -> bool:
        """Let everything happen until nothing is left (True) or somebody stops it (False).

        The two ways to resume are the same lines twice: a function that both call would cost as
        much as all the rest of an event.
        """
        events, near, ready, tick = self._events, self.near, self._ready, self._tick
        push, pop, popleft = heappush, heappop, ready.popleft
        now = before = self.now
        sleep: float | None = None
        while True:
            try:
                while True:
                    while ready:
                        continuation, value = popleft()
                        self._current = continuation
                        send = continuation.send  # in two steps: a slot is no method
                        sleep = send(value)
                        if sleep is not None:
                            push(events, (now + sleep, tick(), None, continuation))
                    heap = near if near and (not events or near[0] < events[0]) else events
                    if not heap:
                        return True
                    before = now
                    now, _, call, value = pop(heap)
                    self.now = now
                    if call is None:
                        continuation, value = value, None
                    else:
                        self._current = None
                        continuation = call(value)
                        if continuation is None:
                            continue
                    self._current = continuation
                    send = continuation.send
                    sleep = send(value)
                    if sleep is not None:
                        push(events, (now + sleep, tick(), None, continuation))
            except StopIteration as end:
                self._finished(self._current, end.value)
            except Cancelled:
                self._finished(self._current, None, cancelled=True)
            except Stale:
                self._stale -= 1
                self.now = now = before
            except Halt:
                if self._current is None:  # by a mark in the heap, which does not move the clock
                    self.now = before
                return False
            except TypeError:
                if isinstance(sleep, float | None):
                    raise
                raise InputError(
                    f"a walker awaited {sleep!r}, which does not belong to this simulation: await "
                    "what the engine offers (sleep, recv, execute, a future, ...)"
                ) from None

    def _finished(self, continuation: Any, result: object, cancelled: bool = False) -> None:
        """The walker of `continuation` has come to its end."""
        raise NotImplementedError
