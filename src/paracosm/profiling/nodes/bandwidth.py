"""Goodput and round trip to a peer, as iperf measures them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

from paracosm.errors import InputError
from paracosm.profiling.nodes.exchange import (
    BOTH,
    LONGEST,
    PING,
    RECEIVE,
    REPORT,
    SEND,
    SHORTEST,
    Exchange,
    warm_up,
)
from paracosm.profiling.nodes.peer import Peer

__all__ = ["BandwidthSettings", "Goodput", "measure_goodput"]

_PINGS = 50


@dataclass(frozen=True, slots=True)
class BandwidthSettings:
    """How long to measure.

    Attributes:
        seconds: of sending in a round; the first quarter, at most 1 s, does not count.
        rounds: of each of three: out, in, both at once.

    Raises:
        InputError: a value that is out of range.
    """

    seconds: float = 3.0
    rounds: int = 3

    def __post_init__(self) -> None:
        if not SHORTEST <= self.seconds <= LONGEST:
            raise InputError(
                f"a round lasts 50 ms to {LONGEST:g} s, not {self.seconds:g} s: 3 s tell enough"
            )
        if self.rounds < 1:
            raise InputError(f"there is at least one round, not {self.rounds}")


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
    peer: Peer,
    settings: BandwidthSettings | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Goodput:
    """Return the goodput to a peer.

    Args:
        peer: runs `paracosm calibrate serve`.
        settings: how long.
        progress: called with the number of rounds that are done, of three times `rounds`.

    Raises:
        InputError: the peer left early, or does not keep to the protocol.
    """
    settings = settings or BandwidthSettings()
    seconds, warm = settings.seconds, warm_up(settings.seconds)
    sent: list[float] = []
    received: list[float] = []
    both: list[tuple[float, float]] = []
    exchange = peer.exchange
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
    return Goodput(tuple(sent), tuple(received), tuple(both), round_trip)


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
