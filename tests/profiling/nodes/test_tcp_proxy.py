"""The proxy hands on every byte, watched or not."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest
from frames import asked, begun, data, settings

from paracosm.errors import InputError
from paracosm.profiling.nodes.proxy import Proxy, StreamWatch


@pytest.fixture
def echo() -> Iterator[tuple[str, int]]:
    """Send back what comes, and end when the client does."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while piece := connection.recv(1 << 16):
                    connection.sendall(piece)

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[:2]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def exchanged(address: tuple[str, int], message: bytes) -> bytes:
    with socket.create_connection(address, timeout=5) as connection:
        sender = threading.Thread(target=connection.sendall, args=(message,))
        sender.start()
        found = b""
        while len(found) < len(message) and (piece := connection.recv(1 << 16)):
            found += piece
        sender.join()
        connection.shutdown(socket.SHUT_WR)
        assert connection.recv(1) == b""  # the end is handed on, too
    return found


def test_bytes_come_through_unchanged_and_are_watched(echo: tuple[str, int]) -> None:
    seen: dict[str, bytes] = {"client": b"", "server": b""}

    class Log:
        def from_client(self, piece: memoryview, now: float) -> None:
            seen["client"] += bytes(piece)

        def from_server(self, piece: memoryview, now: float) -> None:
            seen["server"] += bytes(piece)

    message = bytes(range(256)) * 8192  # 2 MiB
    with Proxy(echo, Log) as proxy:
        assert exchanged(proxy.address, message) == message
        assert exchanged(proxy.address, b"again") == b"again"
        assert len(proxy.watches) == 2
    assert seen == {"client": message + b"again", "server": message + b"again"}
    assert proxy.failures == []


def test_what_is_no_http2_is_handed_on_and_said(echo: tuple[str, int]) -> None:
    with Proxy(echo, StreamWatch) as proxy:
        message = b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"
        assert exchanged(proxy.address, message) == message
    assert proxy.failures == ["not HTTP/2 in clear text: the client does not begin with PRI"]


def test_windows_are_read_through_sockets() -> None:
    listener = socket.create_server(("127.0.0.1", 0))
    watches: list[StreamWatch] = []

    def watch() -> StreamWatch:
        watches.append(StreamWatch())
        return watches[-1]

    with listener, Proxy(listener.getsockname()[:2], watch) as proxy:
        client = socket.create_connection(proxy.address, timeout=5)
        server, _ = listener.accept()
        with client, server:
            client.sendall(begun(1 << 22) + asked(1))
            server.settimeout(5)
            wanted = len(begun(1 << 22) + asked(1))
            while wanted:
                wanted -= len(server.recv(wanted))
            server.sendall(settings() + data(1, bytes(500_000), last=True))
            server.shutdown(socket.SHUT_WR)
            while client.recv(1 << 16):
                pass
    assert [size for _, size in watches[0].windows] == [1 << 22]
    assert [each.size for each in watches[0].ended] == [500_000]


def test_a_target_that_is_not_there_is_said(echo: tuple[str, int]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        nobody = unused.getsockname()[:2]
    with (
        Proxy(nobody, StreamWatch) as proxy,
        socket.create_connection(proxy.address, timeout=5) as connection,
    ):
        assert connection.recv(1) == b""
    assert proxy.failures == [f"127.0.0.1:{nobody[1]}: Connection refused"]


def test_a_port_that_is_taken_is_refused(echo: tuple[str, int]) -> None:
    with pytest.raises(InputError, match=f"cannot listen on 127.0.0.1:{echo[1]}"):
        Proxy(echo, StreamWatch, port=echo[1])
