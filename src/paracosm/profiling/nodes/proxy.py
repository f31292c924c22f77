"""A TCP proxy that changes nothing and lets a watcher see the bytes of both sides."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable
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
    """Hands on connections to a target, from `start` until `close`.

    Args:
        host, port: where it listens; port 0 is any that is free.

    Attributes:
        address: host and port where it listens.
        watches: what `watch` returned, in the order of the connections.
        failures: why connections were not handed on, or not watched to their end.

    Raises:
        InputError: it cannot listen there.
    """

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
        """Begin to take connections."""
        self._run(self._accept)

    def close(self) -> None:
        """End all connections."""
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
    """Both directions of a connection."""

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
