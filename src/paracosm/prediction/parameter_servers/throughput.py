"""The throughput of a number of workers: in the steady state, and after a start."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
import numpy.typing as npt

from paracosm.prediction.parameter_servers.steady import (
    Change,
    rate_after_start,
    rates_of_windows,
    steady_period,
    steady_state,
)
from paracosm.prediction.parameter_servers.target import TargetJob
from paracosm.prediction.parameter_servers.utilisation import utilisation
from paracosm.profiling.jobs import DOWNLINK, RESOURCES, SERVER, UPLINK, WORKER
from paracosm.simulation.simulate import simulate
from paracosm.simulation.system import DOWN, UP, System, Workload

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AfterStart:
    """Steps/s of simulated measurements of so many `seconds` that begin with the workers: their
    mean, and the standard deviation between them.
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


def predict_throughput(job: TargetJob, workers: int, seed: int) -> Throughput:
    """Simulate a job with the first of its cluster's workers and measure its throughput."""
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


def _after_start(job: TargetJob, workers: int, seed: int, seconds: float) -> AfterStart | None:
    settings = job.settings
    ports = settings.ports.first(workers)
    apart = settings.stagger if settings.start == "staggered" else 0.0
    if apart is None:
        apart = 1 / float(single_worker_rates(job, seed)[:workers].mean()) / workers
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


def single_worker_rates(job: TargetJob, seed: int) -> Floats:
    """Return the steps/s of each worker where it is the only one, (workers,)."""
    ports = job.settings.ports
    said = np.column_stack([ports.ways.by_worker(), ports.speed])
    _, first, number = np.unique(said, axis=0, return_index=True, return_inverse=True)
    one = job.asynchronous()
    drawn = one.drawn(1, one.steps(1), seed)
    found = np.zeros(len(first))
    for place, worker in enumerate(first.tolist()):
        ended = simulate(one.workload, one.system(ports.only(worker)), drawn).step_end
        found[place] = rates_of_windows(ended, *steady_period(ended), 1)[0]
    return found[number.ravel()]


SHARE = 4
"""Steps that are simulated to see what a faster resource brings: one of so many."""


NOTHING = 0.01
"""Relative gain of throughput that is no more than noise."""


def sensitivity(job: TargetJob, workers: int, seed: int) -> dict[str, float]:
    """Return by how much throughput would grow if a resource were twice as fast, by its name.

    All of the cluster's: the links of a direction at servers and workers, all workers, all servers.
    Relative to the throughput, all simulated with the same steps drawn.
    """
    steps = max(job.steps(workers) // SHARE, 1)

    def rate(change: Change | None) -> float:
        return steady_state(job, workers, seed, steps=steps, change=change).steps_per_second

    base = rate(None)
    return {
        RESOURCES[resource]: rate(partial(_twice_as_fast, resource)) / base - 1
        for resource in (DOWNLINK, WORKER, UPLINK, SERVER)
    }


def limiting(gains: Mapping[str, float], busy: Mapping[str, float]) -> str:
    """Return the resource that would bring most; of several, the first of `RESOURCES`.

    Where none would bring more than simulations differ by, as where both directions are full, it is
    the busiest one.

    Args:
        gains: as `sensitivity` returns them.
        busy: shares of time, by resource.
    """
    most = gains if max(gains.values()) > NOTHING else busy
    return max(gains, key=lambda resource: most[resource])


def _twice_as_fast(resource: int, workload: Workload, system: System) -> tuple[Workload, System]:
    if resource == DOWNLINK:
        return workload, replace(system, ways=system.ways.twice_as_fast(DOWN))
    if resource == UPLINK:
        return workload, replace(system, ways=system.ways.twice_as_fast(UP))
    if resource == WORKER:
        return workload, replace(system, speed=2 * system.speed)
    seconds = np.where(workload.resource == SERVER, workload.seconds / 2, workload.seconds)
    return replace(workload, seconds=seconds), system


LITTLE = 0.1
"""Of what one worker brings alone: less for each further worker is little."""


def saturates_at(throughput: Mapping[int, float], alone: float) -> int | None:
    """Return the first number of workers from which on more of them bring little.

    The workers from that number up to the largest one bring less than `LITTLE` of a worker alone
    each, in the mean, and so do those up to every number between. None where throughput grows up
    to the largest one.

    Args:
        throughput: steps/s by number of workers.
        alone: steps/s of one worker that has the servers to itself.
    """
    numbers = sorted(throughput)
    for place, number in enumerate(numbers[:-1]):
        gains = (
            (throughput[more] - throughput[number]) / (more - number)
            for more in numbers[place + 1 :]
        )
        if max(gains) < LITTLE * alone:
            return number
    return None
