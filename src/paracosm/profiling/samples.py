"""Measured durations of one op, one transfer, one iteration, as statistics."""

import math
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from paracosm.graphs.graph import Op
from paracosm.profiling.environment import Environment

OUTLIER = 3.0  # times the median

SHORTEST, LONGEST = 1e-15, 1e15
"""Seconds of what takes any time at all: whatever is scaled by a ratio of two is finite."""


def can_take(seconds: float) -> bool:
    """Return whether so many seconds may have been measured."""
    return seconds == 0 or SHORTEST <= seconds <= LONGEST


CACHES = ("cold", "warm")
"""Cold: the op's data had left the cache, as in a real iteration. Warm: the same op many times in a
row, as Huang et al. (section 3) measure."""


def new_key() -> str:
    return uuid.uuid4().hex


def now() -> str:
    """Return the current date and time, UTC, in ISO format."""
    return datetime.now(UTC).isoformat(timespec="seconds")


@dataclass(frozen=True, slots=True)
class Spread:
    """Statistics of `count` samples, in seconds (`variance` in seconds squared, unbiased)."""

    count: int
    mean: float
    variance: float
    minimum: float
    p10: float
    median: float
    p90: float

    @property
    def standard_error(self) -> float:
        """Standard error of the mean, relative to it."""
        return math.sqrt(self.variance / self.count) / self.mean if self.mean > 0 else 0.0


def spread_of(samples: Sequence[float] | np.ndarray) -> Spread:
    values = np.asarray(samples, dtype=np.float64)
    p10, median, p90 = np.percentile(values, (10, 50, 90))
    return Spread(
        count=len(values),
        mean=float(values.mean()),
        variance=float(values.var(ddof=1)) if len(values) > 1 else 0.0,
        minimum=float(values.min()),
        p10=float(p10),
        median=float(median),
        p90=float(p90),
    )


def typical(samples: Sequence[float]) -> list[float]:
    """Return the samples up to three times the median: others contain interrupts."""
    limit = OUTLIER * float(np.median(samples))
    return [sample for sample in samples if sample <= limit]


@dataclass(frozen=True, slots=True)
class OpTiming:
    """How long an op takes."""

    op: Op  # which, with its flops and bytes
    environment: Environment  # where
    cache: str  # one of `CACHES`
    time: Spread  # of one call
    # Median seconds of a fixed piece of work while this was measured: the core's speed then. 0
    # without a probe.
    probe: float = 0.0
    source: str = ""  # who measured: "model resnet50", "grid paper", "grid model-like", "new op"
    measured_at: str = ""  # ISO date and time, UTC
    # The profiler run that it is from; "" if unknown
    session: str = field(default="", kw_only=True)
    # Of this set of samples, so that merging it twice does not double it
    key: str = field(default_factory=new_key)

    @property
    def duration(self) -> float:
        """Expected seconds of one call: the mean.

        The expected time of a sequence is the sum of its parts' means, whatever their distribution;
        this does not hold for medians.
        """
        return self.time.mean


@dataclass(frozen=True, slots=True)
class LinkTiming:
    """How long a transfer or a collective takes."""

    kind: str  # as `links` has them: "host copy", "host to device", "all_reduce", ...
    scenario: str  # which of several ways ("uni-direct", "bi-direct", "gloo 2 processes")
    size: int  # bytes of the message; of one rank's buffer in a collective
    ranks: int
    # environment, time, source, measured_at, key: as in `OpTiming`
    environment: Environment
    time: Spread
    source: str = ""
    measured_at: str = ""
    key: str = field(default_factory=new_key)

    @property
    def bandwidth(self) -> float:
        """Bytes/s of the message in the median."""
        return self.size / self.time.median


@dataclass(frozen=True, slots=True)
class IterationTiming:
    """How long whole training iterations took, measured between the passes of a profile."""

    fingerprint: str  # of the graph: equal ops in equal order (`graphs.fingerprint`)
    model: str  # what a person calls it, "resnet50, batch 64, 3x32x32"
    # environment, time, probe, source, measured_at, session, key: as in `OpTiming`
    environment: Environment
    time: Spread
    probe: float = 0.0
    source: str = ""
    measured_at: str = ""
    session: str = field(default="", kw_only=True)
    key: str = field(default_factory=new_key)

    @property
    def duration(self) -> float:
        return self.time.mean


def usual_probe(timings: Sequence[OpTiming]) -> float:
    """Return the median of the timings' speed probes in seconds; 0 without any."""
    probes = [timing.probe for timing in timings if timing.probe > 0]
    return float(np.median(probes)) if probes else 0.0


def at_one_speed(timings: Sequence[OpTiming], probe: float | None = None) -> list[OpTiming]:
    """Return timings as on a machine whose speed probe takes `probe` seconds; by default, as in the
    first of their sessions (see `speeds_of`).

    Shared machines change their speed by a fifth and more, for minutes at a time. A duration is
    scaled by the speed probe next to it. Timings without a probe are unchanged.
    """
    if probe is None:
        return speeds_of(timings).applied(timings)
    if probe <= 0:
        return list(timings)
    return [
        timing
        if timing.probe <= 0 or timing.probe == probe
        else replace(timing, time=_scaled(timing.time, probe / timing.probe), probe=probe)
        for timing in timings
    ]


@dataclass(frozen=True)
class Speeds:
    """How fast a machine was in several sessions.

    A session is one run of a profiler. Its timings are brought to one speed by the probes next to
    each. That a whole session was slower than another is handled separately, since a busy machine
    does not slow a probe and every op alike.
    """

    first: str  # the earliest session, whose speed is meant
    probes: Mapping[str, float]  # seconds of each session's probe in the median; 0 of none
    factors: Mapping[str, float]  # what a session's durations, at its own speed, are multiplied by
    within: float  # half of p10 to p90 of the probes, over their session's median

    @property
    def probe(self) -> float:
        """Seconds of the probe at the reference speed; 0 without any."""
        return self.probes.get(self.first, 0.0)

    @property
    def between(self) -> float:
        """Standard deviation of the logarithm of the machine's speed between sessions.

        A few sessions determine it poorly: the prior counts as much as `WORTH` of them, as the mean
        of a scaled inverse chi-squared distribution. It is the deviation within sessions, since
        other users come and go at any time, plus `USUAL`.
        """
        expected = math.hypot(USUAL, self.within / TENTH)
        logs = np.log(list(self.factors.values()))
        squares = float(((logs - logs.mean()) ** 2).sum()) if len(logs) else 0.0
        return math.sqrt((WORTH * expected**2 + squares) / (WORTH + max(len(logs) - 1, 0)))

    @property
    def common(self) -> float:
        """Relative error, with 90 % confidence, common to all ops of an iteration in another
        session: the reference speed is itself that of one session."""
        return math.hypot(self.within, NINETY * math.sqrt(2) * self.between)

    def applied(self, timings: Sequence[OpTiming]) -> list[OpTiming]:
        """Return timings of these sessions at the one speed; others, scaled by their probes."""
        parts = _by_session(timings)
        by_key: dict[str, OpTiming] = {}
        for session, members in parts.items():
            factor = self.factors.get(session)
            at_one = at_one_speed(members, self.probe if factor is None else self.probes[session])
            by_key |= {
                old.key: timing if factor in (None, 1.0) else self._moved(timing, factor)
                for old, timing in zip(members, at_one, strict=True)
            }
        return [by_key[timing.key] for timing in timings]

    def _moved(self, timing: OpTiming, factor: float) -> OpTiming:
        probe = self.probe if timing.probe > 0 else 0.0
        return replace(timing, time=_scaled(timing.time, factor), probe=probe, session=self.first)


NINETY = 1.645  # standard deviations of a normal distribution either way that hold 90 %
TENTH = 1.282  # and above which a tenth lies
USUAL, WORTH = 0.02, 4


def speeds_of(timings: Sequence[OpTiming]) -> Speeds:
    """Return how fast the machine was in each session, relative to the earliest.

    Sessions are processed by date. The factor of one is the median, weighted by time, of the ratios
    between durations of ops that it shares with those before it and its own; the probe counts as
    one more op. So ops timed on a busy machine and added to a database leave its other timings
    unchanged.
    """
    parts = _by_session(timings)
    order = sorted(parts, key=lambda each: (min(t.measured_at for t in parts[each]), each))
    probes = {session: usual_probe(parts[session]) for session in order}
    factors: dict[str, float] = {}
    known: dict[tuple[str, ...], float] = {}
    for session in order:
        own = at_one_speed(parts[session], probes[session])
        durations = {
            (timing.cache, timing.op.name, timing.op.arguments): timing.duration for timing in own
        }
        pairs = [(known[key], time) for key, time in durations.items() if key in known]
        reference = probes[order[0]]
        if factors and reference > 0 and probes[session] > 0:
            pairs.append((reference, probes[session]))
        factors[session] = factor = _median_ratio([pair for pair in pairs if min(pair) > 0])
        known = {key: factor * time for key, time in durations.items()} | known
    relative = [
        timing.probe / probes[session]
        for session, members in parts.items()
        for timing in members
        if timing.probe > 0
    ]
    low, high = np.percentile(relative, (10, 90)) if relative else (1.0, 1.0)
    return Speeds(order[0] if order else "", probes, factors, float(high - low) / 2)


def _by_session(timings: Sequence[OpTiming]) -> dict[str, list[OpTiming]]:
    parts: dict[str, list[OpTiming]] = {}
    for timing in timings:
        parts.setdefault(timing.session or f"source {timing.source}", []).append(timing)
    return parts


def _median_ratio(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the median of a / b over pairs (a, b), weighted by a; 1 of none."""
    if not pairs:
        return 1.0
    ordered = sorted((a / b, a) for a, b in pairs)
    weights = np.cumsum([weight for _, weight in ordered])
    return ordered[int(np.searchsorted(weights, weights[-1] / 2))][0]


def _scaled(time: Spread, factor: float) -> Spread:
    seconds = ("mean", "minimum", "p10", "median", "p90")
    scaled = {name: getattr(time, name) * factor for name in seconds}
    return replace(time, variance=time.variance * factor**2, **scaled)
