"""Goodput and round trip to a peer, as iperf measures them."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.profiling.nodes.exchange import (
    BOTH,
    INTERVAL,
    JOIN,
    LONGEST,
    MOST_CONNECTIONS,
    PING,
    RECEIVE,
    RECEIVE_ALL,
    REPORT,
    SEND,
    SEND_ALL,
    SHORTEST,
    Exchange,
    intervals_of,
    opened,
    receive_over,
    send_over,
    warm_up,
)
from paracosm.profiling.nodes.peer import Peer

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


SEGMENT = 1448
"""Bytes of payload in a segment of Ethernet: what a connection is taken to have got at least."""

Table = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Over how many connections, and for how long.

    Attributes:
        connections: that send at once.
        interval: seconds, about as long as a step of a job takes.
        intervals: that count, each way; those of the first second or so do not.

    Raises:
        InputError: a value that is out of range.
    """

    connections: int = 4
    interval: float = 1.0
    intervals: int = 10

    def __post_init__(self) -> None:
        if not 2 <= self.connections <= MOST_CONNECTIONS:
            raise InputError(
                f"2 to {MOST_CONNECTIONS} connections share a link, not {self.connections}"
            )
        if self.intervals < 1:
            raise InputError(f"there is at least one interval, not {self.intervals}")
        if not self.interval >= SHORTEST or not self.seconds <= LONGEST:
            raise InputError(
                f"an interval lasts {SHORTEST * 1e3:g} ms at least and all of them with what goes "
                f"before {LONGEST:g} s at most, not {self.intervals} of {self.interval:g} s"
            )

    @property
    def seconds(self) -> float:
        """Of sending each way, with what does not count (`exchange.warm_up`)."""
        counted = self.interval * self.intervals
        return counted + min(counted / 3, 1.0)


@dataclass(frozen=True, slots=True)
class Shares:
    """What connections that sent at once carried.

    Attributes:
        interval: seconds.
        sent: bytes that the peer received, (intervals, connections).
        received: bytes that this host received, the same.
    """

    interval: float
    sent: Table
    received: Table

    @property
    def uneven(self) -> float:
        """Standard deviation of ln(share), the root of the mean square of both ways."""
        return sqrt((unevenness(self.sent) ** 2 + unevenness(self.received) ** 2) / 2)


def measure_shares(
    peer: Peer,
    settings: ShareSettings | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Shares:
    """Return what connections to a peer carry that all send, then all receive.

    Args:
        peer: runs `paracosm calibrate serve`.
        settings: how many, and how long.
        progress: called with the number of ways that are done, of two.

    Raises:
        InputError: the peer left early, or does not keep to the protocol.
    """
    settings = settings or ShareSettings()
    exchange, seconds, interval = peer.exchange, settings.seconds, settings.interval
    tables: list[Table] = []
    for kind in (SEND_ALL, RECEIVE_ALL):
        exchange.say(kind, seconds)
        exchange.say(INTERVAL, interval)
        exchange.say(JOIN, settings.connections)
        with opened(exchange, settings.connections) as connections:
            exchange.expect(kind)
            if kind == RECEIVE_ALL:
                counts = receive_over(connections, exchange, seconds, interval)
            else:
                send_over(connections, seconds + exchange.timeout)
        if kind == SEND_ALL:
            counts = [
                [int(exchange.expect(REPORT)) for _ in range(settings.connections)]
                for _ in range(intervals_of(seconds, interval))
            ]
        tables.append(tuple(tuple(row) for row in counts))
        progress(len(tables))
    return Shares(interval, *tables)


def unevenness(carried: Sequence[Sequence[int]]) -> float:
    """Return the standard deviation of ln(share / equal share) within intervals.

    It is the root of the mean over intervals of the sample variance over connections of ln(bytes),
    so it does not depend on how many connections there are. A connection that got less than a
    segment counts as if it had got one; intervals in which the link stood still do not (`counted`).

    Args:
        carried: bytes, (intervals, connections).

    Raises:
        InputError: nothing came in most intervals.
    """
    deviations = _deviations(carried)[counted(carried)]
    return float(np.sqrt(deviations.var(axis=1, ddof=1).mean()))


def correlation(carried: Sequence[Sequence[int]]) -> float | None:
    """Return how the ln(share) of a connection correlate between consecutive intervals.

    Args:
        carried: bytes, (intervals, connections).

    Returns:
        1: a connection keeps its share; 0: intervals have nothing to do with each other; None where
        no two intervals in a row count, or all shares are equal.

    Raises:
        InputError: nothing came in most intervals.
    """
    deviations, counts = _deviations(carried), counted(carried)
    both = counts[:-1] & counts[1:]
    now, later = deviations[:-1][both].ravel(), deviations[1:][both].ravel()
    size = sqrt(float((now @ now) * (later @ later)))
    return float(now @ later) / size if size > 0 else None


def counted(carried: Sequence[Sequence[int]]) -> npt.NDArray[np.bool_]:
    """Return which intervals tell of sharing, (intervals,): in the others the link stood still.

    There all connections together carried less than half of what they usually did: one of
    the hosts was busy with something else.

    Raises:
        InputError: nothing came in most intervals.
    """
    total = np.array(carried).sum(axis=1)
    usual = np.median(total)
    if not usual > 0:
        raise InputError("nothing came over several connections most of the time: is a host busy?")
    enough: npt.NDArray[np.bool_] = total >= usual / 2
    return enough


def _deviations(carried: Sequence[Sequence[int]]) -> npt.NDArray[np.float64]:
    """Return ln(bytes) minus its mean over the connections of an interval."""
    logarithms = np.log(np.maximum(np.array(carried, float), SEGMENT))
    deviations: npt.NDArray[np.float64] = logarithms - logarithms.mean(axis=1, keepdims=True)
    return deviations
