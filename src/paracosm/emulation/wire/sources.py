"""What emulated members send: the real member's own data where gloo's algorithm lets us.

Sums come out as the real members' data alone, and gathered parts as copies of it, so that training
stays finite; what the plan of another run says goes before that.
"""

from __future__ import annotations

from dataclasses import dataclass

from paracosm.emulation.wire.connection import Connection, Kept, Outgoing, WireGroup
from paracosm.emulation.wire.operations import Channel, Operation
from paracosm.emulation.wire.payloads import Payloads
from paracosm.emulation.wire.schedules import Ring

__all__ = ["ZEROS", "Room", "Source", "Sources", "send"]


_MOST_REPEATED = 1 << 20  # bytes


@dataclass(frozen=True, slots=True)
class Source:
    """Where a message's data comes from.

    Attributes:
        data: None for zeros.
        kept: data of the real member's that may still be coming.
    """

    data: memoryview | None = None
    kept: Kept | None = None


ZEROS = Source()


class Sources:
    """Finds the data of messages, and keeps what that needs.

    Args:
        room: for what is kept.
        payloads: of a plan.
    """

    def __init__(self, room: Room, payloads: Payloads) -> None:
        self._room = room
        self._payloads = payloads

    def keep(self, operation: Operation, channel: Channel, length: int) -> Kept | None:
        """Return where to keep data that begins to come; None to throw it away."""
        pair = channel.connection.pair
        if operation.kind == "all_to_all":
            channel.mirror = self._room.take(length)
            return channel.mirror
        schedule = operation.schedule
        if not isinstance(schedule, Ring):
            return None
        kept = operation.reals[pair.real].kept
        index = operation.sent_as(pair.real, len(kept))
        if operation.kind == "reduce":
            needed = not schedule.is_part(pair.real, pair.emulated, index)
        else:
            needed = operation.learning is not None or schedule.comes_back(pair.real, index)
            needed = needed or (operation.kind == "all_gather" and index < 2)
        kept.append(self._room.take(length) if needed else None)
        return kept[-1]

    def of(
        self, group: WireGroup, operation: Operation, channel: Channel, index: int, length: int
    ) -> Source | None:
        """Return the data of the next message to a real member; None while it has to come first.

        Args:
            group: of the operation.
            operation: that the message belongs to.
            channel: that it goes on.
            index: of the message in gloo's algorithm.
            length: bytes.
        """
        schedule, pair = operation.schedule, channel.connection.pair
        sender, offset = pair.emulated, 0
        if isinstance(schedule, Ring) and not schedule.is_part(sender, pair.real, index):
            origin = schedule.origin(pair.real, index)
            if operation.members.is_real(origin.member):
                return _nth(operation, origin.member, origin.index)
            if operation.kind != "all_gather":
                return ZEROS
            sender = origin.member
            offset = channel.first_given if index % 2 else 0
        planned = self._payloads.of(group, operation.kind, operation.tag, sender, offset, length)
        if planned is not None and len(planned) == length:
            return Source(planned)
        if operation.kind == "all_gather":
            assert isinstance(schedule, Ring)
            owner = operation.reals.get(schedule.source_of(pair.emulated))
            half = [] if owner is None else owner.kept
            return _of_length(half[index % 2], length) if len(half) > index % 2 else None
        if operation.kind == "all_to_all":
            begun = channel.arrived > 0 or channel.mirror is not None
            return _of_length(channel.mirror, length) if begun else None
        if operation.kind == "reduce":
            return _part(operation, pair.real, pair.emulated, length)
        return ZEROS

    def passed_on(self, operation: Operation, channel: Channel, index: int) -> None:
        """Give back what nobody will be sent again, once message `index` has gone."""
        schedule, pair = operation.schedule, channel.connection.pair
        if operation.kind == "all_reduce" and isinstance(schedule, Ring):
            origin = schedule.origin(pair.real, index)
            if operation.members.is_real(origin.member):
                number = operation.number_of(origin.member, origin.index)
                kept = operation.reals[origin.member].kept
                if number < len(kept):
                    self._give(kept[number])
                    kept[number] = None

    def finished(self, operation: Operation) -> None:
        """Give back what an operation kept."""
        for side in operation.reals.values():
            for kept in side.kept:
                self._give(kept)
            side.kept.clear()
        for channel in operation.channels.values():
            self._give(channel.mirror)
            channel.mirror = None

    def _give(self, kept: Kept | None) -> None:
        if kept is not None:
            self._room.give(kept)


def _nth(operation: Operation, real: int, index: int) -> Source:
    """Return what a real member sent as message `index`."""
    kept = operation.reals[real].kept if real in operation.reals else []
    number = operation.number_of(real, index)
    return Source(kept=kept[number]) if number < len(kept) else ZEROS


def _of_length(kept: Kept | None, length: int) -> Source | None:
    """Return data as kept where it has the length, else cut or repeated, once it is complete."""
    if kept is None or len(kept.data) == length:
        return Source(kept=kept)
    if kept.got < len(kept.data):
        return None
    if not kept.got or length > _MOST_REPEATED:
        return ZEROS
    return Source(memoryview((bytes(kept.data) * -(-length // kept.got))[:length]))


def _part(operation: Operation, real: int, emulated: int, length: int) -> Source:
    """Return the chunk that a member sends to the root of a reduce: the root's own data."""
    layout = operation.layout
    if layout is None:
        return ZEROS
    first = (emulated - real - 1) % operation.world * layout.lag
    parts = [_nth(operation, real, first + i).kept for i in range(layout.lag)]
    chunk = b"".join(bytes(part.data) for part in parts if part is not None)
    return Source(memoryview(chunk)) if len(chunk) == length else ZEROS


MOST = 1 << 30
"""Bytes that are kept at a time; a real rank's data beyond that is answered with zeros."""

_SPARE = 64 << 20  # bytes of buffers that wait to be used again: fresh ones cost page faults


class Room:
    """Buffers for data, up to a limit.

    Attributes:
        refused: how many times there was no room.
    """

    def __init__(self, most: int = MOST) -> None:
        self.refused = 0
        self._left = most
        self._spare: dict[int, list[Kept]] = {}
        self._spared = 0

    def take(self, length: int) -> Kept | None:
        """Return a buffer; None where there is no more room."""
        if length > self._left:
            self.refused += 1
            return None
        self._left -= length
        spare = self._spare.get(length)
        if spare:
            self._spared -= length
            kept = spare.pop()
            kept.got = 0
            return kept
        return Kept(length)

    def give(self, kept: Kept) -> None:
        """Take a buffer back that nobody reads any more."""
        length = len(kept.data)
        self._left += length
        if self._spared + length <= _SPARE:
            self._spared += length
            kept.readers = []
            self._spare.setdefault(length, []).append(kept)


def send(
    connection: Connection, slot: int, length: int, source: Source, at_once: bool = False
) -> None:
    """Send data from a source; what has not come yet follows as it comes."""
    kept = source.kept
    if kept is None:
        connection.send(Outgoing(slot, length, source.data, length), at_once)
        return
    message = Outgoing(slot, length, kept.data, min(length, kept.got))
    if message.allowed < length:
        kept.readers.append((connection, message))
    connection.send(message, at_once)
