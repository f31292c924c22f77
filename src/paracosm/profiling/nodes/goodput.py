"""What a link carries: goodput and round trip, as iperf measures them, and how evenly it is shared.

In simulations the transfers of a worker have a weight in each of its steps, log-normal and drawn
anew; those that share a port are served in proportion to their weights. What is measured here is
the standard deviation of the logarithm of such weights: the ratio of what two connections got in
an interval is the ratio of their weights, so ln(bytes) varies there as ln(weight) does.
"""

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
    LONGEST,
    MOST_CONNECTIONS,
    PING,
    RECEIVE,
    SEND,
    SHORTEST,
    Exchange,
    Table,
    warm_up,
)
from paracosm.profiling.nodes.peer import Peer

_PINGS = 50


@dataclass(frozen=True, slots=True)
class BandwidthSettings:
    """How long to measure."""

    seconds: float = 3.0  # of sending in a round; the first quarter, at most 1 s, does not count
    rounds: int = 3  # of each of three: out, in, both at once

    def __post_init__(self) -> None:
        if not SHORTEST <= self.seconds <= LONGEST:
            raise InputError(
                f"a round lasts 50 ms to {LONGEST:g} s, not {self.seconds:g} s: 3 s tell enough"
            )
        if self.rounds < 1:
            raise InputError(f"there is at least one round, not {self.rounds}")


@dataclass(frozen=True, slots=True)
class Goodput:
    """Bytes/s of payload between this host and a peer, one number a round."""

    sent: tuple[float, ...]  # that the peer received, while it sent nothing
    received: tuple[float, ...]  # that this host received, while it sent nothing
    both: tuple[tuple[float, float], ...]  # (sent, received) while both sent
    round_trip: float  # seconds of 16 bytes there and back, the median of 50

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

    Raises:
        InputError: the peer left early, or does not keep to the protocol.
    """
    settings = settings or BandwidthSettings()
    sent: list[float] = []
    received: list[float] = []
    both: list[tuple[float, float]] = []
    round_trip = _round_trip(peer.exchange)
    for turn in range(settings.rounds):
        sent.append(_rates(peer.exchange, SEND, settings.seconds)[0])
        progress(3 * turn + 1)
        received.append(_rates(peer.exchange, RECEIVE, settings.seconds)[1])
        progress(3 * turn + 2)
        both.append(_rates(peer.exchange, BOTH, settings.seconds))
        progress(3 * turn + 3)
    return Goodput(tuple(sent), tuple(received), tuple(both), round_trip)


def _rates(exchange: Exchange, kind: int, seconds: float) -> tuple[float, float]:
    """Return bytes/s that the other end received, and that this one did."""
    interval = seconds - warm_up(seconds)
    sent, received = (sum(map(sum, each)) for each in exchange.ask(kind, seconds, interval))
    if (kind != RECEIVE and not sent) or (kind != SEND and not received):
        raise InputError(f"no data came to or from {exchange.peer} in {interval:g} s")
    return sent / interval, received / interval


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


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Over how many connections, and for how long."""

    connections: int = 4  # that send at once
    interval: float = 1.0  # seconds, about as long as a step of a job takes
    intervals: int = 10  # that count, each way; those of the first second or so do not

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
    """What connections that sent at once carried."""

    interval: float  # seconds
    sent: Table  # bytes that the peer received, (intervals, connections)
    received: Table  # bytes that this host received, the same

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

    Raises:
        InputError: the peer left early, or does not keep to the protocol.
    """
    settings = settings or ShareSettings()
    how = (settings.seconds, settings.interval, settings.connections)
    sent, _ = peer.exchange.ask(SEND, *how)
    progress(1)
    _, received = peer.exchange.ask(RECEIVE, *how)
    progress(2)
    return Shares(settings.interval, sent, received)


def unevenness(carried: Sequence[Sequence[int]]) -> float:
    """Return the standard deviation of ln(share / equal share) within intervals.

    It is the root of the mean over intervals of the sample variance over connections of ln(bytes),
    so it does not depend on how many connections there are. A connection that got less than a
    segment counts as if it had got one; intervals in which the link stood still do not (`counted`).

    Raises:
        InputError: nothing came in most intervals.
    """
    deviations = _deviations(carried)[counted(carried)]
    return float(np.sqrt(deviations.var(axis=1, ddof=1).mean()))


def correlation(carried: Sequence[Sequence[int]]) -> float | None:
    """Return how the ln(share) of a connection correlate between consecutive intervals.

    1: a connection keeps its share; 0: intervals have nothing to do with each other; None where no
    two intervals in a row count, or all shares are equal.

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
