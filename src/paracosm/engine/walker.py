"""Walkers: everything that the scheduler schedules.

A walker is one coroutine and the way to continue it. Its five states are those of Zhang, Tanimura,
Nakada, "A Hybrid Simulator to Analyze Gradient Staleness Effect", section 3.3.2. They are derived
from where the walker is, not stored, so that changing from one to the other costs nothing:

    INITIAL   it has not started
    RUNNING   its code runs, now
    SLEEPING  its continuation is scheduled: it goes on at a known time (which may be now)
    WAITING   it goes on when somebody else does something
    DONE      it has returned, or was cancelled

The continuation is an object of its own. Whoever resumes a walker (the heap, a queue, a future)
holds the continuation and not the walker. To tear a sleeping walker away from its sleep, its
continuation is made stale and replaced; the old one may lie in the heap as long as it likes and
resumes nothing. That makes `interrupt` and `cancel` O(1), and normal events do not pay for it.

What a walker was handed is never lost: if it is interrupted after a message was given to it but
before it ran, it first gets the message, and the interrupt where it blocks next.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from enum import Enum
from inspect import CORO_CLOSED, CORO_RUNNING, getcoroutinestate, iscoroutine
from types import coroutine
from typing import TYPE_CHECKING, Any, Protocol

from paracosm.engine.errors import Cancelled, Interrupt
from paracosm.engine.future import Awaitable, Future
from paracosm.engine.scheduler import Stale, seconds
from paracosm.errors import InputError

if TYPE_CHECKING:
    from paracosm.engine.simulator import Simulator

# What a walker runs: it yields the seconds that it sleeps, or None while it waits.
Body = Coroutine[float | None, Any, Any]

__all__ = ["Continuation", "State", "Walker"]


class State(Enum):
    """Where a walker is in its life; see `paracosm.engine.walker`."""

    INITIAL = "initial"
    RUNNING = "running"
    SLEEPING = "sleeping"
    WAITING = "waiting"
    DONE = "done"


class Place(Protocol):
    """Where a walker can wait."""

    def forget(self, continuation: Continuation) -> None:
        """Let the walker of `continuation` no longer wait here."""

    def describe(self, continuation: Continuation) -> str:
        """Return what that walker waits for, in words that follow "waits for"."""


class Continuation:
    """The one way to go on with a walker that is blocked.

    Attributes:
        send: resumes the walker with a value; returns the seconds it then sleeps, or None.
        walker: whose it is.
        place: where the walker waits; None while it sleeps or runs. Who resumes clears it.
    """

    __slots__ = ("place", "send", "walker")

    def __init__(self, walker: Walker, send: Callable[[Any], float | None]) -> None:
        self.walker = walker
        self.send = send
        self.place: Place | None = None

    @property
    def stale(self) -> bool:
        """Whether the walker has another continuation by now."""
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
    """

    __slots__ = (
        "__body",
        "__cancelled",
        "__continuation",
        "__done",
        "__end",
        "__result",
        "daemon",
        "name",
        "sim",
    )

    name: str
    sim: Simulator
    daemon: bool

    def _join_simulation(self, sim: Simulator, name: str, daemon: bool) -> None:
        """Become part of the simulation; before `__init__`, which may already use `sim`."""
        self.sim = sim
        self.name = name
        self.daemon = daemon
        self.__body: Body | None = None
        self.__continuation: Continuation | None = None
        self.__done = self.__cancelled = False
        self.__result: Any = None
        self.__end: Future | None = None

    def _begin_walking(self) -> Continuation:
        """Return what starts the walker; its coroutine is made only then."""
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
        """Be done."""
        self.__done, self.__cancelled, self.__result = True, cancelled, result
        self.__continuation = self.__body = None
        self.__settle()

    def _has_ended(self) -> bool:
        """Whether the coroutine has returned or raised, though it may not be noted yet."""
        return self.__body is not None and getcoroutinestate(self.__body) == CORO_CLOSED

    def _waits_for(self) -> str:
        """Return what the walker waits for, in words."""
        continuation = self.__continuation
        if continuation is None or continuation.place is None:
            return "something that is not part of the simulation"
        return continuation.place.describe(continuation)

    async def run(self) -> Any:
        """What the walker does; a subclass must define it."""
        raise NotImplementedError(f"{type(self).__name__} must define `async def run(self)`")

    @property
    def state(self) -> State:
        """Where the walker is in its life."""
        if self.__done:
            return State.DONE
        if self.__continuation is None or self.__body is None:
            return State.INITIAL
        if getcoroutinestate(self.__body) == CORO_RUNNING:
            return State.RUNNING
        return State.SLEEPING if self.__continuation.place is None else State.WAITING

    @coroutine
    def sleep(self, duration: float) -> Generator[float, None, None]:
        """Go on in `duration` seconds of virtual time.

        Raises:
            InputError: the duration is negative or not finite.
        """
        # A comparison of two floats and nothing else on the way of a good value.
        if duration.__class__ is not float or not 0.0 <= duration < _INF:
            duration = seconds("sleep: the duration", duration)
        yield duration

    @coroutine
    def wait(self) -> Generator[None, Any, Any]:
        """Block until somebody calls `notify`, and return what was given there."""
        continuation = self.sim._current
        if continuation is None or continuation.walker is not self:
            raise InputError(
                f"{self.name}.wait() blocks {self.name} itself, so only {self.name} can await it; "
                f"to wait until {self.name} is done, await {self.name}"
            )
        continuation.place = _NOTIFICATION
        return (yield)

    def notify(self, value: object = None) -> bool:
        """Release the walker from `wait`, which returns `value`.

        As with the objects of Java, a notification that nobody waits for is lost.

        Returns:
            Whether the walker was waiting for it.
        """
        continuation = self.__continuation
        if continuation is None or continuation.place is not _NOTIFICATION:
            return False
        continuation.place = None
        self.sim._ready.append((continuation, value))
        return True

    def interrupt(self, cause: object = None) -> bool:
        """Throw `Interrupt(cause)` into the walker where it is blocked.

        Returns:
            False if the walker is done already, or has not started.

        Raises:
            RuntimeError: a walker interrupts itself.
        """
        return self.__throw(Interrupt(cause), "interrupt")

    def cancel(self) -> bool:
        """Throw `Cancelled` into the walker where it is blocked; it may clean up, and is done.

        Returns:
            False if the walker is done already.

        Raises:
            RuntimeError: a walker cancels itself.
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
        """Return the future of the walker's end."""
        if self.__end is None:
            self.__end = Future(self.sim, f"the end of {self.name}")
            if self.__done:
                self.__settle()
        return self.__end

    def __settle(self) -> None:
        if self.__end is None:
            return
        if self.__cancelled:
            self.__end.cancel()
        else:
            self.__end.set_result(self.__result)

    @property
    def done(self) -> bool:
        """Whether the walker has returned, or was cancelled."""
        return self.__done

    @property
    def cancelled(self) -> bool:
        """Whether the walker was cancelled."""
        return self.__cancelled

    @property
    def result(self) -> Any:
        """What `run` returned; None before that."""
        return self.__result

    def __repr__(self) -> str:
        name = getattr(self, "name", None)
        where = f"{name!r}, {self.state.value}" if name else "in no simulation"
        return f"<{type(self).__name__} {where}>"


class Task(Walker):
    """A walker that runs a given coroutine."""

    __slots__ = ("_body",)

    def __init__(self, body: Body) -> None:
        self._body = body

    def run(self) -> Body:
        return self._body

    def _end_walking(self, result: object, cancelled: bool) -> None:
        self._body.close()  # or Python complains of a coroutine that was never awaited
        super()._end_walking(result, cancelled)


class _Notification:
    """The place of those that wait for `notify`; it holds nothing."""

    def forget(self, continuation: Continuation) -> None:
        pass

    def describe(self, continuation: Continuation) -> str:
        return "a notification"


_NOTIFICATION = _Notification()
_INF = float("inf")


def _throw_once(
    continuation: Continuation,
    body: Body,
    send: Callable[[Any], float | None],
    error: BaseException,
) -> Callable[[Any], float | None]:
    """Return a `send` that throws `error` instead, once."""

    def throw(_: object) -> float | None:
        continuation.send = send
        return body.throw(error)

    return throw


def _then_throw(
    continuation: Continuation,
    body: Body,
    send: Callable[[Any], float | None],
    error: BaseException,
) -> Callable[[Any], float | None]:
    """Return a `send` that gives the walker its value and throws `error` where it blocks next."""

    def send_then_throw(value: object) -> float | None:
        continuation.send = send
        send(value)
        if continuation.place is not None:
            continuation.place.forget(continuation)
            continuation.place = None
        return body.throw(error)

    return send_then_throw
