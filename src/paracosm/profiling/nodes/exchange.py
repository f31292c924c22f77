"""What the two ends of a bandwidth measurement say to each other over a TCP connection.

Orders and answers have 16 bytes each: "PCLK", version, kind, two zeros, a number (float64, big
endian). Whoever opened the connection orders: PING is sent back as it is; SEND, RECEIVE and BOTH
(the number is seconds) are sent back, too, and then the one who orders sends data, or the other
one, or both. Data are blocks of 16 KiB of which the first byte is 0, or 1 in the last. Who was told
to receive then says in a REPORT how many bytes/s came. END ends it all.

SEND_ALL and RECEIVE_ALL (seconds) are followed by INTERVAL (seconds) and JOIN (a number of
connections). The other end answers JOIN with a random number, the one who orders opens as many
connections to the same port and says JOIN with that number over each, and the order is sent
back. Zeros go over all of them until their receiver closes them. After SEND_ALL there is a
REPORT of bytes for each connection in each interval, those of the first interval first.
"""

from __future__ import annotations

import math
import secrets
import selectors
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager

from paracosm.errors import InputError

PING, SEND, RECEIVE, BOTH, REPORT, END, SEND_ALL, RECEIVE_ALL, INTERVAL, JOIN = range(1, 11)

LONGEST = 60.0
"""Seconds that data may be asked for in one order."""

SHORTEST = 0.05
"""Seconds of a round or an interval at least."""

MOST_CONNECTIONS = 64
"""That may be asked for beside the first one."""

_VERSION = 2
_MAGIC = b"PCLK"
_ORDER = struct.Struct(">4sBBHd")
_BLOCK = 1 << 14
_PIECE = 1 << 20  # bytes that are read or written at a time
_MORE, _LAST = 0, 1
_DRAIN = 60.0  # seconds until all that a slow link still has in its buffers must have come


class Exchange:
    """One end of the connection.

    Args:
        timeout: seconds to wait for anything.
    """

    def __init__(self, connection: socket.socket, peer: str, timeout: float) -> None:
        connection.settimeout(timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer, self.timeout = peer, timeout
        self._connection = connection
        self._ahead = b""  # read beyond the end of data

    def say(self, kind: int, number: float = 0.0) -> None:
        """Send an order or an answer."""
        try:
            self._connection.sendall(_ORDER.pack(_MAGIC, _VERSION, kind, 0, number))
        except OSError as error:
            raise self._broken(error) from None

    def hear(self) -> tuple[int, float]:
        """Return the kind and the number of an order or an answer."""
        said = self._read(_ORDER.size)
        magic, version, kind, zero, number = _ORDER.unpack(said)
        if magic != _MAGIC:
            raise InputError(f"{self.peer} is no paracosm calibrate: it said {said!r}")
        if version != _VERSION:
            raise InputError(
                f"{self.peer} speaks version {version} of the protocol, this is {_VERSION}: use "
                "the same version of Paracosm at both ends"
            )
        if not PING <= kind <= JOIN or zero or not (math.isfinite(number) and number >= 0):
            raise InputError(f"{self.peer} said nothing that there is: {said!r}")
        return kind, number

    def expect(self, kind: int) -> float:
        """Return the number of an answer of one kind."""
        found, number = self.hear()
        if found != kind:
            raise InputError(f"{self.peer} answered {found} where {kind} was expected")
        return number

    def send_data(self, seconds: float) -> None:
        """Send blocks for so long."""
        piece = memoryview(bytes(_PIECE))  # the first byte of each block is _MORE
        until, at = time.monotonic() + seconds, 0
        try:
            while time.monotonic() < until:
                at = (at + self._connection.send(piece[at:])) % _PIECE
            rest = -at % _BLOCK
            self._connection.sendall(piece[at : at + rest])
            self._connection.sendall(bytes([_LAST]) + bytes(_BLOCK - 1))
        except OSError as error:
            raise self._broken(error) from None

    def receive_data(self, seconds: float, warm: float) -> float:
        """Return at which rate blocks came, bytes/s, without those of the first `warm` seconds."""
        buffer = memoryview(bytearray(_PIECE))
        begun = time.monotonic()
        total, seen, first, last = 0, 0.0, (0.0, 0), (0.0, 0)
        while True:
            size = self._receive(buffer)
            now = time.monotonic()
            if now - begun > seconds + _DRAIN:
                raise InputError(f"{self.peer} sends for longer than the {seconds:g} s it may")
            boundary = -total % _BLOCK
            flags = bytes(buffer[boundary:size:_BLOCK])
            ended = flags.find(_LAST)
            if flags[: ended + 1 or None].strip(bytes([_MORE, _LAST])):
                raise InputError(f"{self.peer} sent something else than blocks of data")
            total += size
            if not seen:
                seen = now
            if not first[1] or first[0] - seen < warm:
                first = now, total
            last = now, total
            if ended >= 0:
                end = boundary + (ended + 1) * _BLOCK
                self._ahead = bytes(buffer[end:size])  # the report may have come with it
                self._read(max(end - size, 0))
                break
        if last[1] == first[1]:
            raise InputError(f"too few data came from {self.peer} in {seconds:g} s to tell a rate")
        return (last[1] - first[1]) / (last[0] - first[0])

    def both(self, seconds: float, warm: float) -> float:
        """Send and receive at once; return at which rate blocks came."""
        with ThreadPoolExecutor(1) as pool:
            sending = pool.submit(self.send_data, seconds)
            rate = self.receive_data(seconds, warm)
            sending.result()
        return rate

    def listen_again(self) -> socket.socket:
        """Return a socket that listens where the other end reached this one."""
        address, family = self._connection.getsockname(), self._connection.family
        try:
            return socket.create_server(address, family=family)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"cannot listen on {address[0]}:{address[1]}: {reason}") from None

    def connect_again(self) -> socket.socket:
        """Return another connection to where this one leads."""
        try:
            return socket.create_connection(self._connection.getpeername()[:2], self.timeout)
        except OSError as error:
            raise InputError(
                f"{self.peer} takes no further connection: {error.strerror or error}"
            ) from None

    def _read(self, size: int) -> bytes:
        found, self._ahead = self._ahead[:size], self._ahead[size:]
        until = time.monotonic() + self.timeout
        while len(found) < size:
            if time.monotonic() > until:
                raise self._broken(TimeoutError())
            buffer = memoryview(bytearray(size - len(found)))
            found += bytes(buffer[: self._receive(buffer)])
        return found

    def _receive(self, buffer: memoryview) -> int:
        if self._ahead:
            size = min(len(self._ahead), len(buffer))
            buffer[:size], self._ahead = self._ahead[:size], self._ahead[size:]
            return size
        try:
            size = self._connection.recv_into(buffer)
        except OSError as error:
            raise self._broken(error) from None
        if not size:
            raise InputError(f"{self.peer} closed the connection early")
        return size

    def _broken(self, error: OSError) -> InputError:
        if isinstance(error, TimeoutError):
            return InputError(f"{self.peer} did nothing for {self.timeout:g} s")
        return InputError(f"{self.peer}: {error.strerror or error}")


def warm_up(seconds: float) -> float:
    """Return how much of so many seconds of data is left out: TCP starts slowly."""
    return min(seconds / 4, 1.0)


_SHARED_PIECE = 1 << 18  # bytes that are read or written at a time


@contextmanager
def accepted(exchange: Exchange, count: int) -> Iterator[list[socket.socket]]:
    """Ask the other end for connections to the port that it knows; close them in the end."""
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
    """Open connections that the other end asks for; close them in the end."""
    token = exchange.expect(JOIN)
    with ExitStack() as kept:
        connections = [kept.enter_context(exchange.connect_again()) for _ in range(count)]
        for connection in connections:
            Exchange(connection, exchange.peer, exchange.timeout).say(JOIN, token)
        yield connections


def send_over(connections: Sequence[socket.socket], seconds: float) -> None:
    """Send zeros over all connections until their receiver has closed them, for so long at most."""
    piece = bytes(_SHARED_PIECE)
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
        seconds: since the first byte; the first quarter, at most 1 s, does not count.
        interval: seconds.
    """
    counts = [[0] * len(connections) for _ in range(intervals_of(seconds, interval))]
    buffer = memoryview(bytearray(_SHARED_PIECE))
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
