"""The protocol between the two ends of a measurement over TCP, and the data that they send.

Orders and answers have 16 bytes each: "PCLK", version, kind, two zeros, a number (float64, big
endian). The client opened the connection and sends orders, first TOKEN with the number that the
server has printed, or 0; the answer is 1, or 0 for a wrong number, which closes the connection.
PING is echoed; END ends the session. SEND, RECEIVE and BOTH (the number is seconds) are followed by
INTERVAL (seconds) and JOIN (a number of connections each way). The server answers JOIN with a
random number; the client opens as many connections to the same port, sends JOIN with that number
plus i over the i-th, and the order is sent back. Zeros go over all of them until their receiver
closes them; of BOTH, the first half carries what the client sends. The receiver then REPORTs the
bytes of each connection in each interval, those of the first interval first.

Only a client with the random number can open more connections, and only for as long as the server
needs to accept them.
"""

import contextlib
import json
import math
import secrets
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from ipaddress import ip_address

from paracosm.addresses import host_port
from paracosm.errors import InputError
from paracosm.profiling.processes import Processes

PING, SEND, RECEIVE, BOTH, REPORT, END, INTERVAL, JOIN, TOKEN = range(1, 10)

LONGEST = 60.0  # seconds that data may be asked for in one order

SHORTEST = 0.05  # seconds of a round or an interval at least

MOST_CONNECTIONS = 64  # that may be requested for each way, in addition to the first one

Table = tuple[tuple[int, ...], ...]
"""Bytes, (intervals, connections)."""


_VERSION = 4
_MAGIC = b"PCLK"
_ORDER = struct.Struct(">4sBBHd")
_PIECE = 1 << 18  # bytes that are read or written at a time
_PLACES = 2 * MOST_CONNECTIONS


class Exchange:
    """One end of the first connection, closed by the client. It waits `timeout` seconds for
    anything; all methods raise `InputError` if the other end is gone or breaks the protocol."""

    def __init__(self, connection: socket.socket, peer: str, timeout: float) -> None:
        connection.settimeout(timeout)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.peer, self.timeout = peer, timeout
        self._connection = connection

    def say(self, kind: int, number: float = 0.0) -> None:
        try:
            self._connection.sendall(_ORDER.pack(_MAGIC, _VERSION, kind, 0, number))
        except OSError as error:
            raise self._broken(error) from None

    def hear(self) -> tuple[int, float]:
        said = self._read(_ORDER.size)
        magic, version, kind, zero, number = _ORDER.unpack(said)
        if magic != _MAGIC:
            raise InputError(f"{self.peer} is not paracosm calibrate: it sent {said!r}")
        if version != _VERSION:
            raise InputError(
                f"{self.peer} speaks version {version} of the protocol, this is {_VERSION}: use "
                "the same version of Paracosm at both ends"
            )
        if not PING <= kind <= TOKEN or zero or not (math.isfinite(number) and number >= 0):
            raise InputError(f"{self.peer} sent an unknown message: {said!r}")
        return kind, number

    def expect(self, kind: int) -> float:
        answer, number = self.hear()
        if answer != kind:
            raise InputError(f"{self.peer} answered {answer} where {kind} was expected")
        return number

    def ask(
        self, kind: int, seconds: float, interval: float, connections: int = 1
    ) -> tuple[Table, Table]:
        """Order data, and return what the other end received, and what this one did.

        The first quarter, at most 1 s, does not count; what was not ordered is empty.
        """
        self.say(kind, seconds)
        self.say(INTERVAL, interval)
        self.say(JOIN, connections)
        with self._opened(connections * (2 if kind == BOTH else 1)) as opened:
            self.expect(kind)
            sending = [] if kind == RECEIVE else opened[:connections]
            receiving = [] if kind == SEND else opened[-connections:]
            received, size = self._transfer(sending, receiving, seconds, interval)
        rows = 0 if kind == RECEIVE else intervals_of(seconds, interval)
        sent = [[self.expect(REPORT) for _ in range(connections)] for _ in range(rows)]
        if sum(map(sum, sent)) > size:
            raise InputError(f"{self.peer} reports more bytes than the {size:,} that it was sent")
        return tuple(tuple(map(int, row)) for row in sent), received

    def answer(self, kind: int, seconds: float) -> None:
        """Carry out the other end's SEND, RECEIVE or BOTH."""
        interval, count = self.expect(INTERVAL), self.expect(JOIN)
        most = LONGEST / SHORTEST
        if not (
            count in range(1, MOST_CONNECTIONS + 1)
            and interval * most >= seconds - warm_up(seconds) > 0
        ):
            raise InputError(
                f"{self.peer} asks for intervals of {interval:g} s over {count:g} connections; "
                f"{SHORTEST:g} s is the least and {MOST_CONNECTIONS} is the most"
            )
        connections = int(count)
        with self._accepted(connections * (2 if kind == BOTH else 1)) as accepted:
            self.say(kind, seconds)
            receiving = [] if kind == RECEIVE else accepted[:connections]
            sending = [] if kind == SEND else accepted[-connections:]
            received, _ = self._transfer(sending, receiving, seconds, interval)
        for row in received:
            for size in row:
                self.say(REPORT, float(size))

    @contextmanager
    def _accepted(self, count: int) -> Iterator[list[socket.socket]]:
        """Ask the other end for connections to the port that it knows; close them at the end."""
        token = float(secrets.randbelow(1 << 45) * _PLACES)
        until = time.monotonic() + self.timeout
        sockets: dict[int, socket.socket] = {}
        with ExitStack() as kept:
            with self._listening_again() as listener:
                self.say(JOIN, token)
                while len(sockets) < count:
                    listener.settimeout(max(until - time.monotonic(), 1e-3))
                    try:
                        connection = kept.enter_context(listener.accept()[0])
                    except OSError:
                        raise InputError(
                            f"{self.peer} opened {len(sockets)} of {count} connections in "
                            f"{self.timeout:g} s"
                        ) from None
                    kind, number = Exchange(connection, self.peer, self.timeout).hear()
                    if kind != JOIN or number - token not in set(range(count)) - sockets.keys():
                        raise InputError(f"another client than {self.peer} connected")
                    sockets[int(number - token)] = connection
            yield [sockets[place] for place in range(count)]

    @contextmanager
    def _opened(self, count: int) -> Iterator[list[socket.socket]]:
        """Open connections that the other end asks for; close them at the end."""
        token = self.expect(JOIN)
        address = self._connection.getpeername()[:2]
        with ExitStack() as kept:
            try:
                connections = [
                    kept.enter_context(socket.create_connection(address, self.timeout))
                    for _ in range(count)
                ]
            except OSError as error:
                raise InputError(
                    f"{self.peer} takes no further connection: {error.strerror or error}"
                ) from None
            for place, connection in enumerate(connections):
                Exchange(connection, self.peer, self.timeout).say(JOIN, token + place)
            yield connections

    def _listening_again(self) -> socket.socket:
        address, family = self._connection.getsockname(), self._connection.family
        try:
            return socket.create_server(address, family=family)
        except OSError as error:
            reason = error.strerror or error
            raise InputError(f"cannot listen on {address[0]}:{address[1]}: {reason}") from None

    def _transfer(
        self,
        sending: Sequence[socket.socket],
        receiving: Sequence[socket.socket],
        seconds: float,
        interval: float,
    ) -> tuple[Table, int]:
        """Return what was received, and how many bytes were sent."""
        with ThreadPoolExecutor(1) as pool:
            sent = pool.submit(_send_over, sending, seconds + self.timeout)
            try:
                received = self.receive_over(receiving, seconds, interval) if receiving else ()
            except BaseException:
                for connection in sending:  # which ends `_send_over`
                    with contextlib.suppress(OSError):
                        connection.shutdown(socket.SHUT_RDWR)
                raise
            for connection in receiving:
                connection.close()
            return received, sent.result()

    def receive_over(
        self, connections: Sequence[socket.socket], seconds: float, interval: float
    ) -> Table:
        """Return the bytes received over each connection in each interval, both in seconds, from
        the first byte on; the first quarter, at most 1 s, does not count."""
        counts = [[0] * len(connections) for _ in range(intervals_of(seconds, interval))]
        for since, place, size in self._arrivals(connections, seconds):
            row = int(since / interval) if since >= 0 else -1
            if row >= len(counts):
                break
            if row >= 0:
                counts[row][place] += size
        return tuple(map(tuple, counts))

    def _arrivals(
        self, connections: Sequence[socket.socket], seconds: float
    ) -> Iterator[tuple[float, int, int]]:
        """Yield arrivals without end: seconds since the warm-up, index of the connection, bytes."""
        buffer = memoryview(bytearray(_PIECE))
        begun: float | None = None
        with selectors.DefaultSelector() as open_ones:
            for place, connection in enumerate(connections):
                connection.setblocking(False)
                open_ones.register(connection, selectors.EVENT_READ, (place, connection))
            while True:
                ready = open_ones.select(self.timeout)
                now = time.monotonic()
                if not ready:
                    raise InputError(f"{self.peer} did nothing for {self.timeout:g} s")
                begun = now + warm_up(seconds) if begun is None else begun
                for key, _ in ready:
                    place, connection = key.data
                    try:
                        size = connection.recv_into(buffer)
                    except BlockingIOError:
                        continue
                    except OSError as error:
                        raise self._broken(error) from None
                    if not size:
                        raise InputError(f"{self.peer} closed one of several connections early")
                    yield now - begun, place, size

    def _read(self, size: int) -> bytes:
        content = b""
        until = time.monotonic() + self.timeout
        while len(content) < size:
            if time.monotonic() > until:
                raise self._broken(TimeoutError())
            try:
                piece = self._connection.recv(size - len(content))
            except OSError as error:
                raise self._broken(error) from None
            if not piece:
                raise InputError(f"{self.peer} closed the connection early")
            content += piece
        return content

    def _broken(self, error: OSError) -> InputError:
        if isinstance(error, TimeoutError):
            return InputError(f"{self.peer} did nothing for {self.timeout:g} s")
        return InputError(f"{self.peer}: {error.strerror or error}")


def warm_up(seconds: float) -> float:
    """Return how much of so many seconds of data is left out: TCP starts slowly."""
    return min(seconds / 4, 1.0)


def intervals_of(seconds: float, interval: float) -> int:
    return round((seconds - warm_up(seconds)) / interval)


def _send_over(connections: Sequence[socket.socket], seconds: float) -> int:
    """Send zeros over all connections until the receiver has closed them, for `seconds` at most;
    return how many bytes."""
    piece, size = bytes(_PIECE), 0
    until = time.monotonic() + seconds
    with selectors.DefaultSelector() as open_ones:
        for connection in connections:
            connection.setblocking(False)
            open_ones.register(connection, selectors.EVENT_WRITE, connection)
        while open_ones.get_map() and (left := until - time.monotonic()) > 0:
            for key, _ in open_ones.select(left):
                try:
                    size += key.data.send(piece)
                except BlockingIOError:
                    continue
                except OSError:
                    open_ones.unregister(key.data)
    return size


_START = 60.0  # seconds that starting Python takes at most, on a machine that is busy


@dataclass(frozen=True, slots=True)
class Peer:
    exchange: Exchange
    loopback: bool  # it is on this machine, so there is no network in between


@contextmanager
def connected(host: str, port: int, timeout: float = 10.0, token: int = 0) -> Iterator[Peer]:
    """Connect to a peer that runs `paracosm calibrate serve`; end the session at the end. `timeout`
    is in seconds of silence, `token` what the peer has printed, if anything."""
    if not 0 < timeout < float("inf"):
        raise InputError(f"a timeout must be above 0 and finite, not {timeout:g}")
    where = host_port(host, port)
    try:
        connection = socket.create_connection((host, port), timeout)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{where}: {reason}: does paracosm calibrate serve --port {port} run there?"
        ) from None
    with connection:
        here, there = connection.getsockname()[0], connection.getpeername()[0]
        exchange = Exchange(connection, where, timeout)
        exchange.say(TOKEN, float(token))
        if not exchange.expect(TOKEN):
            raise InputError(
                f"{exchange.peer} does not take this token: give the --token it printed"
            )
        yield Peer(exchange, here == there or ip_address(there).is_loopback)
        exchange.say(END)


@contextmanager
def connected_here(timeout: float = 10.0) -> Iterator[Peer]:
    """Start another process of this machine and connect to it over loopback."""
    with Processes("paracosm.profiling.nodes.exchange", timeout) as others:
        others.start("the other process", {"timeout": timeout})
        (answer,) = others.answers("to listen", seconds=_START)
        with connected("127.0.0.1", answer["port"], timeout) as peer:
            yield peer


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0 is any that is free."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host_port(host, port)}: {reason}") from None


def serve_one(
    listener: socket.socket,
    timeout: float,
    came: Callable[[str], None] | None = None,
    token: int = 0,
    failed: Callable[[str], None] | None = None,
) -> int:
    """Do what one client asks for, and return in how many rounds data were sent.

    Args:
        listener: is closed while a client is served: there is one at a time.
        timeout: seconds of silence after which a client is given up.
        came: told the address of each client.
        token: that a client has to know; 0 for none.
        failed: told why a client was given up, after which the next one is awaited; without it
            that is an `InputError`.
    """
    address = listener.getsockname()
    while True:
        connection, (host, port, *_) = listener.accept()
        listener.close()
        peer = host_port(host, port)
        if came is not None:
            came(peer)
        try:
            with connection:
                return _serve(Exchange(connection, peer, timeout), token)
        except InputError as error:
            if failed is None:
                raise
            failed(str(error))
        listener = listen(*address[:2])


def _serve(exchange: Exchange, token: int) -> int:
    known = exchange.expect(TOKEN) == float(token)
    exchange.say(TOKEN, float(known))
    if not known:
        raise InputError(f"{exchange.peer} does not know the token")
    rounds = 0
    while (order := exchange.hear())[0] != END:
        kind, number = order
        if kind == PING:
            exchange.say(PING, number)
            continue
        if kind not in (SEND, RECEIVE, BOTH):
            raise InputError(f"{exchange.peer} sent an unexpected message: {kind}")
        if not SHORTEST <= number <= LONGEST:
            raise InputError(
                f"{exchange.peer} asks for {number:g} s of data, not {SHORTEST:g} to {LONGEST:g}"
            )
        exchange.answer(kind, number)
        rounds += 1
    return rounds


def main() -> None:
    """Serve one client on loopback; say on which port."""
    setup = json.loads(sys.argv[1])
    listener = listen("127.0.0.1", 0)
    print(json.dumps({"port": listener.getsockname()[1]}), flush=True)
    serve_one(listener, setup["timeout"])
    print(json.dumps({}), flush=True)


if __name__ == "__main__":
    main()
