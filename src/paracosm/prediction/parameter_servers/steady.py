"""The steady state of a job: several long simulations from random starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.target import LEADING, TargetJob
from paracosm.rng import ServerStream, generator
from paracosm.simulation.simulate import simulate
from paracosm.simulation.system import System, Workload

Floats = npt.NDArray[np.float64]

Change = Callable[[Workload, System], tuple[Workload, System]]

REPLICAS = 8
"""Simulations that are taken together. Workers that are in step share the link all at once and stay
so for long, others stay apart: one simulation sees too little of both."""

MEASURED, OF_EACH = 50, 10
"""Steps of all workers, and of each in the mean, that a measurement has: a minute or so of the jobs
that were measured, 50 steps in the paper (section 4.1)."""


@dataclass(frozen=True)
class Steady:
    """A steady state.

    Attributes:
        rates: steps/s of each worker, (workers,).
        all_rates: the same, with synchronous steps that came too late, (workers,).
        error: standard error of their sum, steps/s.
        measured: steps/s of all workers in stretches of `seconds`, (stretches,).
    """

    rates: Floats
    all_rates: Floats
    error: float
    measured: Floats
    seconds: float

    @property
    def steps_per_second(self) -> float:
        return float(self.rates.sum())


def steady_state(
    job: TargetJob,
    workers: int,
    seed: int,
    *,
    steps: int,
    seconds: float | None = None,
    change: Change | None = None,
) -> Steady:
    """Simulate a job from `REPLICAS` random starts, and measure what comes after each.

    Workers begin at random within the time of their longest possible step, as if they had been
    started by hand, so that what is measured depends on no arrangement. The first `LEADING` steps
    of each are left out (Li et al. 2020, section 4.1).

    Args:
        workers: how many of the cluster's, the first ones.
        seed: of the steps that they draw, and of their starts.
        steps: that each worker does in all replicas together, beside those left out.
        seconds: length of a measurement; None: as long as `MEASURED` steps of all and `OF_EACH` of
            a worker take, or all that are simulated after those left out.
        change: makes another workload and system of the job's, of which the same is drawn.
    """
    ports = job.settings.ports.first(workers)
    each = ceil(steps / REPLICAS) + LEADING
    ended, accepted, starts, periods = [], [], [], []
    for replica in range(REPLICAS):
        chance = [
            generator([seed, replica], ServerStream.STARTS, worker).uniform()
            for worker in range(workers)
        ]
        start = np.array(chance) * job.longest_steps(ports)
        system = job.with_shares(job.system(ports, start), each, [seed, replica])
        workload = job.workload
        if change is not None:
            workload, system = change(workload, system)
        simulated = simulate(workload, system, job.drawn(workers, each, [seed, replica]))
        starts.append(start)
        ended.append(simulated.step_end)
        accepted.append(np.where(simulated.accepted, simulated.step_end, np.nan))
        periods.append(steady_period(simulated.step_end))
    rates = _rates(starts, accepted, periods)
    total = rates.sum(axis=1)
    most = min(until - begin for begin, until in periods)
    length = seconds or min(max(MEASURED, OF_EACH * workers) / float(total.mean()), most)
    measured = [
        rates_of_windows(ends, begin, begin + windows * length, windows)
        for ends, (begin, until) in zip(accepted, periods, strict=True)
        if (windows := int((until - begin) / length + 1e-9)) > 0
    ]
    return Steady(
        rates=rates.mean(axis=0),
        all_rates=_rates(starts, ended, periods).mean(axis=0),
        error=float(total.std(ddof=1) / np.sqrt(REPLICAS)),
        measured=np.concatenate([np.zeros(0), *measured]),
        seconds=length,
    )


def _rates(
    starts: Sequence[Floats], ended: Sequence[Floats], periods: Sequence[tuple[float, float]]
) -> Floats:
    """Return the steps/s of each worker in each replica's period, (replicas, workers)."""
    return np.array(
        [
            rates_in_period(start, ends, *period)
            for start, ends, period in zip(starts, ended, periods, strict=True)
        ]
    )


DROPPED = 2
"""First steps of each worker that a measurement after a start leaves out."""


def steady_period(step_end: Floats) -> tuple[float, float]:
    """Return begin and end of the time in which all workers are at work, long after their start.

    It begins when each worker has ended `LEADING` steps, at the latest in the middle of the time
    until the first worker has ended all of its steps, where it ends.
    """
    until = float(np.nanmax(step_end, axis=1).min())
    leading = min(LEADING, step_end.shape[1] // 2)
    ended = step_end[:, leading - 1]
    # Backup workers may never get that far: the others end without them.
    return min(float(np.where(np.isnan(ended), np.inf, ended).max()), until / 2), until


def rates_in_period(start: Floats, ended: Floats, begin: float, until: float) -> Floats:
    """Return the steps/s of each worker in a stretch of a steady state, (workers,).

    A step that is under way at the stretch's begin or end counts by the share of it that is within,
    so that rates are right in the mean, however unequally steps last. (Steps that end within over
    the time that they took are not: it is the long steps that a stretch begins and ends in.)

    Args:
        start: seconds at which each worker began, (workers,).
        ended: seconds at which steps ended that count, (workers, steps); NaN for others.
    """
    found = np.zeros(len(ended))
    for worker, row in enumerate(ended):
        ends = np.concatenate([start[worker : worker + 1], row[~np.isnan(row)]])
        first, last = np.interp([begin, until], ends, np.arange(len(ends)))
        found[worker] = (last - first) / (until - begin)
    return found


def rates_of_windows(ended: Floats, begin: float, until: float, windows: int) -> Floats:
    """Return the steps/s of all workers together in each of equal windows, (windows,).

    A worker's rate is its steps but one over the time from the first of their ends to the last;
    where it ended one or none in a window, their number over the window's length. `ended` is
    (workers, steps), in seconds; NaN for steps that do not count.
    """
    edges = np.linspace(begin, until, windows + 1)
    found = np.zeros(windows)
    for row in ended:
        ends = row[~np.isnan(row)]
        places = np.searchsorted(ends, edges, side="right")
        count = np.diff(places)
        plain = count / np.diff(edges)
        several = count > 1
        first, last = ends[places[:-1][several]], ends[places[1:][several] - 1]
        with np.errstate(divide="ignore", invalid="ignore"):
            plain[several] = np.where(
                last > first, (count[several] - 1) / (last - first), plain[several]
            )
        found += plain
    return found


def rate_after_start(ended: Floats, until: float) -> float:
    """Return the steps/s of all workers together from their start to a time.

    A worker's rate is as in `rates_of_windows`, without its first `DROPPED` steps.
    """
    total = 0.0
    for row in ended:
        ends = row[row <= until][DROPPED:]
        if len(ends) > 1 and ends[-1] > ends[0]:
            total += (len(ends) - 1) / float(ends[-1] - ends[0])
    return total
