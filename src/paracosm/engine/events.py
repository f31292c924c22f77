"""Virtual time for coroutines: the event queue, the loop that empties it, and what it resumes.

**Events** are tuples `(time, sequence, call, argument)` and happen in the order of (time,
sequence): at the same time, the one that was scheduled first goes first. `sequence` counts up, so
no two events compare equal and nothing is ever ordered by its type, hash or address.

Where `call` is None, `argument` is resumed: it has a method `send`, as coroutines have, and is
usually the continuation of a process that sleeps. Otherwise `call` is called with `argument`: the
end of a transfer is such an event. If it returns a continuation, that one is resumed with
`argument`: the receiver, with its message.

The queue is two binary heaps, of which the one with the earlier event at its top comes next. The
ends of transfers, of which only as many are under way as there are ports, have a heap of their own,
so that they need not sift through ten thousand processes that sleep for much longer. The order of
events does not depend on it.

What an event wakes up at its own instant (the receiver of a message, the next holder of a resource)
does not go through a heap but through a queue, first come, first served, **which is emptied before
the next event**. A process therefore never sees two things happen before it can react to the first
of them, and a wake-up costs O(1) instead of O(log n). Scheduling and the next event are O(log n),
cancelling O(1) amortised: what is cancelled stays in the heap as a stale entry until its time comes
or until most of the heap is stale; it never moves the clock.

**A process** is one coroutine and the way to continue it. What it says when it blocks is what its
coroutine yields: a number, the seconds that it sleeps; or None, if it has left its continuation
where somebody will find it. That is all of the protocol, and why the kernel is fast: to sleep, no
object is made besides the event itself. The operations that block are generators marked with
`types.coroutine`, which CPython resumes without looking for an `__await__`.

The continuation is an object of its own. Whoever resumes a process (the heap, a queue, a future)
holds the continuation and not the process. To tear a sleeping process away from its sleep, its
continuation is made stale and replaced; the old one may lie in the heap as long as it likes and
resumes nothing. That makes `interrupt` and `cancel` O(1), and normal events do not pay for it.

What a process was handed is never lost: if it is interrupted after a message was given to it but
before it ran, it first gets the message, and the interrupt where it blocks next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from itertools import count
from math import inf
from typing import Any

from paracosm.errors import InputError, shown

# time, sequence (a half only for marks between two events), call, argument
Event = tuple[float, float, Callable[[Any], Any] | None, Any]

_FEW_STALE = 64


class Cancelled(BaseException):
    """Thrown into a process that is cancelled, so that it can clean up.

    Not an `Exception`, so that `except Exception` does not swallow it by accident.
    """


class Stale(Exception):  # noqa: N818 - a signal of the loop
    """Raised by the `send` of something that was cancelled after it was scheduled."""


class Halt(Exception):  # noqa: N818 - a signal of the loop
    """Raised to leave the loop between two events."""


def duration_error(quantity: str, value: object) -> InputError:
    return InputError(
        f"{quantity} must be a finite number of seconds, 0 or more, not {shown(value)}"
    )


def seconds(quantity: str, value: object) -> float:
    """Return `value` as a float, if it is a finite number of seconds, 0 or more."""
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever it is, the error names it
    except (TypeError, ValueError, OverflowError):
        raise duration_error(quantity, value) from None
    if not 0.0 <= number < inf:
        raise duration_error(quantity, value)
    return number


class Timer:
    """A function that is called once, at a future time, unless it is cancelled before."""

    __slots__ = ("_argument", "_call", "_events")

    def __init__(self, events: EventLoop, call: Callable[[Any], object], argument: object) -> None:
        self._events = events
        self._call: Callable[[Any], object] | None = call
        self._argument = argument

    def send(self, _: object) -> None:
        call, self._call = self._call, None
        if call is None:
            raise Stale
        call(self._argument)

    @property
    def stale(self) -> bool:
        return self._call is None

    def cancel(self) -> bool:
        """Prevent the call; return whether it was still pending."""
        if self._call is None:
            return False
        self._call = self._argument = None
        self._events._count_stale()
        return True


class EventLoop:
    """The clock (`now`, the virtual time in seconds), the events, and the loop that empties them.

    Attributes:
        now: the virtual time, in seconds.
        near: the heap of the ends of transfers.
    """

    def __init__(self) -> None:
        self.now = 0.0
        self.near: list[Event] = []  # of transfers
        self._events: list[Event] = []
        # What is resumed at this instant (it has a `send`), and with what.
        self._ready: deque[tuple[Any, Any]] = deque()
        self._tick = count().__next__
        self._current: Any = None  # the continuation of the process that runs
        self._stale = 0
        self._observer: Any = None

    def call_later(
        self, delay: float, call: Callable[[Any], object], argument: object = None
    ) -> Timer:
        """Call `call(argument)` in `delay` seconds of virtual time, outside of any process."""
        timer = Timer(self, call, argument)
        heappush(self._events, (self.now + seconds("the delay", delay), self._tick(), None, timer))
        return timer

    def _anything_left(self) -> bool:
        if self._ready or self.near:
            return True
        return any(call or not target.stale for _, _, call, target in self._events)

    def _count_stale(self) -> None:
        self._stale += 1
        if self._stale > _FEW_STALE and 2 * self._stale > len(self._events):
            # In place: the loop holds on to the list. What is not stale keeps its order, since
            # the order of events does not depend on how the heap happens to lie.
            self._events[:] = [event for event in self._events if event[2] or not event[3].stale]
            heapify(self._events)
            self._stale = 0

    def _loop(self) -> bool:
        """Process events until none is left (True) or the run is stopped (False).

        The two ways to resume repeat the same lines: a shared function would cost as much as all
        the rest of an event.
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
                    f"a process awaited {sleep!r}, which does not belong to this simulation: await "
                    "what the engine offers (sleep, recv, execute, a future, ...)"
                ) from None

    def _finished(self, continuation: Any, result: object, cancelled: bool = False) -> None:
        """Note that what was resumed last has returned, or was cancelled."""
        raise NotImplementedError
