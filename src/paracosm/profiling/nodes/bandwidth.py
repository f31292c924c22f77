"""Goodput and round trip to another host, as iperf measures them, or between two processes here."""

from __future__ import annotations

import socket
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from paracosm.errors import InputError
from paracosm.profiling.nodes.exchange import (
    BOTH,
    END,
    LONGEST,
    PING,
    RECEIVE,
    REPORT,
    SEND,
    Exchange,
)
from paracosm.profiling.nodes.serve import warm_up
from paracosm.profiling.processes import Processes

__all__ = ["BandwidthSettings", "Goodput", "measure_goodput", "measure_loopback"]

_PINGS = 50
_START = 60.0  # seconds that starting Python takes at most, on a machine that is busy


@dataclass(frozen=True, slots=True)
class BandwidthSettings:
    """How long to measure.

    Attributes:
        seconds: of sending in a round; the first quarter, at most 1 s, does not count.
        rounds: of each of three: out, in, both at once.
        timeout: seconds after which a peer that says nothing is given up.

    Raises:
        InputError: a value that is out of range.
    """

    seconds: float = 3.0
    rounds: int = 3
    timeout: float = 10.0

    def __post_init__(self) -> None:
        if not 0.05 <= self.seconds <= LONGEST:
            raise InputError(
                f"a round lasts 50 ms to {LONGEST:g} s, not {self.seconds:g} s: 3 s tell enough"
            )
        if self.rounds < 1:
            raise InputError(f"there is at least one round, not {self.rounds}")
        if not 0 < self.timeout < float("inf"):
            raise InputError(f"a timeout must be above 0 and finite, not {self.timeout:g}")


@dataclass(frozen=True, slots=True)
class Goodput:
    """Bytes/s of payload between this host and a peer, one number a round.

    Attributes:
        sent: that the peer received, while it sent nothing.
        received: that this host received, while it sent nothing.
        both: (sent, received) while both sent.
        round_trip: seconds of 16 bytes there and back, the median of 50.
    """

    sent: tuple[float, ...]
    received: tuple[float, ...]
    both: tuple[tuple[float, float], ...]
    round_trip: float

    @property
    def duplex(self) -> float:
        """What both ways carry at once, relative to the sum of what each carries alone."""
        at_once = statistics.median(sum(pair) for pair in self.both)
        return at_once / (statistics.median(self.sent) + statistics.median(self.received))


def measure_goodput(
    host: str,
    port: int,
    settings: BandwidthSettings | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Goodput:
    """Return the goodput to a peer that runs `paracosm calibrate serve`.

    Args:
        host, port: of the peer.
        settings: how long.
        progress: called with the number of rounds that are done, of three times `rounds`.

    Raises:
        InputError: nobody is there, or something else than a peer; or it left early.
    """
    settings = settings or BandwidthSettings()
    seconds, warm = settings.seconds, warm_up(settings.seconds)
    sent: list[float] = []
    received: list[float] = []
    both: list[tuple[float, float]] = []
    with _connected(host, port, settings.timeout) as connection:
        exchange = Exchange(connection, f"{host}:{port}", settings.timeout)
        round_trip = _round_trip(exchange)
        for turn in range(settings.rounds):
            _order(exchange, SEND, seconds)
            exchange.send_data(seconds)
            sent.append(exchange.expect(REPORT))
            progress(3 * turn + 1)
            _order(exchange, RECEIVE, seconds)
            received.append(exchange.receive_data(seconds, warm))
            progress(3 * turn + 2)
            _order(exchange, BOTH, seconds)
            came = exchange.both(seconds, warm)
            both.append((exchange.expect(REPORT), came))
            progress(3 * turn + 3)
        exchange.say(END)
    return Goodput(tuple(sent), tuple(received), tuple(both), round_trip)


def measure_loopback(
    settings: BandwidthSettings | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Goodput:
    """Return the goodput between two processes of this machine: no network is in it.

    Raises:
        InputError, WorkerError: the other process failed.
    """
    settings = settings or BandwidthSettings()
    with tempfile.TemporaryDirectory() as folder:
        others = Processes("paracosm.profiling.nodes.serve", settings.timeout)
        try:
            others.start(
                "the other process", {"timeout": settings.timeout}, Path(folder) / "said.txt"
            )
            (answer,) = others.answers("to listen", seconds=_START)
            return measure_goodput("127.0.0.1", answer["port"], settings, progress)
        finally:
            others.end()


def _connected(host: str, port: int, timeout: float) -> socket.socket:
    try:
        return socket.create_connection((host, port), timeout)
    except (OSError, OverflowError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"{host}:{port}: {reason}: does paracosm calibrate serve --port {port} run there?"
        ) from None


def _order(exchange: Exchange, kind: int, seconds: float) -> None:
    exchange.say(kind, seconds)
    exchange.expect(kind)


def _round_trip(exchange: Exchange) -> float:
    took = []
    for turn in range(_PINGS):
        begun = time.perf_counter()
        exchange.say(PING, float(turn))
        exchange.expect(PING)
        took.append(time.perf_counter() - begun)
    return statistics.median(took)
