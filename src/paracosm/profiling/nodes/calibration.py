"""Costs that a node and its link add to a transfer: the values for a simulation, and their file."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from functools import partial
from math import sqrt
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from paracosm.arrays import Bools, Floats
from paracosm.data_files import read_yaml
from paracosm.errors import InputError
from paracosm.files import replacing
from paracosm.profiling.nodes.exchange import (
    BOTH,
    LONGEST,
    MOST_CONNECTIONS,
    PING,
    RECEIVE,
    SEND,
    SHORTEST,
    Exchange,
    Peer,
    Table,
    warm_up,
)
from paracosm.profiling.nodes.parsing import Parsing
from paracosm.profiling.samples import now
from paracosm.units import (
    format_bandwidth,
    format_duration,
    format_size,
    parse_bandwidth,
    parse_duration,
    parse_size,
)
from paracosm.validation import validated


@dataclass(frozen=True, slots=True)
class Found:
    how: Literal["measured", "estimated"]
    by: str  # in words, "3 rounds of 3 s to 10.0.0.2:5201", "TensorFlow 2.21 on loopback"
    when: str  # date and time, ISO 8601
    # Relative: (largest - smallest) / median of rounds; of alpha and beta the mean error of
    # their line; of what is estimated the mean error of the ends of streams; None where
    # nobody knows; of `uneven` (larger - smaller) / value of the two ways
    spread: float | None = None
    loopback: bool = False  # there was no network in it

    __pydantic_config__ = ConfigDict(extra="forbid")


@dataclass(frozen=True, slots=True)
class NodeCalibration:
    """Bandwidth, parsing and flow control of a node (Li et al. 2020, section 3), where known."""

    # Bytes/s of payload that this node can send to the other one
    bandwidth_out: float | None = None
    bandwidth_in: float | None = None  # bytes/s of payload that it can receive
    # What both ways carry at once, relative to the sum of what each carries alone: 1 of a full-
    # duplex link, 0.5 of a half-duplex one
    duplex: float | None = None
    round_trip: float | None = None  # seconds of a small message there and back
    # How unevenly connections that send at once share the link: standard deviation of ln(share /
    # equal share); 0 of fair queueing
    uneven: float | None = None
    burst: float | None = None  # bytes that the link passes at once after a pause
    alpha: float | None = None  # seconds a byte of parsing what was received (section 3.2.1)
    beta: float | None = None  # seconds of parsing anything received
    # Bytes of a stream that are sent before another one has its turn (WIN, section 3.2.2); infinite
    # where streams are not interrupted
    window: float | None = None
    # By the names of quantities, how each was found
    found: Mapping[str, Found] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)  # versions, processor and the like

    @property
    def bandwidth(self) -> float | None:
        """The smaller bandwidth of both directions, bytes/s; None if unknown or over loopback."""
        ways = {"bandwidth_out": self.bandwidth_out, "bandwidth_in": self.bandwidth_in}
        known = (value for name, value in ways.items() if not self.over_loopback(name))
        return min((value for value in known if value is not None), default=None)

    def over_loopback(self, name: str) -> bool:
        how = self.found.get(name)
        return how is not None and how.loopback

    def over(self, older: NodeCalibration) -> NodeCalibration:
        """Return this calibration, with the older one's values where missing or over loopback."""
        missing = [
            name
            for name in QUANTITIES
            if getattr(self, name) is None
            or (
                self.over_loopback(name)
                and not older.over_loopback(name)
                and getattr(older, name) is not None
            )
        ]
        kept = {name: older.found[name] for name in missing if name in older.found}
        own = {name: each for name, each in self.found.items() if name not in missing}
        return replace(
            self,
            **{name: getattr(older, name) for name in missing},
            found={**kept, **own},
            environment={**older.environment, **self.environment},
        )


QUANTITIES = tuple(
    field.name for field in fields(NodeCalibration) if field.name not in ("found", "environment")
)
"""The names of what is calibrated."""


def calibration_of_goodput(goodput: Goodput, by: str, *, loopback: bool = False) -> NodeCalibration:
    both = [sum(pair) for pair in goodput.both]
    values = {
        "bandwidth_out": (statistics.median(goodput.sent), _spread(goodput.sent)),
        "bandwidth_in": (statistics.median(goodput.received), _spread(goodput.received)),
        "duplex": (goodput.duplex, _spread(both)),
        "round_trip": (goodput.round_trip, None),
    }
    return found_by("measured", by, values, loopback=loopback)


def calibration_of_shares(shares: Shares, by: str, *, loopback: bool = False) -> NodeCalibration:
    apart = abs(unevenness(shares.sent) - unevenness(shares.received))
    spread = apart / shares.uneven if shares.uneven > 0 else None
    return found_by("measured", by, {"uneven": (shares.uneven, spread)}, loopback=loopback)


def calibration_of_parsing(parsing: Parsing, by: str) -> NodeCalibration:
    error = parsing.error
    return found_by(
        "measured", by, {"alpha": (parsing.alpha, error), "beta": (parsing.beta, error)}
    )


def found_by(
    how: Literal["measured", "estimated"],
    by: str,
    values: Mapping[str, tuple[float, float | None]],
    *,
    loopback: bool = False,
    when: str | None = None,
) -> NodeCalibration:
    """Return a calibration of quantities, values with spreads, found in one way, now by default."""
    when = when or now()
    methods = {name: Found(how, by, when, spread, loopback) for name, (_, spread) in values.items()}
    known: dict[str, Any] = {name: value for name, (value, _) in values.items()}
    return NodeCalibration(**known, found=methods)


def _spread(values: Sequence[float]) -> float | None:
    """Return the spread of rounds, relative to their median; None of a single one."""
    if len(values) < 2:
        return None
    return (max(values) - min(values)) / statistics.median(values)


_PER_BYTE = "/B"


def _parse_seconds_a_byte(value: Any) -> float:
    """Read "0.3ns/B", or a number of seconds a byte."""
    if isinstance(value, str) and value.strip().endswith(_PER_BYTE):
        return parse_duration(value.strip().removesuffix(_PER_BYTE))
    try:
        return parse_duration(value) if not isinstance(value, str) else float(value)
    except ValueError as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f'seconds a byte are written as "0.3ns/B", not "{value}"') from None


Bandwidth = Annotated[float, BeforeValidator(parse_bandwidth), Field(gt=0, allow_inf_nan=False)]
Duration = Annotated[float, BeforeValidator(parse_duration), Field(allow_inf_nan=False)]
SecondsAByte = Annotated[
    float, BeforeValidator(_parse_seconds_a_byte), Field(ge=0, allow_inf_nan=False)
]
Size = Annotated[float, BeforeValidator(parse_size), Field(allow_inf_nan=False)]
Window = Annotated[float, BeforeValidator(parse_size), Field(gt=0)]


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid")
    bandwidth_out: Bandwidth | None = None
    bandwidth_in: Bandwidth | None = None
    duplex: float | None = Field(None, gt=0, allow_inf_nan=False)
    round_trip: Duration | None = None
    uneven: float | None = Field(None, ge=0, allow_inf_nan=False)
    burst: Size | None = None
    alpha: SecondsAByte | None = Field(None, le=1)
    beta: Duration | None = Field(None, le=1e6)
    window: Window | None = None
    found: dict[str, Found] = {}
    environment: dict[str, str] = {}


def load_calibration(path: str | Path) -> NodeCalibration:
    """Return the calibration in a YAML file; unknown keys are refused."""
    if not Path(path).exists():
        raise InputError(f'no calibration at "{path}": paracosm calibrate --out {path} makes one')
    mapping = read_yaml(path, "calibration")
    if not isinstance(mapping, Mapping):
        raise InputError(f"{path}: a calibration has keys and values, such as alpha: 0.3ns/B")
    file = validated(_File, mapping, str(path))
    for name in file.found:
        if name not in QUANTITIES or getattr(file, name) is None:
            raise InputError(f"{path}: found.{name}: there is no {name} that was found")
    return NodeCalibration(**dict(file))


def save_calibration(calibration: NodeCalibration, path: str | Path) -> None:
    """Write a calibration to a YAML file, which `load_calibration` reads back equal."""
    mapping: dict[str, Any] = {
        name: write(value)
        for name, write in _WRITTEN.items()
        if (value := getattr(calibration, name)) is not None
    }
    if calibration.found:
        mapping["found"] = {
            name: {
                key: value
                for key, value in asdict(each).items()
                if value is not None and value is not False
            }
            for name, each in calibration.found.items()
        }
    if calibration.environment:
        mapping["environment"] = dict(calibration.environment)
    with replacing(path) as temporary:
        temporary.write_text(yaml.safe_dump(mapping, sort_keys=False), encoding="utf-8")


_bandwidth = partial(format_bandwidth, exact=True)
_duration = partial(format_duration, exact=True)
_size = partial(format_size, exact=True)
_WRITTEN: Mapping[str, Callable[[float], Any]] = {
    "bandwidth_out": _bandwidth,
    "bandwidth_in": _bandwidth,
    "duplex": float,
    "round_trip": _duration,
    "uneven": float,
    "burst": _size,
    "alpha": lambda value: _duration(value) + _PER_BYTE,
    "beta": _duration,
    "window": _size,
}

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
    """Bytes/s of payload between this host and a peer, one number per round."""

    sent: tuple[float, ...]  # that the peer received, while it sent nothing
    received: tuple[float, ...]  # that this host received, while it sent nothing
    both: tuple[tuple[float, float], ...]  # (sent, received) while both sent
    round_trip: float  # seconds of 16 bytes there and back, the median of 50

    @property
    def duplex(self) -> float:
        """The rate of both directions at once, relative to the sum of each alone."""
        at_once = statistics.median(sum(pair) for pair in self.both)
        return at_once / (statistics.median(self.sent) + statistics.median(self.received))


def measure_goodput(
    peer: Peer,
    settings: BandwidthSettings | None = None,
    progress: Callable[[int], None] = lambda done: None,
) -> Goodput:
    """Return the goodput to a peer."""
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
    sent, received = (sum(map(sum, sums)) for sums in exchange.ask(kind, seconds, interval))
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
    """The number of connections, and for how long."""

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
        """The duration of sending each way, including the warm-up (`exchange.warm_up`)."""
        counted = self.interval * self.intervals
        return counted + min(counted / 3, 1.0)


@dataclass(frozen=True, slots=True)
class Shares:
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
    """Return what connections to a peer carry while all send, then all receive."""
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
    so it does not depend on the number of connections. A connection with less than a segment counts
    as if it had one; intervals in which the link stood still do not count (`counted`). Simulated
    transfers through a port are weighted log-normally, drawn anew in each step of a worker:
    ln(bytes) varies as ln(weight) does.
    """
    deviations = _deviations(carried)[counted(carried)]
    return float(np.sqrt(deviations.var(axis=1, ddof=1).mean()))


def correlation(carried: Sequence[Sequence[int]]) -> float | None:
    """Return the correlation of a connection's ln(share) between consecutive intervals: 1 if it
    keeps its share; None if no two consecutive intervals count, or all shares are equal."""
    deviations, counts = _deviations(carried), counted(carried)
    both = counts[:-1] & counts[1:]
    now, later = deviations[:-1][both].ravel(), deviations[1:][both].ravel()
    size = sqrt(float((now @ now) * (later @ later)))
    return float(now @ later) / size if size > 0 else None


def counted(carried: Sequence[Sequence[int]]) -> Bools:
    """Return which intervals show sharing, (intervals,). In the others all connections together
    carried less than half of the usual, because one of the hosts was busy."""
    total = np.array(carried).sum(axis=1)
    usual = np.median(total)
    if not usual > 0:
        raise InputError(
            "several connections received nothing most of the time: check whether a host is busy"
        )
    enough: Bools = total >= usual / 2
    return enough


def _deviations(carried: Sequence[Sequence[int]]) -> Floats:
    """Return ln(bytes) minus its mean over the connections of an interval."""
    logarithms = np.log(np.maximum(np.array(carried, float), SEGMENT))
    deviations: Floats = logarithms - logarithms.mean(axis=1, keepdims=True)
    return deviations
