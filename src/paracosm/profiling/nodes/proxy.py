"""A TCP proxy that changes nothing, and a watcher of both sides' bytes that follows HTTP/2."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

from paracosm.errors import InputError

_PIECE = 1 << 18  # bytes that are read at a time
_CONNECTIONS = 64  # at a time

See = Callable[[memoryview, float], None]


class Watch(Protocol):
    """Sees the bytes of one connection, those of a request always before those of its answer."""

    def from_client(self, data: memoryview, now: float) -> None:
        """Take bytes of the side that opened the connection, and when they came (Unix seconds)."""

    def from_server(self, data: memoryview, now: float) -> None:
        """Take bytes of the other side, and when they had been handed on."""


Watcher = TypeVar("Watcher", bound=Watch)


class Proxy(Generic[Watcher]):
    """Hands on connections to a target, from `start` until `close`; port 0 is any that is free."""

    def __init__(
        self,
        target: tuple[str, int],
        watch: Callable[[], Watcher],
        *,
        host: str = "127.0.0.1",
        port: int = 0,
    ) -> None:
        self._target, self._watch = target, watch
        try:
            self._listener = socket.create_server((host, port))
        except (OSError, OverflowError) as error:
            raise InputError(f"cannot listen on {host}:{port}: {error}") from None
        self.address: tuple[str, int] = self._listener.getsockname()[:2]
        self.watches: list[Watcher] = []
        self.failures: list[str] = []
        self._sockets: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def start(self) -> None:
        self._run(self._accept)

    def close(self) -> None:
        for each in (self._listener, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(timeout=1)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _run(self, work: Callable[..., None], *arguments: object) -> None:
        thread = threading.Thread(target=work, args=arguments, daemon=True)
        self._threads = [each for each in self._threads if each.is_alive()] + [thread]
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # closed
            self._sockets = [each for each in self._sockets if each.fileno() >= 0]
            if len(self._sockets) >= 2 * _CONNECTIONS:
                client.close()
                self.failures.append(f"more than {_CONNECTIONS} connections at a time")
                continue
            try:
                server = socket.create_connection(self._target, timeout=10)
            except OSError as error:
                client.close()
                host, port = self._target
                self.failures.append(f"{host}:{port}: {error.strerror or error}")
                continue
            server.settimeout(None)
            for each in (client, server):
                each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._sockets += [client, server]
            watch = self._watch()
            self.watches.append(watch)
            watched = _Watched(self.failures)
            self._run(watched.hand_on, client, server, watch.from_client, None)
            self._run(watched.hand_on, server, client, None, watch.from_server)


class _Watched:
    def __init__(self, failures: list[str]) -> None:
        self._lock = threading.Lock()  # a watcher sees one piece at a time
        self._failures = failures
        self._failed = False
        self._ends = 0

    def hand_on(
        self, source: socket.socket, sink: socket.socket, before: See | None, after: See | None
    ) -> None:
        """Hand on bytes until the source has no more; then the sink is told so."""
        buffer = memoryview(bytearray(_PIECE))
        with contextlib.suppress(OSError):
            while size := source.recv_into(buffer):
                self._seen(before, buffer[:size])
                sink.sendall(buffer[:size])
                self._seen(after, buffer[:size])
        with contextlib.suppress(OSError):
            sink.shutdown(socket.SHUT_WR)
        with self._lock:
            self._ends += 1
            if self._ends == 2:
                source.close()
                sink.close()

    def _seen(self, see: See | None, piece: memoryview) -> None:
        now = time.time()
        if see is None:
            return
        with self._lock:
            if self._failed:
                return
            try:
                see(piece, now)
            except InputError as error:
                self._failed = True
                self._failures.append(str(error))


STANDARD_WINDOW = 65_535
"""Bytes of a stream that may come at first, unless a setting says otherwise (RFC 9113, 6.9.2)."""

_OPEN = 10_000  # streams that are followed at a time: more is nothing that frameworks do
_ENDED = 100_000  # that are remembered


@dataclass(frozen=True, slots=True)
class Stream:
    number: int  # of the stream in its connection
    request: bytes  # the first 4 KiB that the client sent in it
    size: int  # bytes of the response
    # Bytes that it sent until another stream had its turn, one number a turn
    turns: tuple[int, ...]
    stopped: bool  # whether its first turn ended when the window was full
    window: int  # bytes that the client let every stream send at first, when it asked for this one
    last: float  # instant at which its last byte came by, in the seconds of who watched


@dataclass(slots=True)
class _Open:
    window: int
    request: bytes = b""
    size: int = 0
    turns: tuple[int, ...] = ()
    turn: int = 0
    last: float = 0.0


class StreamWatch:
    """Follows the responses of one connection, from the bytes of both sides."""

    def __init__(self) -> None:
        self.ended: list[Stream] = []
        self.windows: list[tuple[float, int]] = []
        self._client, self._server = FrameReader(client=True), FrameReader(client=False)
        self._open: OrderedDict[int, _Open] = OrderedDict()
        self._window = STANDARD_WINDOW
        self._sending: int | None = None

    def from_client(self, data: bytes | memoryview, now: float) -> None:
        for frame in self._client.read(data):
            stream = self._open.get(frame.stream)
            if frame.kind == SETTINGS and not frame.flags & ACK:
                window = settings_of(frame).get(INITIAL_WINDOW_SIZE)
                if window is not None and len(self.windows) < _ENDED:
                    self.windows.append((now, window))
                self._window = self._window if window is None else window
            elif frame.kind == HEADERS and stream is None:
                self._open[frame.stream] = _Open(self._window)
                if len(self._open) > _OPEN:
                    self._open.popitem(last=False)
            elif frame.kind == DATA and stream is not None and not stream.request:
                stream.request = frame.payload
            elif frame.kind == RST_STREAM:
                self._open.pop(frame.stream, None)

    def from_server(self, data: bytes | memoryview, now: float) -> None:
        for frame in self._server.read(data):
            stream = self._open.get(frame.stream)
            if stream is None:
                continue
            if frame.kind == DATA:
                self._sent(frame, stream, now)
            if frame.kind == RST_STREAM:
                del self._open[frame.stream]
            elif frame.kind in (DATA, HEADERS) and frame.flags & END_STREAM:
                self._end(frame.stream, self._open.pop(frame.stream))

    def _sent(self, frame: Frame, stream: _Open, now: float) -> None:
        if self._sending not in (frame.stream, None):
            other = self._open.get(self._sending or 0)
            if other is not None:
                other.turns = (*other.turns, other.turn)
                other.turn = 0
        self._sending = frame.stream
        stream.last = now
        stream.size += frame.size
        stream.turn += frame.size

    def _end(self, number: int, stream: _Open) -> None:
        if not stream.size:
            return
        turns = (*stream.turns, stream.turn) if stream.turn else stream.turns
        if self._sending == number:
            self._sending = None
        if len(self.ended) >= _ENDED:
            del self.ended[: _ENDED // 2]
        self.ended.append(
            Stream(
                number=number,
                request=stream.request,
                size=stream.size,
                turns=turns,
                stopped=len(turns) > 1 and turns[0] >= stream.window,
                window=stream.window,
                last=stream.last,
            )
        )


PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"

DATA, HEADERS, RST_STREAM, SETTINGS, WINDOW_UPDATE = 0, 1, 3, 4, 8
"""Kinds of frames (section 6)."""

END_STREAM = ACK = 1  # flags: of DATA and HEADERS, and of SETTINGS

INITIAL_WINDOW_SIZE = 4
"""Key of a setting (section 6.5.2): bytes of a stream that may come before its window is opened."""

_HEAD = 9
_KEPT = 4096


@dataclass(frozen=True, slots=True)
class Frame:
    kind: int
    flags: int
    stream: int
    size: int  # bytes of its payload
    payload: bytes  # the first of them, at most 4,096


class FrameReader:
    """Finds frames in bytes that come in pieces; of a frame it keeps 4 KiB at most."""

    def __init__(self, client: bool) -> None:
        self._preface = client
        self._first = True
        self._head: tuple[int, int, int, int] | None = None  # size, kind, flags, stream
        self._kept = bytearray()
        self._missing = len(PREFACE) if client else _HEAD  # bytes until what is kept is whole
        self._passing = 0  # bytes of the payload behind those

    def read(self, data: bytes | memoryview) -> Iterator[Frame]:
        at = 0
        while at < len(data):
            if self._missing:
                piece = data[at : at + self._missing]
                self._kept += piece
                self._missing -= len(piece)
                at += len(piece)
                if not self._missing and self._head is None:
                    self._begin()
            else:
                passed = min(self._passing, len(data) - at)
                self._passing -= passed
                at += passed
            if self._head is not None and not self._missing and not self._passing:
                yield self._ended(*self._head)

    def _begin(self) -> None:
        if self._preface:
            if self._kept != PREFACE:
                raise InputError("not HTTP/2 in clear text: the client does not begin with PRI")
            self._preface, self._missing = False, _HEAD
        else:
            size, kind = int.from_bytes(self._kept[:3]), self._kept[3]
            stream = int.from_bytes(self._kept[5:]) & 0x7FFFFFFF
            self._check(size, kind, stream)
            self._first = False
            self._head = size, kind, self._kept[4], stream
            self._missing = min(size, _KEPT)
            self._passing = size - self._missing
        self._kept.clear()

    def _ended(self, size: int, kind: int, flags: int, stream: int) -> Frame:
        frame = Frame(kind, flags, stream, size, bytes(self._kept))
        self._kept.clear()
        self._head, self._missing = None, _HEAD
        return frame

    def _check(self, size: int, kind: int, stream: int) -> None:
        if self._first and kind != SETTINGS:
            raise InputError(f"not HTTP/2 in clear text: the first frame is of kind {kind}")
        if kind == SETTINGS and (size % 6 or size > _KEPT or stream):
            raise InputError(f"malformed HTTP/2: SETTINGS of {size} bytes on stream {stream}")
        if kind == WINDOW_UPDATE and size != 4:
            raise InputError(f"malformed HTTP/2: WINDOW_UPDATE of {size} bytes, not 4")
        if kind in (DATA, HEADERS, RST_STREAM) and not stream:
            raise InputError(f"malformed HTTP/2: a frame of kind {kind} on stream 0")


def settings_of(frame: Frame) -> dict[int, int]:
    parts = (frame.payload[at : at + 6] for at in range(0, len(frame.payload), 6))
    return {int.from_bytes(part[:2]): int.from_bytes(part[2:]) for part in parts}
