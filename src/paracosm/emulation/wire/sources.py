"""The data that emulated members send: the real member's own where gloo's algorithm allows it.

Sums are then the real members' data alone, and gathered parts are copies of it, so that training
stays finite.
"""

from __future__ import annotations

from dataclasses import dataclass

from paracosm.emulation.wire.announcements import Announcements, Vector
from paracosm.emulation.wire.connection import Buffer, Connection, Outgoing, WireGroup
from paracosm.emulation.wire.operations import Channel, Operation
from paracosm.emulation.wire.schedules import Broadcast, Ring


@dataclass(frozen=True, slots=True)
class Source:
    """Where a message's data comes from; `kept` may still be coming. Zeros if it is neither."""

    data: memoryview | None = None
    buffer: Buffer | None = None


ZEROS = Source()


class UnknownError(Exception):
    """What an emulated member sends cannot be known."""


class Sources:
    def __init__(self, announcements: Announcements) -> None:
        self._pool = BufferPool()
        self._announcements = announcements

    def keep(self, operation: Operation, channel: Channel, length: int) -> Buffer | None:
        pair = channel.connection.pair
        if operation.kind == "all_to_all":
            channel.mirror = self._pool.take(length)
            return channel.mirror
        schedule = operation.schedule
        if not isinstance(schedule, Ring):
            return None
        buffers = operation.reals[pair.real].buffers
        index = operation.sent_as(pair, len(buffers))
        if operation.kind == "reduce":
            needed = not schedule.is_part(pair.real, pair.emulated, index)
        else:
            begins = operation.kind == "all_gather" and index < 2
            needed = begins or schedule.returns_to(pair.real, index)
        buffers.append(self._pool.take(length) if needed else None)
        return buffers[-1]

    def of(
        self, group: WireGroup, operation: Operation, channel: Channel, index: int, length: int
    ) -> Source | None:
        """Return the next bytes, None until real ranks have sent them, or raise UnknownError."""
        schedule, pair = operation.schedule, channel.connection.pair
        if isinstance(schedule, Ring) and not schedule.is_part(pair.emulated, pair.real, index):
            sender, began = schedule.origin(pair.real, index)
            if operation.members.is_real(sender):
                return _nth(operation, sender, began)
            if operation.vector is not None:
                return _neutral(operation.vector, length)
        if operation.kind == "all_gather":
            assert isinstance(schedule, Ring)
            owner = operation.reals.get(schedule.source_of(pair.emulated))
            half = [] if owner is None else owner.buffers
            return _fitted_to(half[index % 2], length) if len(half) > index % 2 else None
        if operation.kind == "all_to_all":
            return _fitted_to(_mirror(operation, channel), length) if channel.mirror else None
        if operation.kind == "reduce":
            return _part(operation, pair.real, pair.emulated, length)
        return self._contribution_of(group, operation, pair.real, length) if length else ZEROS

    def _contribution_of(
        self, group: WireGroup, operation: Operation, real: int, length: int
    ) -> Source | None:
        """Return what an emulated member contributes: what a real one has, or has sent it."""
        holder = real
        if isinstance(operation.schedule, Broadcast):
            root = operation.schedule.root
            holder = root if operation.members.is_real(root) else group.real[0]
        if operation.given is None:
            operation.given = self._announcements.copy(group.name, holder, operation.tag)
        if operation.given is None and holder not in operation.reals:
            return None
        if operation.given is None or len(operation.given) != length:
            raise UnknownError
        return Source(operation.given)

    def passed_on(self, operation: Operation, channel: Channel, index: int) -> None:
        """Release what nobody will be sent again, once message `index` has gone."""
        schedule, pair = operation.schedule, channel.connection.pair
        if operation.kind == "all_reduce" and isinstance(schedule, Ring):
            member, began = schedule.origin(pair.real, index)
            if operation.members.is_real(member):
                number = operation.number_of(member, began)
                buffers = operation.reals[member].buffers
                if number < len(buffers):
                    self._give(buffers[number])
                    buffers[number] = None

    def finished(self, operation: Operation) -> None:
        for side in operation.reals.values():
            for buffer in side.buffers:
                self._give(buffer)
            side.buffers.clear()
        for channel in operation.channels.values():
            self._give(channel.mirror)
            channel.mirror = None

    def _give(self, buffer: Buffer | None) -> None:
        if buffer is not None:
            self._pool.give(buffer)


def _neutral(vector: Vector, length: int) -> Source:
    """Return data that leaves a reduction unchanged."""
    if not any(vector.neutral):
        return ZEROS
    return Source(memoryview(vector.neutral * (length // vector.element)))


def _nth(operation: Operation, real: int, index: int) -> Source:
    buffers = operation.reals[real].buffers if real in operation.reals else []
    number = operation.number_of(real, index)
    return Source(buffer=buffers[number]) if number < len(buffers) else ZEROS


def _mirror(operation: Operation, channel: Channel) -> Buffer | None:
    """Return what the real member sent, or sent to another member if this one got nothing."""
    mirrors = [
        channel.mirror for channel in operation.channels.values() if channel.mirror is not None
    ]
    if channel.mirror is not None and len(channel.mirror.data):
        return channel.mirror
    some = next((mirror for mirror in mirrors if len(mirror.data)), None)
    if some is None and len(mirrors) == operation.world - len(operation.members.real):
        raise UnknownError
    return some


def _fitted_to(buffer: Buffer | None, length: int) -> Source | None:
    """Return kept data, once complete, cut or repeated to a length."""
    if not length:
        return ZEROS
    if buffer is None:
        return None
    if len(buffer.data) == length:
        return Source(buffer=buffer)
    if buffer.got < len(buffer.data):
        return None
    return Source(memoryview((bytes(buffer.data) * -(-length // buffer.got))[:length]))


def _part(operation: Operation, real: int, emulated: int, length: int) -> Source:
    layout = operation.layout
    if layout is None:
        return ZEROS
    first = (emulated - real - 1) % operation.world * layout.lag
    parts = [_nth(operation, real, first + i).buffer for i in range(layout.lag)]
    chunk = b"".join(bytes(part.data) for part in parts if part is not None)
    return Source(memoryview(chunk)) if len(chunk) == length else ZEROS


_SPARE = 64 << 20  # bytes of buffers that wait to be used again: fresh ones cost page faults


class BufferPool:
    def __init__(self) -> None:
        self._spare: dict[int, list[Buffer]] = {}
        self._spared = 0

    def take(self, length: int) -> Buffer:
        spare = self._spare.get(length)
        if spare:
            self._spared -= length
            buffer = spare.pop()
            buffer.got = 0
            return buffer
        return Buffer(length)

    def give(self, buffer: Buffer) -> None:
        length = len(buffer.data)
        if self._spared + length <= _SPARE:
            self._spared += length
            buffer.readers = []
            self._spare.setdefault(length, []).append(buffer)


def send(
    connection: Connection, slot: int, length: int, source: Source, at_once: bool = False
) -> None:
    """Send data from a source; what has not come yet follows as it comes."""
    buffer = source.buffer
    if buffer is None:
        connection.send(Outgoing(slot, length, source.data, length), at_once)
        return
    message = Outgoing(slot, length, buffer.data, min(length, buffer.got))
    if message.allowed < length:
        buffer.readers.append((connection, message))
    connection.send(message, at_once)
