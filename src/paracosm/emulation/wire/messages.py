"""Messages between two ranks: send and receive."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from paracosm.emulation.communication import Communication
from paracosm.emulation.peers import Peers
from paracosm.emulation.ports import Span
from paracosm.emulation.records import Collective, Record
from paracosm.emulation.wire.connection import Buffer, Connection, Loop, Outgoing, Pair, WireGroup
from paracosm.emulation.wire.links import Hops, Pace
from paracosm.emulation.wire.operations import Operation
from paracosm.emulation.wire.payloads import Payloads
from paracosm.emulation.wire.protocol import tag_of
from paracosm.emulation.wire.sources import Source, send

_REMEMBERED = 1 << 20  # bytes of the longest message that is sent back
_LENGTHS = 32  # messages of different lengths that are remembered


@dataclass(slots=True)
class _Waiting:
    sends: deque[tuple[float, int]] = field(default_factory=deque)  # instant and number of each
    receives: deque[tuple[float, int, float]] = field(default_factory=deque)  # and when ours came


class Messages:
    """Serves the messages of pairs: takes what real ranks send, and sends what they wait for.

    What a real rank receives is what the plan says, or what it last sent of that length, or zeros.
    """

    def __init__(
        self,
        loop: Loop,
        communication: Communication,
        peers: Peers,
        payloads: Payloads,
        pace: Pace,
        record: Callable[[Record], None],
    ) -> None:
        self._loop = loop
        self._communication = communication
        self._peers = peers
        self._payloads = payloads
        self._pace = pace
        self._record = record
        self._waiting: dict[tuple[Connection, int], _Waiting] = {}
        self._last: dict[int, Buffer] = {}  # by length
        self._coming: dict[Connection, Buffer] = {}

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
        due = state.there(self._pace, pair, True, length, ready)
        self._when(due, self._send, connection, slot, length)

    def keep(self, connection: Connection, length: int) -> Buffer | None:
        if not 0 < length <= _REMEMBERED:
            return None
        self._coming[connection] = Buffer(length)
        return self._coming[connection]

    def received(self, state: GroupState, connection: Connection, slot: int, length: int) -> None:
        buffer = self._coming.pop(connection, None)
        if buffer is not None:
            self._last.pop(length, None)
            self._last[length] = buffer
            if len(self._last) > _LENGTHS:
                del self._last[next(iter(self._last))]
        asked, number = self._waiting[connection, slot].sends.popleft()
        self._write(state, connection.pair, number, "send", length, asked, asked)

    def sent(self, state: GroupState, connection: Connection, message: Outgoing) -> None:
        asked, number, entered = self._waiting[connection, message.slot].receives.popleft()
        self._write(state, connection.pair, number, "recv", message.length, asked, entered)

    def close(self, connection: Connection) -> str | None:
        """Forget a connection; return which kind of message was not through, if any."""
        found = None
        for key in [key for key in self._waiting if key[0] is connection]:
            waiting = self._waiting.pop(key)
            kind = "send" if waiting.sends else "recv" if waiting.receives else None
            found = found or kind
        return found

    def _when(self, due: Span, call: Callable[..., None], *arguments: Any) -> None:
        if due.done <= time.monotonic():
            call(*arguments)
        else:
            self._loop.at(due.done, self._when, due, call, *arguments)

    def _send(self, connection: Connection, slot: int, length: int) -> None:
        pair = connection.pair
        data = self._payloads.of(pair.group, "recv", tag_of(slot), pair.emulated, 0, length)
        if data is None or len(data) != length:
            data = self._last[length].data if length in self._last else None
        send(connection, slot, length, Source(data))

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
    over: deque[int] = field(default_factory=lambda: deque(maxlen=64))  # slots of the last ended
    numbers: dict[int, int] = field(default_factory=dict)  # collectives so far, by real member

    def next_number(self, real: int) -> int:
        number = self.numbers.get(real, 0)
        self.numbers[real] = number + 1
        return number

    def there(self, pace: Pace, pair: Pair, is_ours: bool, length: int, ready: float) -> Span:
        ports = pace.ports(self.members[pair.real])
        if ports is None:
            return Span(0, ready, ready)
        ends = (pair.emulated, pair.real) if is_ours else (pair.real, pair.emulated)
        cost = self.hops.cost(*ends, length, pair.real)
        return ports.ask(0, (id(self.hops), ends), 1, time.monotonic(), ready, cost)
