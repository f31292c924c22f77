"""The throughput of a number of workers: in the steady state, and after a start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.alone import rates_alone
from paracosm.prediction.parameter_servers.imagined import ImaginedJob
from paracosm.prediction.parameter_servers.steady import steady_state
from paracosm.prediction.parameter_servers.utilisation import utilisation
from paracosm.prediction.parameter_servers.windows import rate_after_start
from paracosm.simulation.simulate import simulate

__all__ = ["AfterStart", "Throughput", "predict_throughput"]

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AfterStart:
    """Steps/s of simulated measurements that begin with the workers.

    Attributes:
        steps_per_second: the mean over measurements.
        spread: their standard deviation.
        seconds: length of each.
    """

    steps_per_second: float
    spread: float
    seconds: float


@dataclass(frozen=True)
class Throughput:
    """The throughput of a number of workers.

    Attributes:
        workers: their number.
        steps_per_second: of all together, in the steady state.
        error: standard error of that, of so much simulated time, steps/s.
        spread: standard deviation between measurements of the steady state, steps/s; None where
            the simulated time has room for one measurement only.
        seconds: length of a measurement.
        after_start: of measurements that begin with the workers; None where nobody asked, or where
            one is too short for the steps of any worker.
        utilisation: share of time for which each of `RESOURCES` is busy, by server; of all workers
            in the mean.
    """

    workers: int
    steps_per_second: float
    error: float
    spread: float | None
    seconds: float
    after_start: AfterStart | None
    utilisation: Mapping[str, Floats]


def predict_throughput(job: ImaginedJob, workers: int, seed: int) -> Throughput:
    """Simulate a job and measure its throughput.

    Args:
        job: what the workers do, on which cluster.
        workers: how many of the cluster's, the first ones.
        seed: of the steps that they draw.
    """
    steps = job.steps(workers)
    steady = steady_state(job, workers, seed, steps=steps, seconds=job.settings.measure)
    return Throughput(
        workers=workers,
        steps_per_second=steady.steps_per_second,
        error=steady.error,
        spread=float(steady.measured.std(ddof=1)) if len(steady.measured) > 1 else None,
        seconds=steady.seconds,
        after_start=None
        if job.settings.start == "steady"
        else _after_start(job, workers, seed, steady.seconds),
        utilisation=utilisation(
            job.workload, job.system(job.settings.ports.first(workers)), steady.all_rates
        ),
    )


def _after_start(job: ImaginedJob, workers: int, seed: int, seconds: float) -> AfterStart | None:
    settings = job.settings
    ports = settings.ports.first(workers)
    apart = settings.stagger if settings.start == "staggered" else 0.0
    if apart is None:
        apart = 1 / float(rates_alone(job, seed)[:workers].mean()) / workers
    system = job.system(ports, apart * np.arange(workers, dtype=np.float64), seconds)
    steps = job.most_steps(ports, seconds)
    rates = []
    for repeat in range(settings.repeats):
        drawn = job.drawn(workers, steps, [seed, repeat])
        shared = job.with_shares(system, steps, [seed, repeat])
        simulated = simulate(job.workload, shared, drawn, until=seconds)
        ended = np.where(simulated.accepted, simulated.step_end, np.nan)
        rates.append(rate_after_start(ended, seconds))
    if not all(rates):
        return None
    return AfterStart(float(np.mean(rates)), float(np.std(rates, ddof=1)), seconds)
