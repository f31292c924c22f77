"""Processes: coroutines in virtual time, and futures that they can wait for.

`paracosm.engine.events` says how a process sleeps, waits, and is resumed, interrupted or cancelled.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Generator, Sequence
from enum import Enum
from functools import partial
from inspect import CORO_CLOSED, CORO_RUNNING, getcoroutinestate, iscoroutine
from types import coroutine
from typing import Any

from paracosm.engine.events import Cancelled, EventLoop, Stale, seconds
from paracosm.errors import InputError

# What a process runs: it yields the seconds that it sleeps, or None while it waits.
Body = Coroutine[float | None, Any, Any]
Send = Callable[[Any], float | None]

_LINES_OF_A_REPORT = 20
_INF = float("inf")
_PENDING = object()


class Interrupt(Exception):  # noqa: N818 - a message to the process, not an error
    """Thrown into a process by `Process.interrupt`; `cause` is what was given there."""

    def __init__(self, cause: object = None) -> None:
        super().__init__(cause)
        self.cause = cause


class FutureCancelledError(RuntimeError):
    """The awaited thing was cancelled and will never have a result."""


class DeadlockError(RuntimeError):
    """No events are left, at `time` in seconds, but processes wait.

    `waiting` are (name of the process, what it waits for), in the order of their registration.
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


class Scheduler(EventLoop):
    """The events of processes, and what processes can wait for."""

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
        """Return the future of the first of futures, processes and transfers to complete."""
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
                together._set(None if error else [future.result() for future in futures], error)

        if not futures:
            together.set_result([])
        for future in futures:
            future.add_callback(settle)
        return together

    def _finished(self, continuation: Any, result: object, cancelled: bool = False) -> None:
        if not isinstance(continuation, Continuation):
            raise RuntimeError("a function given to call_later raised StopIteration or Cancelled")
        self._leave(continuation.process, result, cancelled)

    def _leave(self, process: Process, result: object, cancelled: bool = False) -> None:
        raise NotImplementedError

    def _running(self) -> Continuation:
        current: Continuation | None = self._current
        if current is None:
            raise InputError(
                "only a process of a running simulation can await this: do so in the `run` of a "
                "worker, or in a coroutine given to Simulator.spawn"
            )
        return current


class WaitQueue:
    """Where processes wait, first come, first served, until somebody else does something.

    `sim` is the simulation that it belongs to; `name` is for the report of a deadlock.
    """

    __slots__ = ("_sim", "_waiting", "name")

    _waiting: list[Continuation] | deque[Continuation]

    def __init__(self, sim: Scheduler, name: str) -> None:
        self._sim = sim
        self.name = name

    def remove(self, continuation: Continuation) -> None:
        """Remove the process of `continuation` from those that wait here."""
        self._waiting.remove(continuation)

    def describe(self, continuation: Continuation) -> str:
        """Return what that process waits for, as words that follow "waits for"."""
        return self.name


class Awaitable:
    """An event that happens once: a future, or something that has one."""

    __slots__ = ()

    def _as_future(self) -> Future:
        raise NotImplementedError

    def __await__(self) -> Generator[None, Any, Any]:
        return self._as_future().__await__()


class Future(Awaitable, WaitQueue):
    """A value, or an exception, that is set once and that any number of processes may await.

    Those that wait continue at the instant at which it is set, in the order in which they came.

    Futures are for the answer to a question, a condition that several processes wait for, or the
    first of several events. Messages, sleeping and queues do not use futures; they hand a process
    its value directly, which is several times cheaper. Receiving a message or getting an item
    cannot be combined with other things, since it removes something: a process that waits for "the
    next item or five seconds" and gives up would remove an item that nobody sees. Use the time-out
    of `recv`, or a process of its own (`Simulator.spawn`).
    """

    __slots__ = ("_callbacks", "_error", "_value")

    _waiting: list[Continuation]

    def __init__(self, sim: Scheduler, name: str = "a future") -> None:
        WaitQueue.__init__(self, sim, name)
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
            continuation.wait_queue = None
            self._sim._ready.append((continuation, None))

    def _as_future(self) -> Future:
        return self

    def __await__(self) -> Generator[None, Any, Any]:
        if self._value is _PENDING:
            continuation = self._sim._running()
            continuation.wait_queue = self
            self._waiting.append(continuation)
            yield
        return self.result()


def _as_future(thing: Awaitable) -> Future:
    if isinstance(thing, Awaitable):
        return thing._as_future()
    raise InputError(
        f"futures, processes and transfers can be combined, not {thing!r}: "
        "give a coroutine to Simulator.spawn, and combine the process"
    )


def _settle_first(first: Future, thing: Awaitable, future: Future) -> None:
    if not first.done:
        first._set(thing, future.exception())


class State(Enum):
    """The states of a process: Zhang, Tanimura, Nakada, "A Hybrid Simulator to Analyze Gradient
    Staleness Effect", section 3.3.2.

    Derived from where the process is, not stored, so that changing it costs nothing.
    """

    INITIAL = "initial"  # it has not started
    RUNNING = "running"  # its code runs, now
    SLEEPING = "sleeping"  # it goes on at a known time (which may be now)
    WAITING = "waiting"  # it continues when somebody else does something
    DONE = "done"  # it has returned, or was cancelled


class Continuation:
    """The handle to resume a blocked process.

    `send` resumes the process with a value and returns the seconds that it then sleeps, or None;
    `wait_queue` is where it waits, None while it sleeps or runs, cleared on resumption.
    """

    __slots__ = ("process", "send", "wait_queue")

    def __init__(self, process: Process, send: Send) -> None:
        self.process = process
        self.send = send
        self.wait_queue: WaitQueue | None = None

    @property
    def stale(self) -> bool:
        return self.send is _stale


def _ignore(_: object) -> None:
    pass


def _stale(_: object) -> None:
    raise Stale


class Process(Awaitable):
    """One coroutine in virtual time. Made by `Simulator.add_worker` and `Simulator.spawn`.

    Awaiting a process waits until it is done and gives what its `run` returned.

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

    def _begin(self) -> Continuation:
        """Return what starts the process, whose coroutine is made only then."""
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

    def _end(self, result: object, cancelled: bool) -> None:
        self.done, self.cancelled, self.result = True, cancelled, result
        self.__continuation = self.__body = None
        self.__settle()

    def _has_ended(self) -> bool:
        """Whether the coroutine has returned or raised, even if that is not yet recorded."""
        return self.__body is not None and getcoroutinestate(self.__body) == CORO_CLOSED

    def _waits_for(self) -> str:
        continuation = self.__continuation
        if continuation is None or continuation.wait_queue is None:
            return "something that is not part of the simulation"
        return continuation.wait_queue.describe(continuation)

    async def run(self) -> Any:
        """The process's code, defined by subclasses."""
        raise NotImplementedError(f"{type(self).__name__} must define `async def run(self)`")

    @property
    def state(self) -> State:
        """The state of the process."""
        if self.done:
            return State.DONE
        if self.__continuation is None or self.__body is None:
            return State.INITIAL
        if getcoroutinestate(self.__body) == CORO_RUNNING:
            return State.RUNNING
        return State.SLEEPING if self.__continuation.wait_queue is None else State.WAITING

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
        if continuation is None or continuation.process is not self:
            raise InputError(
                f"{self.name}.wait() blocks {self.name} itself, so only {self.name} can await it; "
                f"to wait until {self.name} is done, await {self.name}"
            )
        continuation.wait_queue = _NOTIFICATION
        return (yield)

    def notify(self, value: object = None) -> bool:
        """Release the process from `wait`, which returns `value`; return whether it was waiting.

        As with the objects of Java, a notification that nobody waits for is lost.
        """
        continuation = self.__continuation
        if continuation is None or continuation.wait_queue is not _NOTIFICATION:
            return False
        continuation.wait_queue = None
        self.sim._ready.append((continuation, value))
        return True

    def interrupt(self, cause: object = None) -> bool:
        """Throw `Interrupt(cause)` into the blocked process.

        Return False if it is done already or has not started. A process cannot interrupt itself.
        """
        return self.__throw(Interrupt(cause), "interrupt")

    def cancel(self) -> bool:
        """Throw `Cancelled` into the blocked process; it may clean up, and is done.

        Return False if it is done already. A process cannot cancel itself.
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
        if continuation.wait_queue is not None:
            continuation.wait_queue.remove(continuation)
            continuation.wait_queue = None
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


Walker = Process  # its name in version 0.1


class Task(Process):
    __slots__ = ("_body",)

    def __init__(self, body: Body) -> None:
        self._body = body

    def run(self) -> Body:
        return self._body

    def _end(self, result: object, cancelled: bool) -> None:
        self._body.close()  # or Python complains of a coroutine that was never awaited
        super()._end(result, cancelled)


class _Notification(WaitQueue):
    """The place of those that wait for `notify`; it holds nothing."""

    def __init__(self) -> None:
        self.name = "a notification"

    def remove(self, continuation: Continuation) -> None:
        pass


_NOTIFICATION = _Notification()


def _throw_once(continuation: Continuation, body: Body, send: Send, error: BaseException) -> Send:
    """Return a `send` that throws `error` instead, once."""

    def throw(_: object) -> float | None:
        continuation.send = send
        return body.throw(error)

    return throw


def _then_throw(continuation: Continuation, body: Body, send: Send, error: BaseException) -> Send:
    """Return a `send` that gives the process its value and throws `error` where it blocks next."""

    def send_then_throw(value: object) -> float | None:
        continuation.send = send
        send(value)
        if continuation.wait_queue is not None:
            continuation.wait_queue.remove(continuation)
            continuation.wait_queue = None
        return body.throw(error)

    return send_then_throw
