"""Mailboxes: what has arrived at a worker and was not received yet, and who waits for what.

Messages stay in the order of their arrival, walkers in the order in which they came. A message goes
to the first walker whose wish it fits, or else into the mailbox. So a walker waits only while the
mailbox holds nothing for it, and neither list is ever searched in vain on the common way: one
walker that takes whatever comes costs O(1). Choosing by source or tag passes over the messages that
do not fit.

A walker that gives up (a time-out, an interrupt, a cancel) is taken off the list there and then. It
cannot swallow a message that comes later.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from paracosm.engine.scheduler import seconds
from paracosm.errors import unknown

if TYPE_CHECKING:
    from paracosm.engine.transfers import Transfer
    from paracosm.engine.walker import Continuation
    from paracosm.engine.worker import Worker

__all__ = ["Mailbox", "Wish", "deliver", "fits"]

# Who waits, for messages from whom (None: from anybody), tagged with what (None: with anything).
Wish = tuple["Continuation", str | None, Any]

# The messages of a worker that never had to keep one: a deque takes half a kilobyte.
_NOTHING: deque[Transfer] = deque(maxlen=0)


class Mailbox:
    """The messages and the waiting walkers of one worker.

    Attributes:
        messages: what has arrived and was not received.
        first, first_tag: a walker that came before the receivers, and the tag that it waits for.
            Nearly always it is the only one; it would cost as much again to list it.
        receivers: further walkers that wait for a message.
        watchers: walkers that want to know of a message, but do not receive it.
    """

    __slots__ = ("_owner", "first", "first_tag", "messages", "receivers", "watchers")

    def __init__(self, owner: Worker) -> None:
        self._owner = owner
        self.messages = _NOTHING
        self.first: Continuation | None = None
        self.first_tag: Any = None
        self.receivers: list[Wish] = []
        self.watchers: tuple[Wish, ...] = ()

    def holds(self, source: str | None, tag: Any) -> bool:
        """Return whether there is a message that fits."""
        return any(fits(transfer, source, tag) for transfer in self.messages)

    def take(self, source: str | None, tag: Any) -> Transfer | None:
        """Remove and return the first message that fits; None if there is none."""
        messages = self.messages
        for position, transfer in enumerate(messages):
            if fits(transfer, source, tag):
                del messages[position]
                return transfer
        return None

    def receive(
        self, source: str | None, tag: Any, timeout: float | None
    ) -> Generator[None, Any, Transfer]:
        """Wait for a message that fits; `Worker.recv` explains the arguments."""
        sim = self._owner.sim
        if source is not None and source not in sim.workers:
            raise unknown("worker", source, sim.workers)
        continuation = sim._running()
        wish = (continuation, source, tag)
        if timeout is None:
            self.receivers.append(wish)
            continuation.place = self
            arrived: Transfer = yield
            return arrived
        timer = sim.call_later(seconds("recv: the timeout", timeout), self._expire, wish)
        self.receivers.append(wish)
        continuation.place = self
        try:
            transfer: Transfer | None = yield
        finally:
            timer.cancel()
        if transfer is None:
            waited = f"{self._owner.name} waited {timeout:g} s in vain for {_words(wish)}"
            raise TimeoutError(waited)
        return transfer

    def watch(self, wish: Wish) -> None:
        """Resume the walker with False when a message arrives that fits."""
        self.watchers += (wish,)
        wish[0].place = self

    def alert(self, transfer: Transfer) -> None:
        """Tell those that watch for it that a message has arrived."""
        for wish in self.watchers:
            if fits(transfer, wish[1], wish[2]):
                self.release(wish[0], False)

    def release(self, continuation: Continuation, value: object) -> None:
        """Resume a walker that waits here, with `value`."""
        self.forget(continuation)
        continuation.place = None
        self._owner.sim._ready.append((continuation, value))

    def _expire(self, wish: Wish) -> None:
        self.release(wish[0], None)

    def forget(self, continuation: Continuation) -> None:
        """Let the walker of `continuation` no longer wait here."""
        if continuation is self.first:
            self.first = None
        self.receivers = [wish for wish in self.receivers if wish[0] is not continuation]
        self.watchers = tuple(wish for wish in self.watchers if wish[0] is not continuation)

    def describe(self, continuation: Continuation) -> str:
        """Return which message the walker of `continuation` waits for."""
        if continuation is self.first:
            return _words((continuation, None, self.first_tag))
        wishes = [wish for wish in (*self.receivers, *self.watchers) if wish[0] is continuation]
        return _words(wishes[0])


def deliver(transfer: Transfer) -> None:
    """Let a message arrive."""
    route = transfer.route
    mailbox = route.mailbox
    transfer.arrived = route.sim.now
    if transfer.awaited is not None:
        transfer.awaited.set_result(transfer)
    first = mailbox.first
    if first is not None and fits(transfer, None, mailbox.first_tag):
        mailbox.release(first, transfer)
        return
    for continuation, source, tag in mailbox.receivers:
        if fits(transfer, source, tag):
            mailbox.release(continuation, transfer)
            return
    if mailbox.messages is _NOTHING:
        mailbox.messages = deque()
    mailbox.messages.append(transfer)
    if mailbox.watchers:
        mailbox.alert(transfer)


def fits(transfer: Transfer, source: str | None, tag: Any) -> bool:
    """Return whether the message is from `source` and tagged `tag`; None stands for any."""
    return (tag is None or tag == transfer.tag) and (source is None or source == transfer.source)


def _words(wish: Wish) -> str:
    _, source, tag = wish
    sender = "" if source is None else f" from {source}"
    return f"a message{sender}" if tag is None else f"a message{sender} tagged {tag!s}"
