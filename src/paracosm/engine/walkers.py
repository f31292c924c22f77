"""Virtual time for coroutines: the event queue, the loop that empties it, and what it resumes.

**Events** are tuples `(time, sequence, call, argument)` and happen in the order of (time,
sequence): at the same time, the one that was scheduled first goes first. `sequence` counts up, so
no two events compare equal and nothing is ever ordered by its type, hash or address.

Where `call` is None, `argument` is resumed: it has a method `send`, as coroutines have, and is
usually the continuation of a walker that sleeps. Otherwise `call` is called with `argument`: the
end of a transfer is such an event. If it returns a continuation, that one is resumed with
`argument`: the receiver, with its message.

The queue is two binary heaps, of which the one with the earlier event at its top comes next. The
ends of transfers, of which only as many are under way as there are ports, have a heap of their own,
so that they need not sift through ten thousand walkers that sleep for much longer. The order of
events does not depend on it.

What an event wakes up at its own instant (the receiver of a message, the next holder of a resource)
does not go through a heap but through a queue, first come, first served, **which is emptied before
the next event**. A walker therefore never sees two things happen before it can react to the first
of them, and a wake-up costs O(1) instead of O(log n). Scheduling and the next event are O(log n),
cancelling O(1) amortised: what is cancelled stays in the heap as a stale entry until its time comes
or until most of the heap is stale; it never moves the clock.

**A walker** is one coroutine and the way to continue it. What it says when it blocks is what its
coroutine yields: a number, the seconds that it sleeps; or None, if it has left its continuation
where somebody will find it. That is all of the protocol, and why the kernel is fast: to sleep, no
object is made besides the event itself. The operations that block are generators marked with
`types.coroutine`, which CPython resumes without looking for an `__await__`.

The continuation is an object of its own. Whoever resumes a walker (the heap, a queue, a future)
holds the continuation and not the walker. To tear a sleeping walker away from its sleep, its
continuation is made stale and replaced; the old one may lie in the heap as long as it likes and
resumes nothing. That makes `interrupt` and `cancel` O(1), and normal events do not pay for it.

What a walker was handed is never lost: if it is interrupted after a message was given to it but
before it ran, it first gets the message, and the interrupt where it blocks next.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from enum import Enum
from functools import partial
from heapq import heapify, heappop, heappush
from inspect import CORO_CLOSED, CORO_RUNNING, getcoroutinestate, iscoroutine
from itertools import count
from math import inf
from numbers import Integral
from types import TracebackType, coroutine
from typing import Any, Generic, TypeVar

from paracosm.errors import InputError, shown

# time, sequence (a half only for marks between two events), call, argument
Event = tuple[float, float, Callable[[Any], Any] | None, Any]
# What a walker runs: it yields the seconds that it sleeps, or None while it waits.
Body = Coroutine[float | None, Any, Any]
Send = Callable[[Any], float | None]
Item = TypeVar("Item")

_LINES_OF_A_REPORT = 20
_FEW_STALE = 64
_INF = float("inf")
_PENDING = object()


class Cancelled(BaseException):
    """Thrown into a walker that is cancelled, so that it can clean up.

    Not an `Exception`, so that `except Exception` does not swallow it by accident.
    """


class Interrupt(Exception):  # noqa: N818 - a message to the walker, not an error
    """Thrown into a walker by `Walker.interrupt`; `cause` is what was given there."""

    def __init__(self, cause: object = None) -> None:
        super().__init__(cause)
        self.cause = cause


class FutureCancelledError(RuntimeError):
    """The awaited thing was cancelled and will never have a result."""


class DeadlockError(RuntimeError):
    """No events are left, at `time` in seconds, but walkers wait.

    `waiting` are (name of the walker, what it waits for), in the order of their registration.
    """

    def __init__(self, time: float, waiting: Sequence[tuple[str, str]]) -> None:
        lines = [f"{name} waits for {what}" for name, what in waiting[:_LINES_OF_A_REPORT]]
        if len(waiting) > len(lines):
            lines.append(f"and {len(waiting) - len(lines)} more")
        super().__init__(
            f"deadlock at {time:g} s: nothing is scheduled, and these wait "
            "(a server that may wait at the end is added with daemon=True):\n  "
            + "\n  ".join(lines)
        )
        self.time = time
        self.waiting = tuple(waiting)


def duration_error(what: str, value: object) -> InputError:
    return InputError(f"{what} must be a finite number of seconds, 0 or more, not {shown(value)}")


class Stale(Exception):  # noqa: N818 - a signal of the loop
    """Raised by the `send` of something that was cancelled after it was scheduled."""


class Halt(Exception):  # noqa: N818 - a signal of the loop
    """Raised to leave the loop between two events."""


def seconds(what: str, value: object) -> float:
    """Return `value` as a float, if it is a finite number of seconds, 0 or more."""
    try:
        number = float(value)  # type: ignore[arg-type]  # whatever it is, the error names it
    except (TypeError, ValueError, OverflowError):
        raise duration_error(what, value) from None
    if not 0.0 <= number < inf:
        raise duration_error(what, value)
    return number


def _count(what: str, value: Any) -> int:
    """Return `value`, if it is a whole number, 1 or more."""
    if not isinstance(value, Integral) or value < 1:
        raise InputError(f"{what} must be a whole number, 1 or more, not {shown(value)}")
    return int(value)


class Timer:
    """A function that is called once, at a future time, unless it is cancelled before."""

    __slots__ = ("_argument", "_call", "_scheduler")

    def __init__(
        self, scheduler: Scheduler, call: Callable[[Any], object], argument: object
    ) -> None:
        self._scheduler = scheduler
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
        self._scheduler._count_stale()
        return True


class Scheduler:
    """The clock (`now`, the virtual time in seconds) and the events."""

    def __init__(self) -> None:
        self.now = 0.0
        self.near: list[Event] = []  # of transfers
        self._events: list[Event] = []
        # What is resumed at this instant (it has a `send`), and with what.
        self._ready: deque[tuple[Any, Any]] = deque()
        self._tick = count().__next__
        self._current: Any = None  # the continuation of the walker that runs
        self._stale = 0
        self._observer: Any = None

    def future(self, name: str = "a future") -> Future:
        """Return a new future; `name` appears in the report of a deadlock."""
        return Future(self, name)

    def timeout(self, delay: float, value: object = None) -> Future:
        """Return a future that gets `value` in `delay` seconds."""
        delay = seconds("timeout: the delay", delay)
        future = Future(self, f"the end of {delay:g} s")
        self.call_later(delay, future.set_result, value)
        return future

    def any(self, *things: Awaitable) -> Future:
        """Return the future of the first of futures, walkers and transfers to complete."""
        if not things:
            raise InputError("any needs at least one thing to wait for")
        first = Future(self, f"any of {len(things)} things")
        for thing in things:
            _as_future(thing).add_callback(partial(_settle_first, first, thing))
        return first

    def all(self, *things: Awaitable) -> Future:
        """Return the future of all results in order; it fails with the first failure."""
        futures = [_as_future(thing) for thing in things]
        together = Future(self, f"all of {len(things)} things")
        missing = len(futures)

        def settle(future: Future) -> None:
            nonlocal missing
            missing -= 1
            error = future.exception()
            if not together.done and (error is not None or not missing):
                together._set(None if error else [each.result() for each in futures], error)

        if not futures:
            together.set_result([])
        for future in futures:
            future.add_callback(settle)
        return together

    def call_later(
        self, delay: float, call: Callable[[Any], object], argument: object = None
    ) -> Timer:
        """Call `call(argument)` in `delay` seconds of virtual time, outside of any walker."""
        timer = Timer(self, call, argument)
        heappush(self._events, (self.now + seconds("the delay", delay), self._tick(), None, timer))
        return timer

    def _anything_left(self) -> bool:
        if self._ready or self.near:
            return True
        return any(call or not what.stale for _, _, call, what in self._events)

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
                    f"a walker awaited {sleep!r}, which does not belong to this simulation: await "
                    "what the engine offers (sleep, recv, execute, a future, ...)"
                ) from None

    def _finished(self, continuation: Any, result: object, cancelled: bool = False) -> None:
        if not isinstance(continuation, Continuation):
            raise RuntimeError("a function given to call_later raised StopIteration or Cancelled")
        self._leave(continuation.walker, result, cancelled)

    def _leave(self, walker: Walker, result: object, cancelled: bool = False) -> None:
        raise NotImplementedError

    def _running(self) -> Continuation:
        current: Continuation | None = self._current
        if current is None:
            raise InputError(
                "only a walker of a running simulation can await this: do so in the `run` of a "
                "worker, or in a coroutine given to Simulator.spawn"
            )
        return current


class Place:
    """Where walkers wait, first come, first served, until somebody else does something.

    `sim` is the simulation that it belongs to; `name` is for the report of a deadlock.
    """

    __slots__ = ("_sim", "_waiting", "name")

    _waiting: list[Continuation] | deque[Continuation]

    def __init__(self, sim: Scheduler, name: str) -> None:
        self._sim = sim
        self.name = name

    def forget(self, continuation: Continuation) -> None:
        """Remove the walker of `continuation` from those that wait here."""
        self._waiting.remove(continuation)

    def describe(self, continuation: Continuation) -> str:
        """Return what that walker waits for, as words that follow "waits for"."""
        return self.name


class Awaitable:
    """An event that happens once: a future, or something that has one."""

    __slots__ = ()

    def _as_future(self) -> Future:
        raise NotImplementedError

    def __await__(self) -> Generator[None, Any, Any]:
        return self._as_future().__await__()


class Future(Awaitable, Place):
    """A value, or an exception, that is set once and that any number of walkers may await.

    Those that wait continue at the instant at which it is set, in the order in which they came.

    Futures are for the answer to a question, a condition that several walkers wait for, or the
    first of several events. Messages, sleeping and queues do not use futures; they hand a walker
    its value directly, which is several times cheaper. Receiving a message or getting an item
    cannot be combined with other things, since it removes something: a walker that waits for "the
    next item or five seconds" and gives up would remove an item that nobody sees. Use the time-out
    of `recv`, or a walker of its own (`Simulator.spawn`).
    """

    __slots__ = ("_callbacks", "_error", "_value")

    _waiting: list[Continuation]

    def __init__(self, sim: Scheduler, name: str = "a future") -> None:
        Place.__init__(self, sim, name)
        self._value: Any = _PENDING
        self._error: BaseException | None = None
        self._waiting = []
        self._callbacks: list[Callable[[Future], object]] = []

    @property
    def done(self) -> bool:
        return self._value is not _PENDING

    @property
    def cancelled(self) -> bool:
        return isinstance(self._error, FutureCancelledError)

    def result(self) -> Any:
        """Return the value, or raise the exception; `RuntimeError` if neither is set yet."""
        if self._value is _PENDING:
            raise RuntimeError(f"{self.name} has no result yet: await it")
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self) -> BaseException | None:
        """Return the exception, if there is one."""
        return self._error

    def set_result(self, value: object = None) -> None:
        """Set the value, once, and resume those that wait for it."""
        self._set(value, None)

    def set_exception(self, error: BaseException) -> None:
        """Set an exception, which is raised in those that wait; otherwise as `set_result`."""
        given: Any = error
        if not isinstance(given, BaseException):
            raise InputError(f"set_exception: give an exception, not {given!r}")
        self._set(None, error)

    def cancel(self) -> bool:
        """Cancel it; those that wait get `FutureCancelledError`. Return whether it was pending."""
        if self.done:
            return False
        self._set(None, FutureCancelledError(f"{self.name} was cancelled"))
        return True

    def add_callback(self, call: Callable[[Future], object]) -> None:
        """Call `call(future)` when it is done, or now if it is, before those that wait continue."""
        if self.done:
            call(self)
        else:
            self._callbacks.append(call)

    def _set(self, value: object, error: BaseException | None) -> None:
        if self.done:
            raise RuntimeError(f"{self.name} is done already")
        self._value, self._error = value, error
        callbacks, self._callbacks = self._callbacks, []
        waiting, self._waiting = self._waiting, []
        for call in callbacks:
            call(self)
        for continuation in waiting:
            continuation.place = None
            self._sim._ready.append((continuation, None))

    def _as_future(self) -> Future:
        return self

    def __await__(self) -> Generator[None, Any, Any]:
        if self._value is _PENDING:
            continuation = self._sim._running()
            continuation.place = self
            self._waiting.append(continuation)
            yield
        return self.result()


def _as_future(thing: Awaitable) -> Future:
    if isinstance(thing, Awaitable):
        return thing._as_future()
    raise InputError(
        f"futures, walkers and transfers can be combined, not {thing!r}: "
        "give a coroutine to Simulator.spawn, and combine the walker"
    )


def _settle_first(first: Future, thing: Awaitable, future: Future) -> None:
    if not first.done:
        first._set(thing, future.exception())


class State(Enum):
    """The states of a walker: Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient
    Staleness Effect", section 3.3.2.

    Derived from where the walker is, not stored, so that changing it costs nothing.
    """

    INITIAL = "initial"  # it has not started
    RUNNING = "running"  # its code runs, now
    SLEEPING = "sleeping"  # it goes on at a known time (which may be now)
    WAITING = "waiting"  # it continues when somebody else does something
    DONE = "done"  # it has returned, or was cancelled


class Continuation:
    """The handle to resume a blocked walker.

    `send` resumes the walker with a value and returns the seconds that it then sleeps, or None;
    `place` is where it waits, None while it sleeps or runs, cleared on resumption.
    """

    __slots__ = ("place", "send", "walker")

    def __init__(self, walker: Walker, send: Send) -> None:
        self.walker = walker
        self.send = send
        self.place: Place | None = None

    @property
    def stale(self) -> bool:
        return self.send is _stale


def _ignore(_: object) -> None:
    pass


def _stale(_: object) -> None:
    raise Stale


class Walker(Awaitable):
    """One coroutine in virtual time. Made by `Simulator.add_worker` and `Simulator.spawn`.

    Awaiting a walker waits until it is done and gives what its `run` returned.

    Attributes:
        name: unique among the workers of its simulation.
        sim: the simulation that it belongs to.
        daemon: whether it may still wait when the simulation ends.
        done: whether it has returned, or was cancelled.
        cancelled: whether it was cancelled.
        result: what `run` returned; None before that.
    """

    __slots__ = (
        *("__body", "__continuation", "__end", "cancelled", "daemon", "done", "name"),
        *("result", "sim"),
    )

    name: str
    sim: Scheduler
    daemon: bool

    def _join_simulation(self, sim: Scheduler, name: str, daemon: bool) -> None:
        """Join the simulation; before `__init__`, which may already use `sim`."""
        self.sim = sim
        self.name = name
        self.daemon = daemon
        self.__body: Body | None = None
        self.__continuation: Continuation | None = None
        self.done = self.cancelled = False
        self.result: Any = None
        self.__end: Future | None = None

    def _begin_walking(self) -> Continuation:
        """Return what starts the walker, whose coroutine is made only then."""
        self.__continuation = Continuation(self, self.__start)
        self.__watch(self.__continuation)
        return self.__continuation

    def __start(self, _: object) -> float | None:
        body = self.run()
        if not iscoroutine(body):
            raise InputError(f"{type(self).__name__}.run must be an `async def`")
        self.__body = body
        continuation: Continuation = self.sim._current
        continuation.send = body.send
        self.__watch(continuation)
        sleep: float | None = body.send(None)
        return sleep

    def _end_walking(self, result: object, cancelled: bool) -> None:
        self.done, self.cancelled, self.result = True, cancelled, result
        self.__continuation = self.__body = None
        self.__settle()

    def _has_ended(self) -> bool:
        """Whether the coroutine has returned or raised, even if that is not yet recorded."""
        return self.__body is not None and getcoroutinestate(self.__body) == CORO_CLOSED

    def _waits_for(self) -> str:
        continuation = self.__continuation
        if continuation is None or continuation.place is None:
            return "something that is not part of the simulation"
        return continuation.place.describe(continuation)

    async def run(self) -> Any:
        """The walker's code, defined by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} must define `async def run(self)`")

    @property
    def state(self) -> State:
        """The state of the walker."""
        if self.done:
            return State.DONE
        if self.__continuation is None or self.__body is None:
            return State.INITIAL
        if getcoroutinestate(self.__body) == CORO_RUNNING:
            return State.RUNNING
        return State.SLEEPING if self.__continuation.place is None else State.WAITING

    @coroutine
    def sleep(self, duration: float) -> Generator[float, None, None]:
        """Continue after `duration` seconds of virtual time."""
        # A comparison of two floats and nothing else on the way of a good value.
        if duration.__class__ is not float or not 0.0 <= duration < _INF:
            duration = seconds("sleep: the duration", duration)
        yield duration

    @coroutine
    def wait(self) -> Generator[None, Any, Any]:
        """Block until `notify` is called, and return its value."""
        continuation = self.sim._current
        if continuation is None or continuation.walker is not self:
            raise InputError(
                f"{self.name}.wait() blocks {self.name} itself, so only {self.name} can await it; "
                f"to wait until {self.name} is done, await {self.name}"
            )
        continuation.place = _NOTIFICATION
        return (yield)

    def notify(self, value: object = None) -> bool:
        """Release the walker from `wait`, which returns `value`; return whether it was waiting.

        As with the objects of Java, a notification that nobody waits for is lost.
        """
        continuation = self.__continuation
        if continuation is None or continuation.place is not _NOTIFICATION:
            return False
        continuation.place = None
        self.sim._ready.append((continuation, value))
        return True

    def interrupt(self, cause: object = None) -> bool:
        """Throw `Interrupt(cause)` into the blocked walker.

        Return False if it is done already or has not started. A walker cannot interrupt itself.
        """
        return self.__throw(Interrupt(cause), "interrupt")

    def cancel(self) -> bool:
        """Throw `Cancelled` into the blocked walker; it may clean up, and is done.

        Return False if it is done already. A walker cannot cancel itself.
        """
        if self.state is not State.INITIAL:
            return self.__throw(Cancelled(), "cancel")
        if self.__continuation is not None:
            self.__continuation.send = _ignore
        self.sim._leave(self, None, cancelled=True)
        return True

    def __throw(self, error: BaseException, verb: str) -> bool:
        state = self.state
        if state is State.RUNNING:
            raise RuntimeError(f"{self.name} cannot {verb} itself while it runs: return or raise")
        continuation, body = self.__continuation, self.__body
        if continuation is None or body is None:  # it has not started, or is done
            return False
        ready = self.sim._ready
        if continuation.place is not None:
            continuation.place.forget(continuation)
            continuation.place = None
        elif any(entry[0] is continuation for entry in ready):
            # It was handed something that must not be lost: it takes that first.
            continuation.send = _then_throw(continuation, body, continuation.send, error)
            self.__watch(continuation)
            return True
        else:
            send, continuation.send = continuation.send, _stale
            self.sim._count_stale()
            continuation = self.__continuation = Continuation(self, send)
        continuation.send = _throw_once(continuation, body, continuation.send, error)
        self.__watch(continuation)
        ready.append((continuation, None))
        return True

    def __watch(self, continuation: Continuation) -> None:
        if self.sim._observer is not None:
            self.sim._observer.watch(continuation)

    def _as_future(self) -> Future:
        if self.__end is None:
            self.__end = Future(self.sim, f"the end of {self.name}")
            if self.done:
                self.__settle()
        return self.__end

    def __settle(self) -> None:
        if self.__end is not None and self.cancelled:
            self.__end.cancel()
        elif self.__end is not None:
            self.__end.set_result(self.result)

    def __repr__(self) -> str:
        name = getattr(self, "name", None)
        where = f"{name!r}, {self.state.value}" if name else "in no simulation"
        return f"<{type(self).__name__} {where}>"


class Task(Walker):
    __slots__ = ("_body",)

    def __init__(self, body: Body) -> None:
        self._body = body

    def run(self) -> Body:
        return self._body

    def _end_walking(self, result: object, cancelled: bool) -> None:
        self._body.close()  # or Python complains of a coroutine that was never awaited
        super()._end_walking(result, cancelled)


class _Notification(Place):
    """The place of those that wait for `notify`; it holds nothing."""

    def __init__(self) -> None:
        self.name = "a notification"

    def forget(self, continuation: Continuation) -> None:
        pass


_NOTIFICATION = _Notification()


def _throw_once(continuation: Continuation, body: Body, send: Send, error: BaseException) -> Send:
    """Return a `send` that throws `error` instead, once."""

    def throw(_: object) -> float | None:
        continuation.send = send
        return body.throw(error)

    return throw


def _then_throw(continuation: Continuation, body: Body, send: Send, error: BaseException) -> Send:
    """Return a `send` that gives the walker its value and throws `error` where it blocks next."""

    def send_then_throw(value: object) -> float | None:
        continuation.send = send
        send(value)
        if continuation.place is not None:
            continuation.place.forget(continuation)
            continuation.place = None
        return body.throw(error)

    return send_then_throw


class Queue(Place, Generic[Item]):
    """Items in the order in which they were put; walkers get them in the order in which they came.

    An item goes straight to the first walker that waits, and walkers that are interrupted or
    cancelled are removed, so no item is lost. All operations are O(1). It holds `capacity` items at
    most, by default without limit.
    """

    __slots__ = ("_getters", "_items", "_putters", "capacity")

    def __init__(self, sim: Scheduler, capacity: int | None = None, name: str = "a queue") -> None:
        super().__init__(sim, name)
        self.capacity = None if capacity is None else _count("queue: the capacity", capacity)
        self._items: deque[Item] = deque()
        self._getters: deque[Continuation] = deque()
        self._putters: deque[tuple[Continuation, Item]] = deque()

    def __len__(self) -> int:
        return len(self._items)

    def put_nowait(self, item: Item) -> None:
        """Put an item; `InputError` if the queue is full."""
        if self._getters:
            continuation = self._getters.popleft()
            continuation.place = None
            self._sim._ready.append((continuation, item))
        elif self.capacity is None or len(self._items) < self.capacity:
            self._items.append(item)
        else:
            raise InputError(f"{self.name} is full: await put(item) to wait for room")

    @coroutine
    def put(self, item: Item) -> Generator[None, Any, None]:
        """Put an item, as soon as there is room."""
        if self._getters or self.capacity is None or len(self._items) < self.capacity:
            self.put_nowait(item)
            return
        continuation = self._sim._running()
        continuation.place = self
        self._putters.append((continuation, item))
        yield

    @coroutine
    def get(self) -> Generator[None, Any, Item]:
        """Take the first item, as soon as there is one."""
        items = self._items
        if items:
            item = items.popleft()
            if self._putters:
                self._admit()
            return item
        continuation = self._sim._current or self._sim._running()
        continuation.place = self
        self._getters.append(continuation)
        item = yield
        return item

    def get_nowait(self) -> Item:
        """Take the first item; `InputError` if the queue is empty."""
        if not self._items:
            raise InputError(f"{self.name} is empty: await get() to wait for an item")
        item = self._items.popleft()
        if self._putters:
            self._admit()
        return item

    def _admit(self) -> None:
        continuation, item = self._putters.popleft()
        self._items.append(item)
        continuation.place = None
        self._sim._ready.append((continuation, None))

    def forget(self, continuation: Continuation) -> None:
        if continuation in self._getters:
            self._getters.remove(continuation)
        else:
            self._putters = deque(put for put in self._putters if put[0] is not continuation)

    def describe(self, continuation: Continuation) -> str:
        what = "an item of" if continuation in self._getters else "room in"
        return f"{what} {self.name}"


class Resource(Place):
    """`capacity` places; walkers that find all taken wait, first come, first served.

        async with resource:
            await self.sleep(1.0)

    A place is handed on directly: nobody who comes later can overtake. O(1).
    """

    __slots__ = ("capacity", "held")

    _waiting: deque[Continuation]

    def __init__(self, sim: Scheduler, capacity: int = 1, name: str = "a resource") -> None:
        super().__init__(sim, name)
        self.capacity = _count("resource: the capacity", capacity)
        self.held = 0
        self._waiting = deque()

    @coroutine
    def acquire(self) -> Generator[None, Any, None]:
        """Take a place, as soon as there is one."""
        if self.held < self.capacity:
            self.held += 1
            return
        continuation = self._sim._running()
        continuation.place = self
        self._waiting.append(continuation)
        yield

    def release(self) -> None:
        """Give a place back; `InputError` if nobody holds one."""
        if not self.held:
            raise InputError(f"{self.name} was released more often than it was acquired")
        if self._waiting:
            continuation = self._waiting.popleft()
            continuation.place = None
            self._sim._ready.append((continuation, None))
        else:
            self.held -= 1

    async def __aenter__(self) -> None:
        await self.acquire()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()


class Barrier(Place):
    """Holds walkers until `parties` of them have arrived, then releases all, and starts again.

    They continue at that instant: the last one first, who never stops, then the others in order.
    """

    __slots__ = ("parties",)

    _waiting: list[Continuation]

    def __init__(self, sim: Scheduler, parties: int, name: str = "a barrier") -> None:
        super().__init__(sim, name)
        self.parties = _count("barrier: the number of parties", parties)
        self._waiting = []

    @coroutine
    def wait(self) -> Generator[None, Any, int]:
        """Wait for the others, and return how many arrived earlier: 0 for the first."""
        position = len(self._waiting)
        if position + 1 == self.parties:
            for continuation in self._waiting:
                continuation.place = None
                self._sim._ready.append((continuation, None))
            self._waiting.clear()
        else:
            continuation = self._sim._running()
            continuation.place = self
            self._waiting.append(continuation)
            yield
        return position

    def describe(self, continuation: Continuation) -> str:
        return f"{self.name} ({len(self._waiting)} of {self.parties} are there)"
