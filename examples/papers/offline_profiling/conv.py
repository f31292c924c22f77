"""Figure 2: one convolution, its input channels varying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from designs import counted
from families import FAMILIES
from kept import Kept, Progress, complete
from plan import FIGURE2, Plan

from paracosm.graphs import Op
from paracosm.profiling import OpTiming, Settings, profile

__all__ = ["CLIFF", "Fit", "Series", "fit_line", "measure_figure2"]

AT = {"batch": 4, "outputs": 64, "size": 32, "kernel": 3, "stride": 1}
"""The paper does not say; a larger batch takes longer, and shows the same."""

CLIFF = 0.15
"""A change of FLOP/s between neighbours by more than this, and than their errors, is a cliff."""


@dataclass(frozen=True)
class Fit:
    """The line through times by least squares.

    Attributes:
        intercept, slope: seconds, and seconds for one unit of what varies.
        r2: share of the variance that it explains.
        worst: largest error of the line, relative to the time.
    """

    intercept: float
    slope: float
    r2: float
    worst: float


@dataclass(frozen=True)
class Series:
    """Times of a convolution.

    Attributes:
        name: which channels: "multiples of 32", "one less".
        cache: one of `CACHES`.
        channels: input channels.
        seconds: of one call, the mean.
        low, high: 10 % of the samples were below, 10 % above.
        error: standard error of the mean, relative.
        flops: of one call.
        line: through the times.
        cliffs: channels at which the FLOP/s differ by more than `CLIFF` from those before.
    """

    name: str
    cache: str
    channels: tuple[int, ...]
    seconds: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    error: tuple[float, ...]
    flops: tuple[int, ...]
    line: Fit
    cliffs: tuple[int, ...]

    @property
    def rates(self) -> list[float]:
        """FLOP/s."""
        return [work / time for work, time in zip(self.flops, self.seconds, strict=True)]


def measure_figure2(kept: Kept, plan: Plan) -> list[Series]:
    """Time the convolutions of figure 2, with round numbers of channels and with odd ones."""
    round_ones = _convolutions([plan.step * number for number in range(1, plan.channels + 1)])
    odd_ones = _convolutions([channels - 1 for channels in round_ones])
    named = {f"multiples of {plan.step}": round_ones, "one less": odd_ones}
    stored = kept.part("figure 2", lambda progress: _measure(kept, plan, named, progress))
    timings = kept.timings(stored["timings"])
    return [
        _series(name, cache, ops, timings) for name, ops in named.items() for cache in stored["in"]
    ]


def _convolutions(channels: Sequence[int]) -> dict[int, Op]:
    """Return a convolution for each number of input channels, with flops and bytes."""
    family = FAMILIES["convolution"]
    base = {argument.name: argument.base for argument in family.arguments} | dict(AT)
    return {channel: counted(family.at(base | {"inputs": channel})) for channel in channels}


def _measure(
    kept: Kept, plan: Plan, named: Mapping[str, Mapping[int, Op]], progress: Progress
) -> dict[str, Any]:
    ops = [op for members in named.values() for op in members.values()]
    settings = Settings(budget=FIGURE2 * plan.budget)
    done = complete(profile(ops, settings, "paper figure 2", kept.database.add, progress))
    return {"timings": [timing.key for timing in done.timings], "in": ["warm", "cold"]}


def _series(name: str, cache: str, ops: Mapping[int, Op], timings: Sequence[OpTiming]) -> Series:
    known = {(t.op.name, t.op.arguments): t for t in timings if t.cache == cache}
    found = {channels: known[op.name, op.arguments] for channels, op in ops.items()}
    seconds = [timing.duration for timing in found.values()]
    flops = [op.flops for op in ops.values()]
    rates = np.divide(flops, seconds)
    errors = np.array([timing.time.standard_error for timing in found.values()])
    jumps = np.abs(rates[1:] / rates[:-1] - 1) > CLIFF + 2 * (errors[1:] + errors[:-1])
    return Series(
        name=name,
        cache=cache,
        channels=tuple(found),
        seconds=tuple(seconds),
        low=tuple(timing.time.p10 for timing in found.values()),
        high=tuple(timing.time.p90 for timing in found.values()),
        error=tuple(errors.tolist()),
        flops=tuple(flops),
        line=fit_line(list(found), seconds),
        cliffs=tuple(c for c, jump in zip(list(found)[1:], jumps, strict=True) if jump),
    )


def fit_line(x: Sequence[float], seconds: Sequence[float]) -> Fit:
    """Return the least-squares line of times against what varies."""
    times = np.asarray(seconds, dtype=np.float64)
    slope, intercept = np.polyfit(np.asarray(x, dtype=np.float64), times, 1)
    off = times - (intercept + slope * np.asarray(x))
    total = float(np.square(times - times.mean()).sum())
    return Fit(
        intercept=float(intercept),
        slope=float(slope),
        r2=1 - float(np.square(off).sum()) / total if total > 0 else 1.0,
        worst=float(np.abs(off / times).max()),
    )
