"""Workers and servers of a run in which nodes fail and messages are lost.

A worker that stops loses the gradient under way: what it computes, sends and receives. Bytes that
are in the network still arrive, and are ignored. Its *life* ends; every message has
the lives of its two ends, and is looked at only while they last. When the worker is back it asks
all servers for the parameters as they are, and works as from the beginning. A server that still
owes it an answer, since the gradient of an earlier life had arrived, gives it with that answer.

Servers take note at once of who is away. One that stops ends the whole job, which
`paracosm.training.failures.failing_job` starts again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Generator, Sequence
from dataclasses import dataclass
from math import inf
from types import coroutine
from typing import Any

from paracosm.engine import Future, Interrupt, Transfer, Worker
from paracosm.training.failures.conditions import Conditions
from paracosm.training.numerics.store import Contribution, Gradient, Store
from paracosm.training.run_state import RunState, Tag
from paracosm.training.server import ParameterServer
from paracosm.training.worker import TrainingWorker


@dataclass(eq=False, slots=True)
class Message:
    """The tag of a message, and whether it counts when it arrives."""

    tag: Tag
    lives: tuple[tuple[FailingWorker, int], ...]  # of the workers among its two ends
    seconds: float  # of computing that are in it
    is_lost: bool

    @property
    def is_current(self) -> bool:
        """Whether its ends live on."""
        return all(worker.life == life for worker, life in self.lives)

    def __str__(self) -> str:
        return str(self.tag)


class _Wish:
    """A receiver's request: messages that count, with a tag; or, to drop them, the others."""

    __hash__ = None  # type: ignore[assignment]  # it is compared with messages alone

    def __init__(self, tag: Tag | None, counts: bool = True) -> None:
        self._tag = tag
        self._counts = counts

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Message) or self._tag not in (None, other.tag):
            return False
        return self._counts == (other.is_current and not other.is_lost)

    def __str__(self) -> str:
        return str(self._tag)


_DEAD = _Wish(None, counts=False)


class _Node(Worker):
    conditions: Conditions

    def send(
        self,
        to: str,
        data: Any = None,
        *,
        delay: float | None = None,
        size: float | None = None,
        tag: Any = None,
    ) -> Transfer:
        ends = (self, self.sim.workers[to])
        lives = tuple((end, end.life) for end in ends if isinstance(end, FailingWorker))
        seconds = self.seconds_in_push() if tag is Tag.PUSH else 0.0
        message = Message(tag, lives, seconds, self.conditions.loses(self, self.sim.workers[to]))
        if message.is_lost:

            def send_again(_: object) -> None:
                if message.is_current:
                    self.conditions.resent += 1
                    self.send(to, data, delay=delay, size=size, tag=tag)
                else:
                    self.give_up(to, data, message)

            after = self.conditions.resend_after
            if after is None:
                self.give_up(to, data, message)
            else:
                self.sim.call_later(after, send_again)
        return super().send(to, data, delay=delay, size=size, tag=message)

    def seconds_in_push(self) -> float:
        """Return the seconds of computing that are in what is pushed now."""
        return 0.0

    def give_up(self, to: str, data: Any, message: Message) -> None:
        """Note that a lost message is not sent again."""

    @coroutine
    def recv(
        self, source: str | None = None, tag: Any = None, timeout: float | None = None
    ) -> Generator[None, Any, Any]:
        return (yield from super().recv(source, _Wish(tag), timeout))

    @coroutine
    def compute(self, duration: float) -> Generator[float, None, None]:
        yield from super().compute(self.conditions.stretched(self, duration))

    @coroutine
    def compute_unless(
        self, duration: float, *, source: str | None = None, tag: Any = None
    ) -> Generator[Any, Any, bool]:
        duration = self.conditions.stretched(self, duration)
        return (yield from super().compute_unless(duration, source=source, tag=_Wish(tag)))

    async def drop_messages(self) -> None:
        """Remove ignored messages as they arrive."""
        while True:
            self.dropped(await super().recv_transfer(tag=_DEAD))

    def forget_messages(self) -> None:
        """Remove ignored messages that have arrived."""
        while (transfer := self.mailbox.take(None, _DEAD)) is not None:
            self.dropped(transfer)

    def dropped(self, transfer: Transfer) -> None:
        """Record that a message is ignored."""


class FailingWorker(_Node, TrainingWorker):
    """A worker that may stop, and come back."""

    def __init__(
        self,
        state: RunState,
        index: int,
        work: Callable[[TrainingWorker], Awaitable[None]],
        stores: Sequence[Store] = (),
    ) -> None:
        super().__init__(state, index, work, stores)
        assert state.conditions is not None
        self.conditions = state.conditions
        self._versions = [store.version for store in self.conditions.stores]
        if stores:
            self._read_stores()
        self._state.numerics.forget(self.client)
        self.life = 0
        self.is_away = False
        self.begun_away = 0.0  # since when, on the engine's clock
        self.back = 0.0  # when it is back, on the engine's clock
        self._begun = 0.0  # seconds computed when the gradients were begun that are not pushed yet

    async def run(self) -> None:
        while True:
            try:
                if not self.is_away or await self._come_back():
                    await self._work(self)
                return
            except Interrupt as interrupt:
                if interrupt.cause is not self.conditions:
                    raise

    def fail(self, back: float) -> None:
        """Stop it until `back`, in seconds of the engine; called outside of any process."""
        self.back = max(self.back, back)
        if self.is_away:
            return
        self.is_away = True
        self.begun_away = self.sim.now
        self.life += 1
        self.interrupt(self.conditions)
        self._state.numerics.forget(self.client)
        if self._examples:
            self._last.pending.discard()
            self.conditions.discard(self._examples, self.seconds_in_push())
            self._computed()

    async def compute_gradient_unless_answered(self) -> Gradient | None:
        before = self.compute_time
        gradient = await super().compute_gradient_unless_answered()
        if gradient is None:
            self.conditions.dropped_examples += self._state.numerics.batch_of(self.client)
            self.conditions.discard(0, self.compute_time - before)
        return gradient

    def _drawn(self, sizes: Sequence[int]) -> None:
        if not self._examples:
            self._begun = self.compute_time
        self.conditions.request(sizes)
        super()._drawn(sizes)

    def seconds_in_push(self) -> float:
        return self.compute_time - self._begun

    def give_up(self, to: str, data: Any, message: Message) -> None:
        if message.tag is Tag.PUSH and to == self._state.servers[0]:
            self.conditions.discard(data[0].examples, message.seconds)

    async def _come_back(self) -> bool:
        while True:
            back = self.back
            if back == inf:
                return False
            await self.sleep(max(0.0, back - self.sim.now))
            if back == self.back:  # and nothing has struck it again meanwhile
                break
        self.is_away = False
        self.conditions.is_back(self.name, self.begun_away)
        if not self._stores:
            for server in self._state.servers:
                self.send(server, self.name, tag=Tag.JOIN)
            await self.pull()
        else:
            await self._state.all_reduces.enter(self.name)
            self._read_stores()
        return True

    def _read_stores(self) -> None:
        self.parameters = self._state.numerics.join([store.parameters for store in self._stores])
        self._versions = [store.version for store in self._stores]


class FailingServer(_Node, ParameterServer):
    """A server whose workers may stop."""

    def __init__(
        self,
        state: RunState,
        index: int,
        serve: Callable[[ParameterServer], Awaitable[None]],
        store: Store,
    ) -> None:
        super().__init__(state, index, serve, store)
        assert state.conditions is not None
        self.conditions = state.conditions
        self._is_first = index == 0  # who counts what is pushed to all
        self._away: set[str] = set()
        # Workers whose gradient is here, or who joined a round that continues without them
        self._owed: set[str] = set()
        self._joined: set[str] = set()  # the latter
        self._seconds: dict[str, float] = {}  # of computing that are in each one's newest push
        self._gathered: list[Contribution] = []
        self._round: Future | None = None
        self._is_applying = False  # from the end of a round until its answers

    @coroutine
    def recv(
        self, source: str | None = None, tag: Any = None, timeout: float | None = None
    ) -> Generator[None, Any, Any]:
        transfer = yield from self.recv_transfer(source, _Wish(tag), timeout)
        if tag is Tag.PUSH:
            self._seconds[transfer.source] = transfer.tag.seconds
            self._owed.add(transfer.source)
        return transfer.data

    async def receive_all(self, take: int = 0, at_least: int = 1) -> list[Contribution]:
        if not self.conditions.elastic:
            return await super().receive_all(take, at_least)
        self._round_begins()
        if self._store.version >= self._state.last_update:
            await self._finish()
        self._round = self.sim.future("the gradients of those who are there")
        self._end_round()
        await self._round
        self._is_applying = True
        gathered, self._gathered = self._gathered, []
        return gathered

    async def gather(self) -> None:
        """Receive pushes, for rounds without the absent workers."""
        while True:
            push = self._contribution(await self.recv(tag=Tag.PUSH))
            self._gathered.append(push)  # not before: another round may have begun meanwhile
            self._end_round()

    def drop(self, contribution: Contribution) -> None:
        super().drop(contribution)
        self.conditions.dropped_examples += contribution.gradient.examples
        self.conditions.discard(0, self._seconds[contribution.worker])

    def answer(
        self, *workers: str, parameters: Any = None, extra: Any = None, clock: int = 0
    ) -> None:
        self._is_applying = False
        self._owed.difference_update(workers)
        self._joined.difference_update(workers)
        there = (worker for worker in workers if worker not in self._away)
        super().answer(*there, parameters=parameters, extra=extra, clock=clock)

    async def welcome(self) -> None:
        """Send the parameters to workers that are back."""
        while True:
            worker: str = await self.recv(tag=Tag.JOIN)
            self._away.discard(worker)
            if worker in self._owed:
                continue
            if self.conditions.elastic and (self._is_applying or self._members() - {worker}):
                self._owed.add(worker)
                self._joined.add(worker)
            else:
                self.answer_again(worker)

    def leaves(self, worker: str) -> None:
        """Note that a worker is away."""
        self._away.add(worker)
        if worker in self._joined:
            self._joined.remove(worker)
            self._owed.remove(worker)
        self._end_round()

    def dropped(self, transfer: Transfer) -> None:
        message: Message = transfer.tag
        if message.tag is not Tag.PUSH or not self._is_first or message.is_lost:
            return
        gradient: Gradient = transfer.data[0]
        if len(self._state.servers) == 1:
            gradient.pending.discard()
        self.conditions.discard(gradient.examples, message.seconds)

    def _members(self) -> set[str]:
        return set(self.workers) - self._away - self._joined

    def _end_round(self) -> None:
        if self._round is None or self._round.done or not self._gathered:
            return
        if not self._members() - {push.worker for push in self._gathered}:
            self._round.set_result()
