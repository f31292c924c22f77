"""Messages between two ranks: send and receive."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paracosm.emulation.communication import Communication
from paracosm.emulation.cost import Cost
from paracosm.emulation.peers import Peers
from paracosm.emulation.ports import Ports, Span
from paracosm.emulation.records import Collective, Record
from paracosm.emulation.wire.announcements import Announcements, Message
from paracosm.emulation.wire.answers import Answers, Flow
from paracosm.emulation.wire.connection import Buffer, Connection, Loop, Outgoing, Pair, WireGroup
from paracosm.emulation.wire.links import Hops, Pace
from paracosm.emulation.wire.operations import Operation
from paracosm.emulation.wire.protocol import tag_of
from paracosm.emulation.wire.sources import Source, send

_REMEMBERED = 1 << 20  # bytes of the longest message that is sent back
_AGAIN = 0.2e-3  # seconds until an emulated stage is looked at again
_KINDS = 32  # types and lengths of messages that are remembered


@dataclass(slots=True)
class _Waiting:
    sends: deque[tuple[float, int]] = field(default_factory=deque)  # instant and number of each
    receives: deque[tuple[float, int, float]] = field(default_factory=deque)  # and when ours came


class Messages:
    """Serves messages of pairs: takes what real ranks send, and sends what they wait for.

    A real rank receives what it last sent of that type and length to another rank, since data
    coming up a pipeline is like data going up; otherwise small noise.
    """

    def __init__(
        self,
        loop: Loop,
        communication: Communication,
        peers: Peers,
        announcements: Announcements,
        pace: Pace,
        record: Callable[[Record], None],
        fail: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._communication = communication
        self._peers = peers
        self._announcements = announcements
        self._pace = pace
        self._record = record
        self._fail = fail
        self._waiting: dict[tuple[Connection, int], _Waiting] = {}
        self._last: dict[tuple[str, int], dict[int, Buffer]] = {}  # by type and length; by receiver
        self._coming: dict[Connection, tuple[str, Buffer]] = {}

    def announced(self, state: GroupState, connection: Connection, slot: int, length: int) -> None:
        now, pair = time.monotonic(), connection.pair
        waiting = self._waiting.setdefault((connection, slot), _Waiting())
        waiting.sends.append((now, state.next_number(pair.real)))
        ready = now + self._communication.added("send")
        due = state.there(self._pace, pair, False, length, ready)
        self._when(due, connection.accept, slot, length)

    def wanted(self, state: GroupState, connection: Connection, slot: int, length: int) -> None:
        now, pair = time.monotonic(), connection.pair
        entry = self._peers.entry(state.members[pair.emulated], now)
        ready = max(entry + self._communication.added("recv"), now)
        waiting = self._waiting.setdefault((connection, slot), _Waiting())
        waiting.receives.append((now, state.next_number(pair.real), ready))
        notice = self._announcements.message(
            pair.group.name, (pair.emulated, pair.real), tag_of(slot)
        )
        self._compute(state, connection, slot, length, ready, notice)

    def _compute(
        self,
        state: GroupState,
        connection: Connection,
        slot: int,
        length: int,
        ready: float,
        notice: Message | None,
    ) -> None:
        """Send a pipeline stage's result as soon as it is computed; other data once it is ready."""
        pair = connection.pair
        ends = state.members[pair.emulated], state.members[pair.real]
        pipeline = self._announcements.pipeline(*ends)
        if pipeline is not None:
            hop = sum(state.hops.split(pair.emulated, pair.real, length))
            computed = pipeline.ready(*ends, hop)
            if computed is None:  # what it is computed from is still under way
                if connection.is_open:
                    again = state, connection, slot, length, ready, notice
                    self._loop.at(time.monotonic() + _AGAIN, self._compute, *again)
                return
            ready = max(ready, computed)
        due = state.there(self._pace, pair, True, length, ready)
        self._when(due, self._send, connection, slot, length, notice)

    def keep(self, connection: Connection, slot: int, length: int) -> Buffer | None:
        pair = connection.pair
        ends = pair.real, pair.emulated
        notice = self._announcements.message(pair.group.name, ends, tag_of(slot))
        if notice is None or not 0 < length <= _REMEMBERED:
            return None
        buffer = Buffer(length)
        self._coming[connection] = notice.dtype, buffer
        return buffer

    def received(self, state: GroupState, connection: Connection, slot: int, length: int) -> None:
        if connection in self._coming:
            dtype, buffer = self._coming.pop(connection)
            to = self._last.pop((dtype, length), {})
            to.pop(connection.pair.emulated, None)
            self._last[dtype, length] = to | {connection.pair.emulated: buffer}
            if len(self._last) > _KINDS:
                del self._last[next(iter(self._last))]
        ends = state.members[connection.pair.real], state.members[connection.pair.emulated]
        if (pipeline := self._announcements.pipeline(*ends)) is not None:
            pipeline.sent(*ends, time.monotonic())
        asked, number = self._waiting[connection, slot].sends.popleft()
        self._write(state, connection.pair, number, "send", length, asked, asked)

    def sent(self, state: GroupState, connection: Connection, message: Outgoing) -> None:
        asked, number, entered = self._waiting[connection, message.slot].receives.popleft()
        self._write(state, connection.pair, number, "recv", message.length, asked, entered)

    def close(self, connection: Connection) -> str | None:
        """Forget a connection; return the kind of an unfinished message, if any."""
        reason = None
        for key in [key for key in self._waiting if key[0] is connection]:
            waiting = self._waiting.pop(key)
            kind = "send" if waiting.sends else "recv" if waiting.receives else None
            reason = reason or kind
        return reason

    def _when(self, due: Span | Flow, call: Callable[..., None], *arguments: Any) -> None:
        if due.done <= time.monotonic():
            call(*arguments)
        else:
            self._loop.at(due.done, self._when, due, call, *arguments)

    def _send(self, connection: Connection, slot: int, length: int, notice: Message | None) -> None:
        pair = connection.pair
        data = None if notice is None else self._likely(notice, pair.emulated, length)
        if data is None:
            dtype = "data" if notice is None else notice.dtype.removeprefix("torch.")
            self._fail(
                f"recv: what emulated rank {pair.emulated} of the group {pair.group.name} would "
                f"send ({length:,} bytes of {dtype}) is unknown: make it real as well (--rank)"
            )
            return
        send(connection, slot, length, Source(data))

    def _likely(self, notice: Message, sender: int, length: int) -> memoryview | None:
        sent = self._last.get((notice.dtype, length), {})
        others = [buffer for to, buffer in sent.items() if to != sender]
        if others:
            return others[-1].data
        if notice.likely:
            return memoryview((notice.likely * -(-length // len(notice.likely)))[:length])
        return sent[sender].data if sender in sent else None

    def _write(
        self,
        state: GroupState,
        pair: Pair,
        number: int,
        kind: str,
        length: int,
        asked: float,
        entered: float,
    ) -> None:
        rank, peer = state.members[pair.real], state.members[pair.emulated]
        times = asked, entered, asked, time.monotonic()
        self._record(Collective(rank, state.group.name, number, kind, length, peer, *times))


@dataclass(eq=False)
class GroupState:
    group: WireGroup  # as the rendezvous knows it
    members: Sequence[int]  # global ranks by rank in the group
    hops: Hops  # the times of messages among emulated members
    connections: set[Connection] = field(default_factory=set)  # that are open
    operations: dict[int, Operation] = field(default_factory=dict)  # under way, by slot
    told: deque[int] = field(default_factory=lambda: deque(maxlen=64))  # slots of the last stalls
    numbers: dict[int, int] = field(default_factory=dict)  # collectives so far, by real member
    answered: int | None = None  # its number among `answers`, where its rings are answered there
    answers: Answers | None = None

    def next_number(self, real: int) -> int:
        if self.answers is not None and self.answered is not None:
            self.numbers[real] = self.answers.next_number(self.answered) + 1
            return self.numbers[real] - 1
        number = self.numbers.get(real, 0)
        self.numbers[real] = number + 1
        return number

    def there(
        self, pace: Pace, pair: Pair, is_ours: bool, length: int, ready: float
    ) -> Span | Flow:
        """Return when a message is there that may go at an instant."""
        ports = pace.ports(self.members[pair.real])
        if ports is None:
            return Span(0, ready, ready)
        ends = (pair.emulated, pair.real) if is_ours else (pair.real, pair.emulated)
        pool, cost = self.passage(*ends, length, pair.real)
        if isinstance(ports, Ports):
            return ports.ask(0, pool, 1, time.monotonic(), ready, cost)
        return ports.ask(pool, time.monotonic(), ready, cost)

    def passage(self, source: int, target: int, length: int, real: int) -> tuple[Hashable, Cost]:
        """Return which other messages a message comes after, and what it needs."""
        cost = self.hops.cost(source, target, length, real)
        return (self.group.name, source, target), cost
