"""How steady op timings are: standard errors within a run, and the same op timed again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.profiling import ModelProfile, OpTiming
from paracosm.profiling.samples import CACHES

__all__ = ["LIMIT", "Again", "Steadiness", "Steady", "steadiness"]

LIMIT = 0.01
"""The paper's: "standard error lower than 1% of the mean"."""


@dataclass(frozen=True)
class Steady:
    """Standard errors of the mean, relative to it, of some ops.

    Attributes:
        what: op type, or "all".
        cache: one of `CACHES`.
        ops: how many.
        samples: of an op, the median.
        median, p90: of the standard errors; that of a single sample counts as 100 %.
        below: share of them below `LIMIT`.
    """

    what: str
    cache: str
    ops: int
    samples: int
    median: float
    p90: float
    below: float


@dataclass(frozen=True)
class Again:
    """The same ops in the profiles of two models, minutes apart.

    Attributes:
        cache: one of `CACHES`.
        ops: how many both have.
        median, p90: of the relative differences of the means, signs dropped.
    """

    cache: str
    ops: int
    median: float
    p90: float


@dataclass(frozen=True)
class Steadiness:
    """All of it.

    Attributes:
        by_type: of each op type and cache, those with most ops first.
        all: of all ops, by cache.
        again: by cache; those that were timed again.
        probe: p10, median, p90 of the speed probe, seconds.
    """

    by_type: tuple[Steady, ...]
    all: dict[str, Steady]
    again: dict[str, Again]
    probe: tuple[float, float, float]


def steadiness(done: Mapping[str, ModelProfile]) -> Steadiness:
    """Return how steady the timings of the models' ops are."""
    timings = [timing for each in done.values() for timing in each.profile.timings]
    types: dict[str, int] = {}
    for timing in timings:
        types[timing.op.name] = types.get(timing.op.name, 0) + 1
    probes = [probe for each in done.values() for probe in each.profile.probes]
    p10, median, p90 = np.percentile(probes, (10, 50, 90))
    return Steadiness(
        tuple(
            _steady(name, cache, [t for t in timings if t.op.name == name and t.cache == cache])
            for name in sorted(types, key=lambda each: -types[each])
            for cache in CACHES
        ),
        {
            cache: _steady("all", cache, [t for t in timings if t.cache == cache])
            for cache in CACHES
        },
        {again.cache: again for cache in CACHES if (again := _again(done, cache)) is not None},
        (float(p10), float(median), float(p90)),
    )


def _steady(what: str, cache: str, timings: Sequence[OpTiming]) -> Steady:
    # One sample has no spread, and says nothing.
    errors = np.array([t.time.standard_error if t.time.count > 1 else 1.0 for t in timings])
    return Steady(
        what=what,
        cache=cache,
        ops=len(timings),
        samples=int(np.median([timing.time.count for timing in timings])),
        median=float(np.median(errors)),
        p90=float(np.percentile(errors, 90)),
        below=float((errors < LIMIT).mean()),
    )


def _again(done: Mapping[str, ModelProfile], cache: str) -> Again | None:
    means: dict[tuple[str, str], list[float]] = {}
    for each in done.values():
        for timing in each.profile.timings:
            if timing.cache == cache:
                means.setdefault((timing.op.name, timing.op.arguments), []).append(timing.duration)
    pairs = np.array([times[:2] for times in means.values() if len(times) > 1])
    if not len(pairs):
        return None
    off = np.abs(pairs[:, 0] - pairs[:, 1]) / pairs.mean(axis=1)
    return Again(cache, len(pairs), float(np.median(off)), float(np.percentile(off, 90)))
