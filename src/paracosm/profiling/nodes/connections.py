"""Several connections between the two ends of a measurement: how they come about, and are used.

Only whoever was told a random number on the first connection can open more, and only for as long as
the end that waits needs to accept them.
"""

from __future__ import annotations

import secrets
import selectors
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager

from paracosm.errors import InputError
from paracosm.profiling.nodes.exchange import JOIN, Exchange, warm_up

__all__ = ["accepted", "intervals_of", "opened", "receive_over", "send_over"]

_PIECE = 1 << 18  # bytes that are read or written at a time


@contextmanager
def accepted(exchange: Exchange, count: int) -> Iterator[list[socket.socket]]:
    """Ask the other end for connections to the port that it knows; close them in the end.

    Args:
        exchange: the first connection.
        count: how many more.

    Raises:
        InputError: too few came in time, or somebody else did.
    """
    token = float(secrets.randbelow(1 << 53))
    until = time.monotonic() + exchange.timeout
    with ExitStack() as kept:
        with exchange.listen_again() as listener:
            exchange.say(JOIN, token)
            connections: list[socket.socket] = []
            while len(connections) < count:
                listener.settimeout(max(until - time.monotonic(), 1e-3))
                try:
                    connection = kept.enter_context(listener.accept()[0])
                except OSError:
                    raise InputError(
                        f"{exchange.peer} opened {len(connections)} of {count} connections in "
                        f"{exchange.timeout:g} s"
                    ) from None
                if Exchange(connection, exchange.peer, exchange.timeout).hear() != (JOIN, token):
                    raise InputError(f"somebody else than {exchange.peer} came in between")
                connections.append(connection)
        yield connections


@contextmanager
def opened(exchange: Exchange, count: int) -> Iterator[list[socket.socket]]:
    """Open connections that the other end asks for; close them in the end.

    Raises:
        InputError: it does not ask for them, or does not take them.
    """
    token = exchange.expect(JOIN)
    with ExitStack() as kept:
        connections = [kept.enter_context(exchange.connect_again()) for _ in range(count)]
        for connection in connections:
            Exchange(connection, exchange.peer, exchange.timeout).say(JOIN, token)
        yield connections


def send_over(connections: Sequence[socket.socket], seconds: float) -> None:
    """Send zeros over all connections until their receiver has closed them, for so long at most."""
    piece = bytes(_PIECE)
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as open_ones:
        for connection in connections:
            connection.setblocking(False)
            open_ones.register(connection, selectors.EVENT_WRITE, connection)
        while open_ones.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in open_ones.select(left):
                try:
                    key.data.send(piece)
                except BlockingIOError:
                    continue
                except OSError:
                    open_ones.unregister(key.data)


def receive_over(
    connections: Sequence[socket.socket], exchange: Exchange, seconds: float, interval: float
) -> list[list[int]]:
    """Return bytes that came over each connection in each interval, (intervals, connections).

    Args:
        connections: the other end sends over all of them.
        exchange: the first connection, which names the other end.
        seconds: since the first byte; the first quarter, at most 1 s, does not count.
        interval: seconds.

    Raises:
        InputError: nothing came for as long as the timeout is, or a connection was closed.
    """
    counts = [[0] * len(connections) for _ in range(intervals_of(seconds, interval))]
    buffer = memoryview(bytearray(_PIECE))
    begun: float | None = None
    with selectors.DefaultSelector() as open_ones:
        for place, connection in enumerate(connections):
            connection.setblocking(False)
            open_ones.register(connection, selectors.EVENT_READ, (place, connection))
        while True:
            ready = open_ones.select(exchange.timeout)
            now = time.monotonic()
            if not ready:
                raise InputError(f"{exchange.peer} did nothing for {exchange.timeout:g} s")
            begun = now + warm_up(seconds) if begun is None else begun
            row = int((now - begun) / interval) if now >= begun else -1
            if row >= len(counts):
                return counts
            for key, _ in ready:
                place, connection = key.data
                size = _received(connection, buffer, exchange.peer)
                if row >= 0:
                    counts[row][place] += size


def intervals_of(seconds: float, interval: float) -> int:
    """Return how many intervals of so many seconds count."""
    return round((seconds - warm_up(seconds)) / interval)


def _received(connection: socket.socket, buffer: memoryview, peer: str) -> int:
    try:
        size = connection.recv_into(buffer)
    except BlockingIOError:
        return 0
    except OSError as error:
        raise InputError(f"{peer}: {error.strerror or error}") from None
    if not size:
        raise InputError(f"{peer} closed one of several connections early")
    return size
