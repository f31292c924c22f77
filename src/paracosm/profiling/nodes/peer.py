"""The other end of a measurement: `paracosm calibrate serve` on another host, or a process here."""

from __future__ import annotations

import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path

from paracosm.errors import InputError
from paracosm.profiling.nodes.exchange import END, Exchange
from paracosm.profiling.processes import Processes

__all__ = ["Peer", "connected", "connected_here"]

_START = 60.0  # seconds that starting Python takes at most, on a machine that is busy


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody who does what it is asked to.

    Attributes:
        exchange: with it.
        loopback: it is on this machine, so there is no network in between.
    """

    exchange: Exchange
    loopback: bool


@contextmanager
def connected(host: str, port: int, timeout: float = 10.0) -> Iterator[Peer]:
    """Connect to a peer that runs `paracosm calibrate serve`; say goodbye in the end.

    Args:
        host, port: of the peer.
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
    with tempfile.TemporaryDirectory() as folder:
        others = Processes("paracosm.profiling.nodes.serve", timeout)
        try:
            others.start("the other process", {"timeout": timeout}, Path(folder) / "said.txt")
            (answer,) = others.answers("to listen", seconds=_START)
            with connected("127.0.0.1", answer["port"], timeout) as peer:
                yield peer
        finally:
            others.end()
