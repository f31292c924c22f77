"""Ops that were timed themselves, or differ a little from one that was: looked up and scaled."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import astuple, dataclass
from functools import cached_property
from itertools import groupby
from statistics import NormalDist, median

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.graphs.graph import Op
from paracosm.profiling.estimators.describe import Description, Floats, describe
from paracosm.profiling.estimators.roofline import LEVEL, Estimate, Roofline, estimate_around
from paracosm.profiling.samples import OpTiming, Spread

Key = tuple[str, str]
"""Name and arguments of an op."""

_DEVIATIONS = NormalDist().inv_cdf(0.5 + LEVEL / 2)  # half the interval, in standard deviations
_NO_SPREAD_KNOWN = 0.1  # relative, of one sample where no op has two


@dataclass(frozen=True, eq=False)
class Exact:
    """n distinct ops that were timed."""

    names: tuple[str, ...]
    arguments: tuple[str, ...]
    # (n,), logarithms of their durations (seconds; the means, see `OpTiming.duration`)
    log_time: Floats
    half_width: Floats  # (n,), of the interval, in the logarithm

    @cached_property
    def rows(self) -> dict[Key, int]:
        return {key: row for row, key in enumerate(zip(self.names, self.arguments, strict=True))}

    def estimate(self, row: int) -> Estimate:
        log_time, half_width = float(self.log_time[row]), float(self.half_width[row])
        return estimate_around(log_time, half_width, "exact", "exact")


def pool(
    timings: Sequence[OpTiming], exclude: Collection[Key] = ()
) -> tuple[Exact, list[Description]]:
    """Return the distinct ops of `timings`, ordered by name and arguments, and their descriptions.

    The time of an op is the mean of its sets' durations, weighted by their samples. The interval is
    that of its mean at another time: the standard error within sets, and the drift between sets of
    the same op, where the device's timings have such.
    """
    left_out = set(exclude)
    kept = [each for each in timings if (each.op.name, each.op.arguments) not in left_out]
    if not kept:
        raise InputError(
            "no op timings to fit estimators to"
            + (f": all {len(timings)} are held out" if timings else "")
        )
    for timing in kept:
        if not (timing.duration > 0 and math.isfinite(timing.duration)):
            raise InputError(
                f"the timing of {timing.op.name} is {timing.duration:g} s, not a duration"
            )
    sets = list(_sets_by_op(kept))
    several = [each for _, spreads in sets for each in spreads if each.count > 1]
    usual = median([math.sqrt(each.variance) / each.mean for each in several] or [_NO_SPREAD_KNOWN])
    drift = _drift([spreads for _, spreads in sets], usual)
    pooled = [_pooled(spreads, usual, drift) for _, spreads in sets]
    exact = Exact(
        names=tuple(op.name for op, _ in sets),
        arguments=tuple(op.arguments for op, _ in sets),
        log_time=np.array([log_time for log_time, _ in pooled]),
        half_width=np.array([half_width for _, half_width in pooled]),
    )
    return exact, [describe(op) for op, _ in sets]


def _sets_by_op(timings: Sequence[OpTiming]) -> Iterator[tuple[Op, list[Spread]]]:
    """Yield every distinct op with its sets of samples, whatever the order of the input."""
    ordered = sorted(timings, key=lambda each: (astuple(each.op), astuple(each.time)))
    for _, same in groupby(ordered, key=lambda each: (each.op.name, each.op.arguments)):
        found = list(same)
        yield found[0].op, [each.time for each in found]


def _error(spread: Spread, usual: float) -> float:
    """Return the standard error of the mean, relative to it; of a single sample the `usual` one."""
    return spread.standard_error if spread.count > 1 else usual


def _drift(sets: Sequence[Sequence[Spread]], usual: float) -> float:
    """Return by what standard deviation the means of an op's sets differ beyond their own
    errors."""
    variances = [
        np.var(np.log([each.mean for each in spreads]), ddof=1)
        - np.mean([_error(each, usual) ** 2 for each in spreads])
        for spreads in sets
        if len(spreads) > 1
    ]
    return math.sqrt(max(float(np.mean(variances)), 0.0)) if variances else 0.0


def _pooled(spreads: Sequence[Spread], usual: float, drift: float) -> tuple[float, float]:
    """Return the logarithm of the pooled duration and the half-width of its interval."""
    weights = np.array([each.count for each in spreads]) / sum(each.count for each in spreads)
    log_time = float(np.log(weights @ [each.mean for each in spreads]))
    errors = [_error(each, usual) for each in spreads]
    # Another time has a drift of its own.
    variance = float((weights**2) @ np.square(errors)) + drift**2 * (1 + float(weights @ weights))
    return log_time, _DEVIATIONS * math.sqrt(variance)


FARTHEST = 0.3  # never is a neighbour used that is farther than this, a factor of 1.35 in one size

_MOST_NEIGHBOURS = 4
_SOFTENING = 0.02  # of the distances by whose inverse neighbours are weighted


@dataclass(frozen=True, eq=False)
class Cells:
    """The timed ops of one type, by cell: ops that differ in sizes alone.

    Two ops are in one cell if all but the sizes of their tensors is equal: dtypes, orders of
    strides, flags, kernel attributes such as stride, padding and groups. Their distance is the
    largest logarithm of a ratio of sizes: 0.1 means that no size differs by more than about 10 %.
    Work is accounted for by the roofline: what is interpolated is the ratio of time to roofline.
    """

    names: tuple[str, ...]  # the text of every cell
    offsets: npt.NDArray[np.int64]  # (cells + 1,), where each cell's ops begin
    sizes: Floats  # (n, most sizes of an op), their logarithms; 0 where an op has fewer
    ratio: Floats  # (n,), logarithm of time over roofline

    def estimate(
        self, op: Description, roofline: Roofline, radius: float = FARTHEST
    ) -> tuple[float, float]:
        """Return the logarithm of the time (seconds) of `op` and how far its nearest neighbour is.

        Neighbours within `radius` count, the nearest four at most, each by the inverse of its
        distance. Without any, the distance is infinite.
        """
        if op.cell not in self.names:
            return np.nan, np.inf
        cell = self.names.index(op.cell)
        begin, end = self.offsets[cell], self.offsets[cell + 1]
        here = _log_sizes(op)
        distance = np.abs(self.sizes[begin:end, : len(here)] - here).max(axis=1, initial=0.0)
        order = np.argsort(distance, kind="stable")[:_MOST_NEIGHBOURS]
        order = order[distance[order] <= radius]
        if not len(order):
            return np.nan, np.inf
        weights = 1 / (distance[order] + _SOFTENING)
        ratio = float(weights @ self.ratio[begin:end][order] / weights.sum())
        return float(roofline.log_time([op])[0]) + ratio, float(distance[order[0]])


def cells_of(ops: Sequence[Description], log_time: Floats, roofline: Roofline) -> Cells:
    ratio = log_time - roofline.log_time(ops)
    cells = [op.cell for op in ops]
    order = sorted(range(len(ops)), key=lambda row: cells[row])
    names = tuple(sorted(set(cells)))
    counts = [cells.count(name) for name in names]
    sizes = np.zeros((len(ops), max(len(op.sizes) for op in ops)))
    for row, index in enumerate(order):
        here = _log_sizes(ops[index])
        sizes[row, : len(here)] = here
    return Cells(names, np.cumsum([0, *counts]), sizes, ratio[order])


def _log_sizes(op: Description) -> Floats:
    return np.log1p([size for _, size in op.shapes])
