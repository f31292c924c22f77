"""The state of one collective between real and emulated members: messages sent and still due."""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from paracosm.emulation.peers import Peers
from paracosm.emulation.ports import Span
from paracosm.emulation.wire.announcements import Vector
from paracosm.emulation.wire.answers import Flow
from paracosm.emulation.wire.connection import Buffer, Connection, Pair
from paracosm.emulation.wire.schedules import (
    Barrier,
    Broadcast,
    Direct,
    Members,
    Ring,
    RingReduce,
)
from paracosm.emulation.wire.segments import Layout, Messages, layout_of, messages_of

REDUCTIONS = ("all_reduce", "reduce")
_SHORT = 1 << 14  # bytes of a message that take no longer than a notice
_MANY = 32  # of such that are awaited together


@dataclass(slots=True, eq=False)
class Channel:
    connection: Connection  # to the real member
    announced: int = 0  # messages of the real member's that it has announced
    accepted: int = 0  # that we are ready for
    arrived: int = 0  # that are here
    lengths: deque[int] = field(default_factory=deque)  # of what is announced, not accepted
    # When we accepted what had been announced; None for what had not.
    ready: deque[float | None] = field(default_factory=deque)
    asked: int = 0  # messages of ours: asked for, on their way, gone
    sent: int = 0
    gone: int = 0
    wanted: deque[int] = field(default_factory=deque)  # lengths of what is asked for, not sent
    halves: dict[int, int] = field(default_factory=dict)  # bytes of its even and odd messages
    mirror: Buffer | None = None  # what came on an all-to-all, which goes back
    due: Span | Flow | None = None  # when the next of `wanted` goes, once that is decided
    due_in: Span | Flow | None = (
        None  # when the next of `lengths` is accepted, once that is decided
    )

    @property
    def is_open(self) -> bool:
        return self.arrived < self.announced or self.gone < self.asked


@dataclass(slots=True, eq=False)
class RealSide:
    asked: float  # when its first message came
    number: int  # counts the collectives of this member in the group
    last: float = 0.0  # when something was last announced or moved
    sent: int = 0  # bytes that it has sent and received
    received: int = 0
    longest: int = 0  # bytes of its longest message
    # What it sent, in order; None if not kept, or sent back
    buffers: list[Buffer | None] = field(default_factory=list)
    peer: int = -1  # the root or the other end, as far as it shows; -1 for none


class Operation:
    def __init__(
        self,
        kind: str,
        tag: int,
        slot: int,
        members: Members,
        entries: Entries,
        vector: Vector | None = None,
        root: int = -1,  # of a broadcast
    ) -> None:
        self.kind = kind  # one of `protocol.KINDS` but "send"
        self.tag = tag  # its number in the group
        self.slot = slot  # of its messages
        self.world = members.size  # members of the group
        self.members = members
        self.channels: dict[Connection, Channel] = {}  # by connection
        self.reals: dict[int, RealSide] = {}  # by real member
        is_broadcast = kind == "broadcast"
        # When which message may go
        self.schedule = Broadcast(members, root) if is_broadcast else _SCHEDULES[kind](members)
        self.entries = entries  # when the emulated members come
        self.vector = vector  # what is reduced, where anything is
        self.layout: Layout | None = None  # how that is cut
        self.segment = 0  # bytes of a segment
        self._cut: dict[int, Messages | None] = {}  # by real member: what is not empty
        self.given: memoryview | None = None  # what each emulated member gives, once that is known
        self.moved = 0  # messages that have arrived or gone
        if vector is not None and isinstance(self.schedule, Ring):
            cut = layout_of(kind, members.size, vector.size, vector.element)
            self.layout, self.segment = cut
            self.schedule.lag = self.layout.lag
            if isinstance(self.schedule, RingReduce):
                self.schedule.count = self.layout.count
        # Messages both ways that there are at least
        self._least = sum(sum(self.expected(real) or (0,)) for real in members.real)

    @property
    def is_ring(self) -> bool:
        return self.kind in REDUCTIONS

    def unexpected(self, source: int, target: int, index: int, length: int) -> str:
        """Describe what was expected if gloo's algorithm has no such message; else empty."""
        if self.kind == "all_reduce" and self.vector is not None and length > self.segment:
            return (
                f"message {index} has {length:,} bytes, but gloo cuts {self.vector.size:,} bytes "
                f"into segments of {self.segment:,}"
            )
        if self.schedule.allows(source, target, index):
            return ""
        expected = {
            "all_reduce": "ranks send to the rank before them only",
            "all_gather": "ranks send to the rank after them only",
        }.get(self.kind, "one message from one rank to another at most")
        if self.kind == "barrier":
            expected = "one message at most, between ranks that are a power of 2 apart"
        elif isinstance(self.schedule, Broadcast):
            expected = f"one message at most, along the binomial tree of root {self.schedule.root}"
        return (
            f"message {index} of {length:,} bytes from rank {source} to rank {target} of the group "
            f"was not expected: in gloo's {self.kind} among {self.world} {expected}"
        )

    def is_awaited(self, channel: Channel, length: int) -> bool:
        """Whether we were ready for a message of an all-reduce before it was announced."""
        is_ahead = channel.accepted > channel.announced
        return is_ahead and self.kind == "all_reduce" and length <= self.segment

    def _present(self, real: int) -> Messages | None:
        if real not in self._cut:
            layout = self.layout
            is_full = layout is None or layout.is_full
            self._cut[real] = None if is_full or layout is None else messages_of(layout, real)
        return self._cut[real]

    def sent_as(self, pair: Pair, number: int) -> int:
        """Return gloo's index of a real member's message from its number to an emulated one."""
        in_ring = (pair.emulated + 1) % self.world == pair.real
        present = self._present(pair.real) if in_ring else None
        return number if present is None else _index_of(present.sends, number, self.layout)

    def received_as(self, pair: Pair, number: int) -> int:
        """Return gloo's index of a message to a real member from its number."""
        in_ring = (pair.real + 1) % self.world == pair.emulated
        present = self._present(pair.real) if in_ring else None
        return number if present is None else _index_of(present.receives, number, self.layout)

    def number_of(self, real: int, index: int) -> int:
        """Return the number of a real member's message in the ring: what `sent_as` undoes."""
        present = self._present(real)
        if present is None:
            return index
        number = bisect_left(present.sends, index)
        is_there = number < len(present.sends) and present.sends[number] == index
        return number if is_there else len(present.sends)

    def sends_more(self, channel: Channel) -> bool:
        """Return whether a real member certainly has one more message for us now.

        gloo's rings keep two messages in flight. Short ones, which take no longer than a notice,
        are awaited many at once, which saves waiting for notices.
        """
        if channel.accepted >= (channel.arrived // self._ahead + 2) * self._ahead:
            return False
        real, emulated = channel.connection.pair.real, channel.connection.pair.emulated
        if not self.schedule.allows(real, emulated, 0):
            return False
        if self.kind == "all_reduce":
            return self.layout is not None and self._is_due(channel, self.layout, real)
        mine = 2 * (self.world - 1)
        return self.kind == "all_gather" and bool(channel.halves) and channel.accepted < mine

    def _is_due(self, channel: Channel, layout: Layout, real: int) -> bool:
        """Return whether gloo has posted the next receive of an all-reduce.

        With two members, being told too early that the other is ready makes a member send data, and
        its own notices queue behind it. The second half begins when the first is complete.
        """
        messages = messages_of(layout, real)
        if channel.accepted >= len(messages.sends):
            return False
        if self.world > 2 or self._is_short or channel.accepted < messages.begun:
            return True
        return channel.arrived >= messages.begun and channel.gone >= messages.added

    @cached_property
    def _ahead(self) -> int:
        """Half of the messages that are awaited at most."""
        return _MANY if self.kind == "all_reduce" and self.segment <= _SHORT else 1

    @cached_property
    def _is_short(self) -> bool:
        return self._ahead == _MANY and self.world == 2

    def is_urgent(self, channel: Channel) -> bool:
        """Whether a real member is to know at once that we are ready for its data (two members)."""
        # Where ours waits for it, or where both are long and go side by side.
        side_by_side = self.world == 2 and self.kind == "all_reduce" and not self._is_short
        return side_by_side or self.is_behind(channel)

    def is_last(self, index: int) -> bool:
        """Whether a real member has posted no receive after our message `index` (two members)."""
        return self.kind in ("all_reduce", "all_gather") and index % 2 == 1

    def is_behind(self, channel: Channel) -> bool:
        """Return whether our next message would go behind one of the real member's own.

        When two members gather, the second to arrive finds the other waiting; it sends before it
        posts the matching receive, whose notice queues behind the data. This repeats from call to
        call, since that member is also the last to end. Ours sends the real one's own data, so the
        real one has to be second.
        """
        return self.kind == "all_gather" and self.world == 2 and channel.arrived <= channel.sent

    def length_ahead(self, channel: Channel) -> int:
        """Return the likely length of a message before it is announced; gloo does not check it."""
        likely = next(iter(channel.halves.values()), self.segment)
        return channel.halves.get(channel.accepted % 2, likely)

    def learn_root(self, channel: Channel) -> None:
        if self.kind in ("all_reduce", "all_gather"):
            return
        pair = channel.connection.pair
        side = self.reals[pair.real]
        if self.kind == "gather":
            side.peer = pair.emulated if channel.announced else pair.real
        elif self.kind == "scatter":
            side.peer = pair.real if channel.announced else pair.emulated
        elif isinstance(self.schedule, Broadcast):
            side.peer = self.schedule.root
        elif isinstance(self.schedule, RingReduce):
            real, peer, is_part = pair.real, pair.emulated, self.schedule.is_part
            if channel.announced and is_part(real, peer, channel.announced - 1):
                side.peer = peer
            elif channel.asked and is_part(peer, real, channel.asked - 1):
                side.peer = real

    def expected(self, real: int) -> tuple[int, int] | None:
        size = self.world
        others = size - len(self.members.real)

        def emulated(member: int) -> bool:
            return not self.members.is_real(member % size)

        if self.kind == "all_reduce":
            if self.layout is None:
                return None
            messages = messages_of(self.layout, real)
            return len(messages.sends) * emulated(real - 1), len(messages.receives) * emulated(
                real + 1
            )
        if self.kind == "all_gather":
            all_of_them = 2 * (size - 1)
            return all_of_them * emulated(real + 1), all_of_them * emulated(real - 1)
        if self.kind == "all_to_all":
            return others, others
        if self.kind == "barrier":
            apart = [1 << i for i in range((size - 1).bit_length())]
            return sum(emulated(real + d) for d in apart), sum(emulated(real - d) for d in apart)
        return None

    @property
    def is_under_way(self) -> bool:
        """Whether there is certainly more to move, checked after every message."""
        return self.moved < self._least

    def is_open(self, real: int) -> bool:
        if any(channel.is_open for channel in self._channels_of(real)):
            return True
        expected = self.expected(real)
        if expected is None:
            return False
        arrived, gone = self._moved(real)
        return arrived < expected[0] or gone < expected[1]

    def is_complete(self, real: int) -> bool:
        is_open = any(channel.is_open for channel in self._channels_of(real))
        return self._moved(real) == self.expected(real) and not is_open

    def _channels_of(self, real: int) -> list[Channel]:
        return [
            channel for channel in self.channels.values() if channel.connection.pair.real == real
        ]

    def _moved(self, real: int) -> tuple[int, int]:
        mine = self._channels_of(real)
        return sum(channel.arrived for channel in mine), sum(channel.gone for channel in mine)

    def size(self, real: int) -> int:
        """Return the bytes of the whole vector, as `records.Collective` counts them."""
        side = self.reals[real]
        if self.vector is not None:
            return self.vector.size
        if self.kind == "all_gather":
            moved = side.sent or side.received
            return moved * self.world // (self.world - 1)
        if self.kind == "all_to_all":
            others = self.world - len(self.members.real)
            return side.sent * self.world // others
        if self.kind in ("gather", "scatter"):
            return side.longest * self.world
        return side.longest


_SCHEDULES: dict[str, Callable[[Members], Direct]] = {
    "all_reduce": lambda members: Ring(members, -1, 2, 2),
    "all_gather": lambda members: Ring(members, 1, 2, 1),
    "reduce": RingReduce,
    "barrier": Barrier,
    "gather": Direct,
    "scatter": Direct,
    "all_to_all": Direct,
}


def _index_of(present: Sequence[int], number: int, layout: Layout | None) -> int:
    """Return the index of a message of the ring, or one past all of them."""
    if number < len(present):
        return present[number]
    return number - len(present) + (0 if layout is None else layout.count)


class Entries:
    """When each group member arrives: asks `Peers` once, and adds the delays of what-ifs."""

    def __init__(self, peers: Peers, members: Sequence[int], asked: float, added: float) -> None:
        self._peers = peers
        self._members = members
        self._asked = asked
        self._added = added
        self._known: dict[int, float] = {}

    def of(self, member: int) -> float:
        known = self._known.get(member)
        if known is None:
            known = self._peers.entry(self._members[member], self._asked) + self._added
            self._known[member] = known
        return known

    @property
    def last(self) -> float:
        return max(self._known.values(), default=self._asked)
