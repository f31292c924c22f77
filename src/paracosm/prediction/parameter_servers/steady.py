"""The steady state of a job: several long simulations from random starts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import ceil

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.imagined import ImaginedJob
from paracosm.prediction.parameter_servers.streams import worker_streams
from paracosm.prediction.parameter_servers.windows import (
    LEADING,
    rates_in_period,
    rates_of_windows,
    steady_period,
)
from paracosm.simulation.simulate import simulate
from paracosm.simulation.system import System, Workload

__all__ = ["REPLICAS", "Change", "Steady", "steady_state"]

Floats = npt.NDArray[np.float64]

Change = Callable[[Workload, System], tuple[Workload, System]]

REPLICAS = 8
"""Simulations that are taken together. Workers that are in step share the link all at once and stay
so for long, others stay apart: one simulation sees too little of both."""

MEASURED, OF_EACH = 50, 10
"""Steps of all workers, and of each in the mean, that a measurement has: a minute or so of the jobs
that were measured, 50 steps in the paper (section 4.1)."""

STARTS = 2
"""Of the random streams of a seed, those of the moments at which workers begin."""


@dataclass(frozen=True)
class Steady:
    """A steady state.

    Attributes:
        rates: steps/s of each worker, (workers,).
        all_rates: the same, with synchronous steps that came too late, (workers,).
        error: standard error of their sum, steps/s.
        measured: steps/s of all workers in stretches of `seconds`, (stretches,).
        seconds: length of such a stretch.
    """

    rates: Floats
    all_rates: Floats
    error: float
    measured: Floats
    seconds: float

    @property
    def steps_per_second(self) -> float:
        """Steps/s of all workers together."""
        return float(self.rates.sum())


def steady_state(
    job: ImaginedJob,
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
        job: what the workers do, on which cluster.
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
        streams = worker_streams([seed, replica], STARTS, workers)
        start = np.array([stream.uniform() for stream in streams]) * job.longest_steps(ports)
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
