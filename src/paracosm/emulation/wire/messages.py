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
from paracosm.emulation.wire.connection import Connection, Kept, Loop, Outgoing, Pair, WireGroup
from paracosm.emulation.wire.links import Hops, Pace
from paracosm.emulation.wire.operations import Operation
from paracosm.emulation.wire.payloads import Payloads
from paracosm.emulation.wire.protocol import tag_of
from paracosm.emulation.wire.segments import Remembered
from paracosm.emulation.wire.sources import Source, send

__all__ = ["GroupState", "Messages"]


_REMEMBERED = 1 << 20  # bytes of the longest message that is sent back
_LENGTHS = 32  # messages of different lengths that are remembered


@dataclass(slots=True)
class _Waiting:
    """Messages on one connection with one tag that are not through.

    Attributes:
        sends, receives: when the real rank announced each, and its number in the group.
    """

    sends: deque[tuple[float, int]] = field(default_factory=deque)
    receives: deque[tuple[float, int, float]] = field(default_factory=deque)


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
        pace: Pace | None,
        record: Callable[[Record], None],
    ) -> None:
        self._loop = loop
        self._communication = communication
        self._peers = peers
        self._payloads = payloads
        self._pace = pace
        self._record = record
        self._waiting: dict[tuple[Connection, int], _Waiting] = {}
        self._last: dict[int, Kept] = {}  # by length
        self._coming: dict[Connection, Kept] = {}

    def announced(
        self, state: GroupState, connection: Connection, slot: int, length: int, now: float
    ) -> None:
        """The real rank has a message."""
        pair = connection.pair
        waiting = self._waiting.setdefault((connection, slot), _Waiting())
        waiting.sends.append((now, state.next_number(pair.real)))
        at = now + self._communication.added("send")
        ends = pair.real, pair.emulated
        self._when(self._there(state, pair, ends, length, at), connection.accept, slot, length)

    def wanted(
        self, state: GroupState, connection: Connection, slot: int, length: int, now: float
    ) -> None:
        """The real rank waits for a message."""
        pair = connection.pair
        peer = state.members[pair.emulated]
        entry = self._peers.entry(peer, now) + self._communication.added("recv")
        waiting = self._waiting.setdefault((connection, slot), _Waiting())
        waiting.receives.append((now, state.next_number(pair.real), max(entry, now)))
        due = self._there(state, pair, (pair.emulated, pair.real), length, max(entry, now))
        self._when(due, self._send, connection, slot, length)

    def keep(self, connection: Connection, length: int) -> Kept | None:
        """Return where to keep a message that begins to come."""
        if not 0 < length <= _REMEMBERED:
            return None
        self._coming[connection] = Kept(length)
        return self._coming[connection]

    def received(
        self, state: GroupState, connection: Connection, slot: int, length: int, now: float
    ) -> None:
        """A message of the real rank's is here."""
        kept = self._coming.pop(connection, None)
        if kept is not None:
            self._last.pop(length, None)
            self._last[length] = kept
            if len(self._last) > _LENGTHS:
                del self._last[next(iter(self._last))]
        asked, number = self._waiting[connection, slot].sends.popleft()
        self._write(state, connection, number, "send", length, (asked, asked, now))

    def sent(
        self, state: GroupState, connection: Connection, message: Outgoing, now: float
    ) -> None:
        """A message has gone to the real rank."""
        asked, number, entered = self._waiting[connection, message.slot].receives.popleft()
        self._write(state, connection, number, "recv", message.length, (asked, entered, now))

    def close(self, connection: Connection) -> str | None:
        """Forget a connection; return which kind of message was not through, if any."""
        found = None
        for key in [key for key in self._waiting if key[0] is connection]:
            waiting = self._waiting.pop(key)
            kind = "send" if waiting.sends else "recv" if waiting.receives else None
            found = found or kind
        return found

    def _there(
        self, state: GroupState, pair: Pair, ends: tuple[int, int], length: int, at: float
    ) -> Span:
        """Return when a message that is ready at an instant is there."""
        if self._pace is None:
            return Span(0, at, at)
        rank = state.members[pair.real]
        return self._pace.there(state.hops, ends, length, at, pair.real, rank)

    def _when(self, due: Span, call: Callable[..., None], *arguments: Any) -> None:
        """Call when something is due, wherever that moves meanwhile."""
        if due.done <= time.monotonic():
            call(*arguments)
        else:
            self._loop.at(due.done, self._when, due, call, *arguments)

    def _send(self, connection: Connection, slot: int, length: int) -> None:
        pair = connection.pair
        data = self._payloads.of(pair.group, "recv", tag_of(slot), pair.emulated, 0, length)
        if data is not None and len(data) == length:
            source = Source(data)
        elif length in self._last:
            source = Source(self._last[length].data)
        else:
            source = Source()
        send(connection, slot, length, source)

    def _write(
        self,
        state: GroupState,
        connection: Connection,
        number: int,
        kind: str,
        length: int,
        times: tuple[float, float, float],
    ) -> None:
        pair = connection.pair
        asked, entered, done = times
        rank, peer = state.members[pair.real], state.members[pair.emulated]
        name = state.group.name
        self._record(
            Collective(rank, name, number, kind, length, peer, asked, entered, asked, done)
        )


@dataclass(eq=False)
class GroupState:
    """A process group with real members.

    Attributes:
        group: as the rendezvous knows it.
        members: global ranks by rank in the group.
        hops: the times of messages among emulated members.
        remembered: how earlier vectors were cut.
        connections: that are open.
        operations: under way, by slot.
        over: slots of the last operations that ended.
        numbers: collectives so far, by real member.
    """

    group: WireGroup
    members: Sequence[int]
    hops: Hops
    remembered: Remembered = field(default_factory=Remembered)
    connections: set[Connection] = field(default_factory=set)
    operations: dict[int, Operation] = field(default_factory=dict)
    over: deque[int] = field(default_factory=lambda: deque(maxlen=64))
    numbers: dict[int, int] = field(default_factory=dict)

    def next_number(self, real: int) -> int:
        """Return the number of a real member's next collective."""
        number = self.numbers.get(real, 0)
        self.numbers[real] = number + 1
        return number
