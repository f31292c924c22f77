"""Wait for any, or for all, of several things.

What can be combined happens once and to everybody: a future, a walker's end, a message's arrival at
its target. Receiving a message or getting an item is not such a thing, since it takes something
away: whoever waits for "the next item or five seconds" and gives up would take an item that nobody
sees. For that there are the time-outs of `recv`; and a walker of its own (`Simulator.spawn`), which
takes the item and keeps it as its result, can be combined with anything.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from paracosm.engine.future import Future
from paracosm.engine.transfers import Transfer
from paracosm.engine.walker import Walker
from paracosm.errors import InputError

if TYPE_CHECKING:
    from paracosm.engine.simulator import Simulator

__all__ = ["Awaitable", "all_of", "any_of", "as_future"]

Awaitable = Future | Walker | Transfer


def as_future(thing: Awaitable) -> Future:
    """Return the future of a thing that can be awaited by many.

    Raises:
        InputError: it is no such thing.
    """
    if isinstance(thing, Future):
        return thing
    if isinstance(thing, Walker | Transfer):
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
