"""The throughput of a number of workers: in the steady state, and after a start."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import ceil

import numpy as np

from paracosm.arrays import Floats
from paracosm.errors import InputError
from paracosm.prediction.parameter_servers.config import MOST_STEPS
from paracosm.prediction.parameter_servers.target import LEADING, TargetJob
from paracosm.profiling.jobs.job_profile import DOWNLINK, RESOURCES, SERVER, UPLINK, WORKER
from paracosm.rng import ServerStream, generator
from paracosm.simulation.simulate import simulate
from paracosm.simulation.system import DOWN, UP, System, Workload

AT_FIRST = 1_000_000  # of all workers, that are drawn for a measurement; more where they run out


@dataclass(frozen=True)
class AfterStart:
    """Simulated measurements that begin with the workers: their mean and standard deviation."""

    steps_per_second: float
    spread: float
    seconds: float


@dataclass(frozen=True)
class Throughput:
    """The throughput of a number of workers."""

    workers: int  # their number
    steps_per_second: float  # of all together, in the steady state
    error: float  # standard error of that, of so much simulated time, steps/s
    spread: float | None  # standard deviation between measurements, steps/s; None of one
    seconds: float  # length of a measurement
    after_start: AfterStart | None  # None unless requested, or too short for a worker's steps
    utilisation: Mapping[str, Floats]  # share of time by `RESOURCES`, by server; of all workers one


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
        utilisation=_utilisation(job, steady.all_rates),
    )


def _after_start(job: TargetJob, workers: int, seed: int, seconds: float) -> AfterStart | None:
    start = begins_of(job, workers, seed)
    rates = rates_after_start(job, start, seconds, job.settings.repeats, seed)
    if not all(rates):
        return None
    return AfterStart(float(np.mean(rates)), float(np.std(rates, ddof=1)), seconds)


def begins_of(job: TargetJob, workers: int, seed: int) -> Floats:
    """Return the seconds at which each of a number of workers begins, as the settings say."""
    settings = job.settings
    stagger = settings.stagger if settings.start == "staggered" else 0.0
    if stagger is None:
        stagger = 1 / float(single_worker_rates(job, seed)[:workers].mean()) / workers
    return stagger * np.arange(workers, dtype=np.float64)


def rates_after_start(
    job: TargetJob, start: Floats, seconds: float, repeats: int, seed: int
) -> list[float]:
    """Return the steps/s of workers in simulated measurements that begin with them.

    Args:
        job: of which the first workers are simulated.
        start: seconds at which each begins, (workers,).
        seconds: length of a measurement.
        repeats: how many; each draws steps of its own.
        seed: of the draws.

    Raises:
        InputError: a measurement has more than `MOST_STEPS` steps of all workers.
    """
    workers = len(start)
    ports = job.settings.ports.first(workers)
    system = job.system(ports, start, seconds)
    most = job.most_steps(ports, seconds)
    steps = min(most, max(AT_FIRST // workers, 1))
    rates: list[float] = []
    while len(rates) < repeats:
        drawn = job.drawn(workers, steps, [seed, len(rates)])
        shared = job.with_shares(system, steps, [seed, len(rates)])
        simulated = simulate(job.workload, shared, drawn, until=seconds)
        begun = simulated.step_begin[:, -1]
        if steps < most and np.isfinite(begun).any():
            needed = steps * seconds / max(float(np.nanmin(begun)), seconds / most)
            if workers * needed > MOST_STEPS:
                raise InputError(
                    f"measure: in {seconds:g} s {workers:,} workers make {workers * needed:,.0f} "
                    f"steps, more than {MOST_STEPS:,} in all: take a shorter one"
                )
            steps = min(ceil(1.1 * needed), most)  # the first of them are the same
            continue
        ended = np.where(simulated.accepted, simulated.step_end, np.nan)
        rates.append(rate_after_start(ended, seconds))
    return rates


def single_worker_rates(job: TargetJob, seed: int) -> Floats:
    """Return the steps/s of each worker where it is the only one, (workers,)."""
    ports = job.settings.ports
    said = np.column_stack([ports.routes.by_worker(), ports.speed])
    _, first, number = np.unique(said, axis=0, return_index=True, return_inverse=True)
    one = job.asynchronous()
    drawn = one.drawn(1, one.steps(1), seed)
    rates = np.zeros(len(first))
    for place, worker in enumerate(first.tolist()):
        ended = simulate(one.workload, one.system(ports.only(worker)), drawn).step_end
        rates[place] = rates_of_windows(ended, *steady_period(ended), 1)[0]
    return rates[number.ravel()]


SHARE = 4  # one of so many steps is simulated to see what a faster resource brings
NOTHING = 0.01  # relative gain of throughput that is no more than noise


def sensitivity(job: TargetJob, workers: int, seed: int) -> dict[str, float]:
    """Return by how much throughput would grow if a resource were twice as fast, by its name.

    A resource is all of the cluster's: the links of a direction, all workers, all servers. The same
    steps are drawn for each.
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
    """Return what would bring most, the first of `RESOURCES`; where nothing would, the busiest."""
    most = gains if max(gains.values()) > NOTHING else busy
    return max(gains, key=lambda resource: most[resource])


def _twice_as_fast(resource: int, workload: Workload, system: System) -> tuple[Workload, System]:
    if resource == DOWNLINK:
        return workload, replace(system, routes=system.routes.twice_as_fast(DOWN))
    if resource == UPLINK:
        return workload, replace(system, routes=system.routes.twice_as_fast(UP))
    if resource == WORKER:
        return workload, replace(system, speed=2 * system.speed)
    seconds = np.where(workload.resource == SERVER, workload.seconds / 2, workload.seconds)
    return replace(workload, seconds=seconds), system


LITTLE = 0.1  # of what one worker brings alone: less for each further worker is little


def saturates_at(throughput: Mapping[int, float], alone: float) -> int | None:
    """Return the first number of workers from which on more of them bring little, if any.

    They bring less than `LITTLE` of a worker alone each, in the mean, up to every larger number,
    and all together less than `LITTLE` of what there is.
    `throughput` is steps/s by number of workers, `alone` that of one worker.
    """
    numbers = sorted(throughput)
    for place, number in enumerate(numbers[:-1]):
        gains = (
            (throughput[more] - throughput[number]) / (more - number)
            for more in numbers[place + 1 :]
        )
        most = max(throughput[more] for more in numbers[place + 1 :])
        if max(gains) < LITTLE * alone and most <= (1 + LITTLE) * throughput[number]:
            return number
    return None


def _utilisation(job: TargetJob, rates: Floats) -> dict[str, Floats]:
    """Return the shares of time for which resources are busy, by name from `RESOURCES`.

    A direction of a server's port: bytes over what it could carry; the workers: the mean over
    their computing, (1,); a server: updates over the cores that they may use, in [0, 1] but for the
    noise of drawing steps. Background traffic does not count. `rates` are of the first workers.
    """
    workload, ports = job.workload, job.settings.ports.first(len(rates))
    total, seconds = float(rates.sum()), workload.seconds.mean(axis=0)
    computing = float(seconds[workload.resource == WORKER].sum())
    capacity = ports.routes.capacity[ports.routes.ports]
    shares = {
        DOWNLINK: total * job.by_server(DOWNLINK, workload.size) / capacity[DOWN],
        WORKER: np.array([float((rates * computing / ports.speed).mean())]),
        UPLINK: total * job.by_server(UPLINK, workload.size) / capacity[UP],
        SERVER: total * job.by_server(SERVER, seconds) / (job.settings.cores or len(rates)),
    }
    return {RESOURCES[resource]: busy for resource, busy in shares.items()}


Change = Callable[[Workload, System], tuple[Workload, System]]

REPLICAS = 8
"""Simulations that are taken together. Workers that are in step share the link all at once and stay
so for long, others stay apart: one simulation sees too little of both."""

MEASURED, OF_EACH = 50, 10
"""Steps of all workers, and of each in the mean, that a measurement has: a minute or so of the jobs
that were measured, 50 steps in the paper (section 4.1)."""


@dataclass(frozen=True)
class Steady:
    """A steady state."""

    steps_per_second: float  # of all workers together
    error: float  # standard error of that, steps/s
    all_rates: Floats  # of each worker, with synchronous steps that came too late, (workers,)
    measured: Floats  # steps/s of all workers in stretches of `seconds`, (stretches,)
    seconds: float


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
    of each are left out (Li et al. 2020, section 4.1); `steps` are those beside them, in all
    replicas together. A measurement of no given `seconds` is as long as `MEASURED` steps of all and
    `OF_EACH` of a worker take, or all that are simulated.
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
        steps_per_second=float(rates.mean(axis=0).sum()),
        error=float(total.std(ddof=1) / np.sqrt(REPLICAS)),
        all_rates=_rates(starts, ended, periods).mean(axis=0),
        measured=np.concatenate([np.zeros(0), *measured]),
        seconds=length,
    )


def _rates(
    starts: Sequence[Floats], ended: Sequence[Floats], periods: Sequence[tuple[float, float]]
) -> Floats:
    """Of each worker in each replica's period, (replicas, workers)."""
    return np.array(
        [
            rates_in_period(start, ends, *period)
            for start, ends, period in zip(starts, ended, periods, strict=True)
        ]
    )


DROPPED = 2  # first steps of each worker that a measurement after a start leaves out


def steady_period(step_end: Floats) -> tuple[float, float]:
    """Return begin and end of the time in which all workers are at work, long after their start.

    It begins when each worker has ended `LEADING` steps, at the latest in the middle of the time
    until the first worker has ended all of its steps, where it ends.

    Raises:
        InputError: steps take no time that the clock of simulations shows.
    """
    until = float(np.nanmax(step_end, axis=1).min())
    if until == 0:
        raise InputError(
            "simulation: all steps end at the instant at which they begin, to the picosecond, so "
            "there is no throughput: check the unit of the profile's times"
        )
    leading = min(LEADING, step_end.shape[1] // 2)
    ended = step_end[:, leading - 1]
    # Backup workers may never get that far: the others end without them.
    return min(float(np.where(np.isnan(ended), np.inf, ended).max()), until / 2), until


def rates_in_period(start: Floats, ended: Floats, begin: float, until: float) -> Floats:
    """Return the steps/s of each worker in a stretch of a steady state, (workers,).

    A step that is under way at the stretch's begin or end counts by the share of it that is within,
    so that rates are right in the mean, however unequally steps last. (Steps that end within over
    the time that they took are not: it is the long steps that a stretch begins and ends in.)
    `ended` is NaN for steps that do not count.
    """
    rates = np.zeros(len(ended))
    for worker, row in enumerate(ended):
        ends = np.concatenate([start[worker : worker + 1], row[~np.isnan(row)]])
        first, last = np.interp([begin, until], ends, np.arange(len(ends)))
        rates[worker] = (last - first) / (until - begin)
    return rates


def rates_of_windows(ended: Floats, begin: float, until: float, windows: int) -> Floats:
    """Return the steps/s of all workers together in each of equal windows, (windows,).

    A worker's rate is its steps but one over the time from the first of their ends to the last;
    where it ended one or none in a window, their number over the window's length. `ended` is
    (workers, steps), in seconds; NaN for steps that do not count.
    """
    edges = np.linspace(begin, until, windows + 1)
    rates = np.zeros(windows)
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
        rates += plain
    return rates


def rate_after_start(ended: Floats, until: float) -> float:
    """As `rates_of_windows`, from the start to a time, without `DROPPED` steps of each worker."""
    total = 0.0
    for row in ended:
        ends = row[row <= until][DROPPED:]
        if len(ends) > 1 and ends[-1] > ends[0]:
            total += (len(ends) - 1) / float(ends[-1] - ends[0])
    return total
