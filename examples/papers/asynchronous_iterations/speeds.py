"""Figures 3, 4 and 5: the nominal iteration, one slow processor, and durations that vary."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from grid import PROCESSORS, READS, UPDATE, solve, whole_units
from numpy.typing import NDArray

from paracosm.relaxation import RelaxationResult

Array = NDArray[np.float64]
Curve = tuple[Array, Array]  # virtual time, residual norm

PLACES = {"middle": 5, "edge": 0}


@dataclass(frozen=True)
class Nominal:
    """Figure 3: all processors alike.

    `rate` is the factor of the residual a sweep, late; `sweeps` those of every right-hand side by
    who reads when; `same` whether the asynchronous iteration that reads at the start gave the
    synchronous iterates to the bit.
    """

    curve: Curve
    rate: float
    sweeps: dict[str, Array]
    same: bool


@dataclass(frozen=True)
class Slowed:
    """Figure 4: one processor is slower by 0 to 11 durations of an update.

    By read and place: `ratios` of the run times to the nominal one, a row a slow-down, a column a
    right-hand side; `curves` of the first right-hand side, by slow-down.
    """

    slowdowns: tuple[int, ...]
    ratios: dict[tuple[str, str], Array]
    curves: dict[tuple[str, str], list[Curve]]


@dataclass(frozen=True)
class Varied:
    """Figure 5: durations N(10, variance).

    By read: `times` to 1e-6 in units of time, a row a variance, a column a right-hand side;
    `curves` of the first right-hand side, by variance.
    """

    variances: tuple[int, ...]
    times: dict[str, Array]
    curves: dict[str, list[Curve]]


def nominal(seeds: int) -> Nominal:
    """Run figure 3 for so many right-hand sides."""
    long = solve(0, synchronous=True, tolerance=1e-9)
    late = long.sweeps > 250
    slope = np.polyfit(long.sweeps[late], np.log(long.residuals[late]), 1)[0]
    runs = {read: [solve(seed, read=read) for seed in range(seeds)] for read in READS}
    in_step = [solve(seed, synchronous=True) for seed in range(seeds)]
    same = all(
        np.array_equal(one.x, other.x) and one.virtual_time == other.virtual_time
        for one, other in zip(in_step, runs["start"], strict=True)
    )
    sweeps = {read: np.array([run.sweeps[-1] for run in runs[read]]) for read in READS}
    return Nominal(_curve(in_step[0]), float(np.exp(slope)), sweeps, same)


def slowed(slowdowns: tuple[int, ...], seeds: int) -> Slowed:
    """Run figure 4: a slow-down of k means that an update takes 1 + k times as long."""
    ratios, curves = {}, {}
    for read in READS:
        alike = np.array([solve(seed, read=read).virtual_time for seed in range(seeds)])
        for place, who in PLACES.items():
            runs = []
            for slowdown in slowdowns:
                times = [UPDATE] * PROCESSORS
                times[who] *= 1 + slowdown
                runs.append([solve(seed, times, read=read) for seed in range(seeds)])
            ratios[read, place] = np.array([[r.virtual_time for r in row] for row in runs]) / alike
            curves[read, place] = [_curve(row[0]) for row in runs]
    return Slowed(slowdowns, ratios, curves)


def varied(variances: tuple[int, ...], seeds: int) -> Varied:
    """Run figure 5."""
    times, curves = {}, {}
    for read in READS:
        runs = [
            [solve(seed, whole_units(variance), read=read) for seed in range(seeds)]
            for variance in variances
        ]
        times[read] = np.array([[run.virtual_time for run in row] for row in runs])
        curves[read] = [_curve(row[0]) for row in runs]
    return Varied(variances, times, curves)


def _curve(run: RelaxationResult) -> Curve:
    return run.times, run.residuals
