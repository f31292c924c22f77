"""Futures: values that are not there yet.

A future is for what has no better home: the answer to a question, a condition that several walkers
wait for, the first of several things. Messages, sleeping and queues do not use futures; they hand a
walker its value directly, which is several times cheaper.

What can be combined happens once and to everybody: a future, a walker's end, a message's arrival at
its target. Receiving a message or getting an item is not such a thing, since it takes something
away: whoever waits for "the next item or five seconds" and gives up would take an item that nobody
sees. For that there are the time-outs of `recv`; and a walker of its own (`Simulator.spawn`), which
takes the item and keeps it as its result, can be combined with anything.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from typing import TYPE_CHECKING, Any

from paracosm.engine.errors import FutureCancelledError
from paracosm.errors import InputError

if TYPE_CHECKING:
    from paracosm.engine.simulator import Simulator
    from paracosm.engine.walker import Continuation

__all__ = ["Awaitable", "Future", "all_of", "any_of", "as_future"]

_PENDING = object()


class Awaitable:
    """What happens once: a future, or something that has one."""

    __slots__ = ()

    def _as_future(self) -> Future:
        """Return the future of its end."""
        raise NotImplementedError

    def __await__(self) -> Generator[None, Any, Any]:
        return self._as_future().__await__()


class Future(Awaitable):
    """A value, or an exception, that is set once and that any number of walkers may await.

    Those that wait go on at the instant at which it is set, in the order in which they came.

    Args:
        sim: the simulation that it belongs to.
        name: what it stands for; a deadlock report says that a walker waits for `name`.
    """

    __slots__ = ("_callbacks", "_error", "_sim", "_value", "_waiting", "name")

    def __init__(self, sim: Simulator, name: str = "a future") -> None:
        self._sim = sim
        self.name = name
        self._value: Any = _PENDING
        self._error: BaseException | None = None
        self._waiting: list[Continuation] = []
        self._callbacks: list[Callable[[Future], object]] = []

    @property
    def done(self) -> bool:
        """Whether it has a value or an exception, or was cancelled."""
        return self._value is not _PENDING

    @property
    def cancelled(self) -> bool:
        """Whether it was cancelled."""
        return isinstance(self._error, FutureCancelledError)

    def result(self) -> Any:
        """Return the value, or raise the exception.

        Raises:
            RuntimeError: neither is set yet.
            FutureCancelledError: it was cancelled.
        """
        if self._value is _PENDING:
            raise RuntimeError(f"{self.name} has no result yet: await it")
        if self._error is not None:
            raise self._error
        return self._value

    def exception(self) -> BaseException | None:
        """Return the exception, if it is done with one."""
        return self._error

    def set_result(self, value: object = None) -> None:
        """Set the value and wake up those that wait for it.

        Raises:
            RuntimeError: it is done already.
        """
        self._set(value, None)

    def set_exception(self, error: BaseException) -> None:
        """Set an exception, which is raised in those that wait.

        Raises:
            RuntimeError: it is done already.
        """
        self._set(None, error)

    def cancel(self) -> bool:
        """Give up; those that wait get `FutureCancelledError`. Return whether it was pending."""
        if self.done:
            return False
        self._set(None, FutureCancelledError(f"{self.name} was cancelled"))
        return True

    def add_callback(self, call: Callable[[Future], object]) -> None:
        """Call `call(future)` when it is done, before those that wait go on; now if it is done."""
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

    def forget(self, continuation: Continuation) -> None:
        """Let the walker of `continuation` no longer wait here."""
        self._waiting.remove(continuation)

    def describe(self, continuation: Continuation) -> str:
        """Return what is waited for."""
        return self.name


def as_future(thing: Awaitable) -> Future:
    """Return the future of a thing that can be awaited by many.

    Raises:
        InputError: it is no such thing.
    """
    if isinstance(thing, Awaitable):
        return thing._as_future()
    raise InputError(
        f"futures, walkers and transfers can be combined, not {thing!r}: "
        "give a coroutine to Simulator.spawn, and combine the walker"
    )


def any_of(sim: Simulator, things: tuple[Awaitable, ...]) -> Future:
    """Return the future of the first that is done; of several at once, the first in order."""
    first = Future(sim, f"any of {len(things)} things")

    if not things:
        raise InputError("any needs at least one thing to wait for")
    for thing in things:
        as_future(thing).add_callback(partial(_settle_first, first, thing))
    return first


def _settle_first(first: Future, thing: Awaitable, future: Future) -> None:
    if first.done:
        return
    error = future.exception()
    if error is None:
        first.set_result(thing)
    else:
        first.set_exception(error)


def all_of(sim: Simulator, things: tuple[Awaitable, ...]) -> Future:
    """Return the future of all results, in the order of `things`, or of the first failure."""
    futures = [as_future(thing) for thing in things]
    together = Future(sim, f"all of {len(things)} things")
    missing = len(futures)

    def settle(future: Future) -> None:
        nonlocal missing
        missing -= 1
        if together.done:
            return
        error = future.exception()
        if error is not None:
            together.set_exception(error)
        elif not missing:
            together.set_result([each.result() for each in futures])

    if not futures:
        together.set_result([])
    for future in futures:
        future.add_callback(settle)
    return together
