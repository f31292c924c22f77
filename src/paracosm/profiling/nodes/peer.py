"""The other end of a measurement: `paracosm calibrate serve` on another host, or a process here."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address

from paracosm.errors import InputError
from paracosm.profiling.nodes.exchange import BOTH, END, LONGEST, PING, RECEIVE, SEND, Exchange
from paracosm.profiling.processes import Processes

_START = 60.0  # seconds that starting Python takes at most, on a machine that is busy


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody who does what it is asked to."""

    exchange: Exchange
    loopback: bool  # it is on this machine, so there is no network in between


@contextmanager
def connected(host: str, port: int, timeout: float = 10.0) -> Iterator[Peer]:
    """Connect to a peer that runs `paracosm calibrate serve`; say goodbye in the end.

    Args:
        timeout: seconds after which a peer that says nothing is given up.

    Raises:
        InputError: nobody is there, or the timeout is none.
    """
    if not 0 < timeout < float("inf"):
        raise InputError(f"a timeout must be above 0 and finite, not {timeout:g}")
    try:
        connection = socket.create_connection((host, port), timeout)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{host}:{port}: {reason}: does paracosm calibrate serve --port {port} run there?"
        ) from None
    with connection:
        here, there = connection.getsockname()[0], connection.getpeername()[0]
        exchange = Exchange(connection, f"{host}:{port}", timeout)
        yield Peer(exchange, here == there or ip_address(there).is_loopback)
        exchange.say(END)


@contextmanager
def connected_here(timeout: float = 10.0) -> Iterator[Peer]:
    """Start another process of this machine and connect to it over loopback.

    Raises:
        InputError, WorkerError: the other process failed.
    """
    with Processes("paracosm.profiling.nodes.peer", timeout) as others:
        others.start("the other process", {"timeout": timeout})
        (answer,) = others.answers("to listen", seconds=_START)
        with connected("127.0.0.1", answer["port"], timeout) as peer:
            yield peer


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens.

    Args:
        port: 0 for any that is free.

    Raises:
        InputError: it cannot listen there.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(f"cannot listen on {host}:{port}: {reason}") from None


def serve_one(
    listener: socket.socket, timeout: float, came: Callable[[str], None] | None = None
) -> int:
    """Do what one client asks for, and return in how many rounds data were sent.

    Args:
        timeout: seconds to wait for anything that a client says.

    Raises:
        InputError: the client said something else than what the protocol has, nothing in time, or
            left early.
    """
    connection, address = listener.accept()
    listener.close()
    peer = f"{address[0]}:{address[1]}"
    if came is not None:
        came(peer)
    with connection:
        exchange, rounds = Exchange(connection, peer, timeout), 0
        while (order := exchange.hear())[0] != END:
            kind, number = order
            if kind == PING:
                exchange.say(PING, number)
                continue
            if kind not in (SEND, RECEIVE, BOTH):
                raise InputError(f"{peer} says what it was not asked for: {kind}")
            if number > LONGEST:
                raise InputError(
                    f"{peer} asks for {number:g} s of data, and {LONGEST:g} is the most"
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
