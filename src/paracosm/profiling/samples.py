"""What was measured: durations of one op, one transfer, one iteration, as statistics."""

from __future__ import annotations

import math
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime

import numpy as np

from paracosm.graphs.graph import Op
from paracosm.profiling.environment import Environment

OUTLIER = 3.0  # times the median

CACHES = ("cold", "warm")
"""Cold: the op's data had left the cache, as in a real iteration. Warm: the same op many times in a
row, as Huang et al. (section 3) measure."""


def _new() -> str:
    return uuid.uuid4().hex


def now() -> str:
    """Return the ISO date and time, UTC, that timings are marked with."""
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
        """Of the mean, relative to it."""
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
    """Return the samples that are not above three times the median: a busy machine does not do
    that, but new memory or an interrupt of a very short op does."""
    limit = OUTLIER * float(np.median(samples))
    return [sample for sample in samples if sample <= limit]


@dataclass(frozen=True, slots=True)
class OpTiming:
    """How long an op takes."""

    op: Op  # which, with its flops and bytes
    environment: Environment  # where
    cache: str  # one of `CACHES`
    time: Spread  # of one call
    # Seconds that a fixed piece of work took, in the median, while this was measured: what the core
    # was worth then. 0 where nobody probed.
    probe: float = 0.0
    source: str = ""  # who measured: "model resnet50", "grid paper", "grid model-like", "new op"
    measured_at: str = ""  # ISO date and time, UTC
    # Of this set of samples, so that merging it twice does not double it
    key: str = field(default_factory=_new)

    @property
    def duration(self) -> float:
        """Seconds to count for one call: the mean.

        The expected time of a sequence is the sum of the means of its parts, however they are
        distributed; of medians that does not hold.
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
    key: str = field(default_factory=_new)

    @property
    def bandwidth(self) -> float:
        """Bytes/s of the message in the median."""
        return self.size / self.time.median


@dataclass(frozen=True, slots=True)
class IterationTiming:
    """How long whole training iterations took, measured between the passes of a profile."""

    fingerprint: str  # of the graph: equal ops in equal order (`graphs.fingerprint`)
    model: str  # what a person calls it, "resnet50, batch 64, 3x32x32"
    # environment, time, probe, source, measured_at, key: as in `OpTiming`
    environment: Environment
    time: Spread
    probe: float = 0.0
    source: str = ""
    measured_at: str = ""
    key: str = field(default_factory=_new)

    @property
    def duration(self) -> float:
        return self.time.mean


def usual_probe(timings: Sequence[OpTiming]) -> float:
    """Return the median of the timings' speed probes in seconds; 0 where nobody probed."""
    probes = [timing.probe for timing in timings if timing.probe > 0]
    return float(np.median(probes)) if probes else 0.0


def at_one_speed(timings: Sequence[OpTiming], probe: float | None = None) -> list[OpTiming]:
    """Return timings as they would be on a machine whose speed probe takes `probe` seconds, by
    default their median.

    Shared machines change their speed by a fifth and more, for minutes at a time. The speed probe
    beside every timing says what the machine was worth then; a duration is scaled by how long the
    same piece of work took. Timings that nobody probed stay as they are.
    """
    probe = usual_probe(timings) if probe is None else probe
    if probe <= 0:
        return list(timings)
    return [
        timing
        if timing.probe <= 0 or timing.probe == probe
        else replace(timing, time=_scaled(timing.time, probe / timing.probe), probe=probe)
        for timing in timings
    ]


def _scaled(time: Spread, factor: float) -> Spread:
    seconds = ("mean", "minimum", "p10", "median", "p90")
    scaled = {name: getattr(time, name) * factor for name in seconds}
    return replace(time, variance=time.variance * factor**2, **scaled)
