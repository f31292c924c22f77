"""The emulated end of a gloo connection: frames in, frames out, without blocking."""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import resource
import select
import socket
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from paracosm.emulation.wire.answers import Answers
from paracosm.emulation.wire.protocol import (
    DATA,
    HEADER,
    RECV_READY,
    SEND_READY,
    BrokenError,
    data_header,
    notice,
    read_header,
)
from paracosm.errors import InputError

_TURN = 1 << 20  # bytes that one connection moves before the others have their turn
_SCRATCH = bytearray(_TURN)
_FIRST = memoryview(_SCRATCH)[: 1 << 16]  # where headers, and the data behind them, come in
_FIRST_SIZE = len(_FIRST)  # bytes of small messages that go out together
_MOST_PARTS = 64  # pieces that go out together; the kernel takes up to 1024
_AT_ONCE = 1 << 14  # bytes of data that do not wait for others to go out with
_LOW = 1 << 16  # bytes of a long message that come before we are woken
_ZEROS = memoryview(bytes(1 << 18))  # small enough to stay in the processor's cache
_END = 1 << 14  # bytes at the end of one for which we do not sleep again
_AWAKE = 200e-6  # seconds for which we do not: these take less, or a real rank to go on


class Buffer:
    __slots__ = ("data", "got", "readers")

    def __init__(self, length: int) -> None:
        self.data = memoryview(bytearray(length))  # room for all of it
        self.got = 0  # bytes that have come
        self.readers: list[tuple[Connection, Outgoing]] = []  # messages that wait for more of it


class Outgoing:
    __slots__ = ("allowed", "length", "moved", "prefix", "slot", "source")

    def __init__(self, slot: int, length: int, source: memoryview | None, allowed: int) -> None:
        # Frames before the data
        self.prefix = notice(SEND_READY, slot, length) + data_header(slot, length)
        self.length = length  # bytes of data
        self.source = source  # the data; None for zeros
        self.allowed = allowed  # bytes of data that may go by now
        self.slot = slot  # of its operation
        self.moved = 0  # bytes of prefix and data that have gone


class Listener(Protocol):
    # The real rank has data for us; it waits for data of ours.
    def on_send_ready(self, connection: Connection, slot: int, length: int) -> None: ...
    def on_recv_ready(self, connection: Connection, slot: int, length: int) -> None: ...

    # Data begins to come: the listener says where to keep it, None to throw it away; it is here.
    def on_data(self, connection: Connection, slot: int, length: int) -> Buffer | None: ...
    def on_received(self, connection: Connection, slot: int, length: int) -> None: ...

    # All data of a message of ours has gone; the connection is closed, since something was broken.
    def on_sent(self, connection: Connection, message: Outgoing) -> None: ...
    def on_closed(self, connection: Connection, broken: str | None) -> None: ...


class Connection:
    """A connection. With a `group`, its number there, `Loop.answers` reads it, and serves rings."""

    def __init__(
        self, pair: Pair, loop: Loop, listener: Listener, group: int | None = None
    ) -> None:
        self.pair = pair  # the connection's two ends
        self.sent = self.received = self.messages = 0  # bytes of data, and how many had some
        self.announced: dict[int, deque[int]] = {}  # by slot, lengths that have not begun
        self._socket = pair.socket
        self._loop = loop
        self._listener = listener
        self.is_open = True
        self._head = bytearray()  # a header of which a part has come
        self._slot = self._length = self._left = 0  # of the data that is coming
        self._buffer: Buffer | None = None
        self._queue: deque[Outgoing | memoryview] = deque()
        self._wants_room = False
        self._is_due = False
        self._low = 1
        self._socket.setblocking(False)
        with contextlib.suppress(OSError):
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._answers = None if group is None else loop.answers
        self._number = -1  # there
        if self._answers is None or group is None:
            loop.watch(self._socket.fileno(), self._ready)
        else:
            descriptor = self._socket.fileno()
            self._number = self._answers.connect(descriptor, group, pair.emulated, self)

    def feed(self, frames: memoryview) -> None:
        """Take frames that are not answered elsewhere."""
        if self.is_open:
            try:
                self._parse(frames)
            except BrokenError as error:
                self.close(str(error))

    def write(self) -> None:
        self._write()

    def count(self) -> None:
        """Add what was moved elsewhere to `sent`, `received` and `messages`."""
        if self._answers is not None:
            sent, received, messages = self._answers.counts(self._number)
            self.sent += sent
            self.received += received
            self.messages += messages

    def accept(self, slot: int, length: int) -> None:
        if not self.is_open:
            return
        waiting = (
            isinstance(outgoing, Outgoing) and not outgoing.moved for outgoing in self._queue
        )
        place = next((i for i, waits in enumerate(waiting) if waits), len(self._queue))
        self._queue.insert(place, memoryview(notice(RECV_READY, slot, length)))
        self.resume()

    def expect(self, slot: int, length: int) -> None:
        self.announced.setdefault(slot, deque()).append(length)

    def send(self, message: Outgoing, at_once: bool = False) -> None:
        """Send data; short messages go together after all input has been read.

        `at_once` if the real rank cannot proceed without this one.
        """
        if not self.is_open:
            return
        self._queue.append(message)
        if (at_once or message.length >= _AT_ONCE) and not self._wants_room:
            self._write()
        else:
            self.resume()

    def flush(self) -> None:
        if not self._wants_room:
            self._write()

    def resume(self) -> None:
        if self.is_open and not self._wants_room and not self._is_due:
            self._is_due = True
            self._loop.soon(self._write)

    def close(self, broken: str | None = None) -> None:
        if self.is_open:
            self.is_open = False
            if self._answers is None:
                self._loop.forget(self._socket.fileno())
            else:
                self._answers.close(self._number)
            self._socket.close()
            self._queue.clear()
            self._listener.on_closed(self, broken)

    def _ready(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self._write()
        if events & ~select.EPOLLOUT and self.is_open:
            try:
                self._read()
            except BlockingIOError:
                pass
            except OSError:  # reset: gloo closes so
                self.close()
            except BrokenError as error:
                self.close(str(error))

    # --- in ---

    def _read(self) -> None:
        try:
            self._read_what_is_there()
        finally:
            if self._left > _END:
                self._wake_at(min(self._left - _END, _LOW))
            else:
                self._wake_at(self._left or 1)
                self._loop.stay_awake()

    def _read_what_is_there(self) -> None:
        turn = _TURN
        while turn > 0 and self.is_open:
            if self._left:
                count = self._read_data()
            else:
                count = self._socket.recv_into(_FIRST)
                self._parse(_FIRST[:count])
            if count == 0:
                self.close()
                return
            turn -= count
            if self._left and count < _FIRST_SIZE:
                return  # most probably nothing more is there; notices come one by one

    def _wake_at(self, low: int) -> None:
        """Wake up only after so many bytes, not for every packet of a long message."""
        if low != self._low and self.is_open:
            self._low = low
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, low)

    def _read_data(self) -> int:
        buffer, most = self._buffer, min(self._left, _TURN)
        if buffer is None:
            # The kernel throws the data away without copying it (tcp(7), MSG_TRUNC).
            count = self._socket.recv_into(_SCRATCH, most, socket.MSG_TRUNC)
        else:
            count = self._socket.recv_into(buffer.data[buffer.got :], most)
            self._grow(buffer, count)
        self._left -= count
        self.received += count
        if not self._left:
            self._received()
        return count

    def _parse(self, view: memoryview) -> None:
        at = 0
        while at < len(view) and self.is_open:
            if self._left:
                count = min(self._left, len(view) - at)
                if self._buffer is not None:
                    buffer = self._buffer
                    buffer.data[buffer.got : buffer.got + count] = view[at : at + count]
                    self._grow(buffer, count)
                self._left -= count
                self.received += count
                at += count
                if not self._left:
                    self._received()
            elif not self._head and len(view) - at >= HEADER.size:
                self._frame(view, at)
                at += HEADER.size
            else:
                count = min(HEADER.size - len(self._head), len(view) - at)
                self._head += view[at : at + count]
                at += count
                if len(self._head) == HEADER.size:
                    head, self._head = self._head, bytearray()
                    self._frame(head, 0)

    def _frame(self, buffer: bytearray | memoryview, offset: int) -> None:
        opcode, slot, length = read_header(buffer, offset)
        if opcode == SEND_READY:
            self._listener.on_send_ready(self, slot, length)
        elif opcode == RECV_READY:
            self._listener.on_recv_ready(self, slot, length)
        else:
            assert opcode == DATA
            self._begin(slot, length)

    def _begin(self, slot: int, length: int) -> None:
        promised = self.announced.get(slot)
        if not promised:
            raise BrokenError(f"expected no data before it is announced, but {length:,} bytes came")
        announced = promised.popleft()
        if not promised:
            del self.announced[slot]
        if announced != length:
            raise BrokenError(f"expected {announced:,} bytes, as announced, but {length:,} came")
        self._slot, self._length, self._left = slot, length, length
        self._buffer = self._listener.on_data(self, slot, length)
        if not length:
            self._received()

    def _grow(self, buffer: Buffer, count: int) -> None:
        buffer.got += count
        if buffer.readers:
            for connection, message in buffer.readers:
                message.allowed = min(message.length, buffer.got)
                connection.resume()
            buffer.readers = [one for one in buffer.readers if one[1].allowed < one[1].length]

    def _received(self) -> None:
        self._buffer = None
        self.messages += 1
        self._listener.on_received(self, self._slot, self._length)

    # --- out ---

    def _write(self) -> None:
        self._is_due = False
        if not self.is_open:
            return
        if self._answers is not None and not self._answers.may_write(self._number):
            self._wants_room = True
            self._answers.wrote(self._number, False, True)
            return
        full = False
        turn = _TURN
        try:
            while turn > 0:
                parts = self._parts()
                if not parts:
                    break
                offered = sum(map(len, parts))
                count = self._socket.sendmsg(parts)
                self._went(count)
                turn -= count
                if count < offered:
                    full = True
                    break
        except BlockingIOError:
            full = True
        except OSError:
            self.close()
            return
        self._wrote(full or (turn <= 0 and bool(self._queue)))

    def _wrote(self, full: bool) -> None:
        if not self.is_open:
            return
        if self._answers is not None:
            self._answers.wrote(self._number, self._is_inside(), full)
        elif full != self._wants_room:
            self._loop.writable(self._socket.fileno(), full)
        self._wants_room = full

    def _is_inside(self) -> bool:
        """Return whether a part of a frame has gone."""
        if not self._queue:
            return False
        first = self._queue[0]
        return first.moved > 0 if isinstance(first, Outgoing) else len(first) < HEADER.size

    def _parts(self) -> list[memoryview]:
        parts: list[memoryview] = []
        size = 0
        for item in self._queue:
            if isinstance(item, memoryview):
                parts.append(item)
                continue
            at = item.moved - len(item.prefix)
            if at < 0:
                parts.append(memoryview(item.prefix)[at:])
            piece = _piece(item, max(at, 0))
            parts += piece
            size += sum(map(len, piece))
            if item.allowed < item.length or size >= _FIRST_SIZE or len(parts) > _MOST_PARTS:
                break
        return parts

    def _went(self, count: int) -> None:
        """Remove sent bytes from the queue, then tell the listener, which may add to it."""
        gone = []
        while self._queue:
            item = self._queue[0]
            if isinstance(item, memoryview):
                if count < len(item):
                    self._queue[0] = item[count:]
                    break
                count -= len(item)
                self._queue.popleft()
                continue
            head = len(item.prefix)
            left = head + item.length - item.moved
            moved = min(count, left)
            before = max(0, item.moved - head)
            item.moved += moved
            count -= moved
            self.sent += max(0, item.moved - head) - before
            if moved < left:
                break
            self._queue.popleft()
            self.messages += 1
            gone.append(item)
        for item in gone:
            if self.is_open:
                self._listener.on_sent(self, item)


def _piece(item: Outgoing, at: int) -> list[memoryview]:
    count = min(item.allowed - at, _TURN)
    if count <= 0:
        return []
    if item.source is not None:
        return [item.source[at : at + count]]
    whole, rest = divmod(count, len(_ZEROS))
    return [_ZEROS] * whole + ([_ZEROS[:rest]] if rest else [])


@dataclass(frozen=True)
class WireGroup:
    name: str  # its prefix in the store, "default_pg/0//cpu//0"
    size: int
    real: tuple[int, ...]  # the members that are real, by their rank in the group
    members: tuple[int, ...] = ()  # global ranks by rank in the group; empty if unknown


@dataclass(frozen=True)
class Pair:
    """An open connection after gloo's handshake; its socket does not block."""

    socket: socket.socket  # to the real rank
    group: WireGroup
    real: int  # rank in the group of the real end
    emulated: int  # rank in the group of our end


_COARSE = 2e-3  # seconds: epoll counts milliseconds, and rounds up
_EARLY = 60e-6  # seconds by which the kernel wakes late; the rest is polled
_LONGEST = 0.5  # seconds
_LOOK = 0.05  # seconds until Python looks around while all is answered elsewhere


class Loop:
    """Calls back when a descriptor is ready, when an instant has come, or when another thread asks.

    All ready descriptors are served before any is served again. Connections that `answers` serves
    are served there.
    """

    def __init__(self, answers: Answers | None = None) -> None:
        self.answers = answers
        self._epoll = select.epoll()
        self._ready: dict[int, Callable[[int], None]] = {}
        self._timers: list[tuple[float, int, Callable[..., None], tuple[Any, ...]]] = []
        self._count = itertools.count()
        self._woken = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._soon: list[Callable[[], None]] = []
        self._running = True
        self._awake = 0.0
        self.watch(self._woken, self._drain)
        if answers is not None:
            answers.start(self._epoll.fileno())

    def watch(self, descriptor: int, ready: Callable[[int], None]) -> None:
        self._ready[descriptor] = ready
        self._epoll.register(descriptor, select.EPOLLIN)

    def writable(self, descriptor: int, wanted: bool) -> None:
        events = select.EPOLLIN | (select.EPOLLOUT if wanted else 0)
        self._epoll.modify(descriptor, events)

    def forget(self, descriptor: int) -> None:
        if self._ready.pop(descriptor, None) is not None:
            self._epoll.unregister(descriptor)

    def at(self, instant: float, call: Callable[..., None], *arguments: Any) -> None:
        heapq.heappush(self._timers, (instant, next(self._count), call, arguments))

    def soon(self, call: Callable[[], None]) -> None:
        self._soon.append(call)

    def stay_awake(self) -> None:
        """Poll instead of sleeping for a while: data is expected, and waking up takes long."""
        self._awake = time.monotonic() + _AWAKE

    def wake(self) -> None:
        with contextlib.suppress(OSError):
            os.eventfd_write(self._woken, 1)

    def stop(self) -> None:
        """End `run` after what is being called; any thread, or a signal's handler, may ask."""
        self._running = False
        if self.answers is not None:
            self.answers.stop()
        self.wake()

    def run(self, around: Callable[[], None]) -> None:
        """Serve until `stop`; `around` is called after every wake-up."""
        try:
            while self._running:
                for descriptor, events in self._wait():
                    ready = self._ready.get(descriptor)
                    if ready is not None:
                        ready(events)
                while self._timers and self._timers[0][0] <= time.monotonic():
                    _, _, call, arguments = heapq.heappop(self._timers)
                    call(*arguments)
                while self._soon:
                    calls, self._soon = self._soon, []
                    for soon in calls:
                        soon()
                around()
        finally:
            self._epoll.close()
            os.close(self._woken)

    def _wait(self) -> list[tuple[int, int]]:
        """Return the ready descriptors, once there are any or a timer is due."""
        now = time.monotonic()
        if self.answers is not None:
            first = self._timers[0][0] if self._timers else now + _LOOK
            self.answers.wait(min(first, now + _LOOK))
            return self._epoll.poll(0)
        while now < self._awake:
            events = self._epoll.poll(0)
            if events or (self._timers and self._timers[0][0] <= now):
                return events
            now = time.monotonic()
        return self._epoll.poll(self._poll_timeout())

    def _poll_timeout(self) -> float:
        """Return the timeout for epoll; sleep first where its resolution is too coarse."""
        if not self._timers:
            return _LONGEST
        until = self._timers[0][0] - time.monotonic()
        if until > _COARSE:
            return min(until - _COARSE / 2, _LONGEST)
        if until > _EARLY:
            select.select([self._epoll.fileno()], [], [], until - _EARLY)
        return 0.0

    def _drain(self, events: int) -> None:
        del events
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._woken)


_OTHERS = 128  # files that a process opens anyway
_ENDLESS = 1 << 20


def allow_open_files(connections: int) -> None:
    """Raise the limit of open files, of this process and its children, as far as allowed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = connections + _OTHERS
    most = _ENDLESS if hard == resource.RLIM_INFINITY else hard
    if most < needed:
        raise InputError(
            f"world_size: {connections:,} connections need {needed:,} open files, but {hard:,} are "
            f"allowed: ulimit -Hn {needed}, or a smaller world"
        )
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, _ENDLESS), hard))
