"""After a common start: lock-step, and what makes workers drift apart (figures 15 and 16)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from finding import Finding
from measured_jobs import MeasuredJob, Run

from paracosm.prediction.parameter_servers.synchronized import coherence
from paracosm.prediction.parameter_servers.throughput import rate_after_start
from paracosm.profiling.jobs import DOWNLINK
from paracosm.simulation.simulate import simulate
from paracosm.simulation.system import Workload

__all__ = [
    "VARIANTS",
    "Ablation",
    "Course",
    "ablate",
    "course_of",
    "judge_ablation",
    "judge_courses",
    "rate_over_time",
]

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

COPIES = 5
"""Times that profiled steps are taken where each copy gets orders of its own."""


@dataclass(frozen=True)
class Simulation:
    """Begins and ends of the steps of one simulated window, (workers, steps); NaN: none."""

    begin: Floats
    end: Floats


@dataclass(frozen=True)
class Variant:
    """What is changed in the simulation.

    Attributes:
        name: in words.
        steps: makes other steps to draw from.
        uneven: standard deviation of ln(share) of a worker in a step.
    """

    name: str
    steps: Callable[[Workload], Workload]
    uneven: float = 0.0


@dataclass(frozen=True)
class Course:
    """Figure 16: one measured run over time, beside simulated ones.

    Attributes:
        job: which.
        run: it.
        times: seconds.
        measured: rate in steps/s and coherence, (2, times).
        simulated: the same, (repeats, 2, times).
    """

    job: MeasuredJob
    run: Run
    times: Floats
    measured: Floats
    simulated: Floats


@dataclass(frozen=True)
class Ablation:
    """What a variant does to the windows of a job after a common start, 2 or more workers.

    Attributes:
        job: which.
        variant: its name.
        runs: measured ones.
        rates: steps/s, (runs, repeats).
        coherences: in the second half of each window, (runs, repeats).
        measured: coherence in the second half of the measured runs, (runs,).
    """

    job: MeasuredJob
    variant: str
    runs: Sequence[Run]
    rates: Floats
    coherences: Floats
    measured: Floats

    @property
    def errors(self) -> Floats:
        """Relative errors of the mean rates, (runs,)."""
        rates = np.array([run.rate for run in self.runs])
        return np.asarray(self.rates.mean(axis=1) / rates - 1)


def _as_profiled(workload: Workload) -> Workload:
    return workload


def _one_order(workload: Workload) -> Workload:
    """Return the steps with the order in which the first one asks for its transfers."""
    return replace(
        workload,
        roots=np.repeat(workload.roots[:1], workload.steps, axis=0),
        release=np.repeat(workload.release[:1], workload.steps, axis=0),
    )


def _one_duration(workload: Workload) -> Workload:
    """Return the steps with the median duration of each op in all of them."""
    seconds = np.median(workload.seconds, axis=0, keepdims=True)
    return replace(
        workload,
        seconds=np.repeat(seconds, workload.steps, axis=0),
        gap=np.full(workload.steps, np.median(workload.gap)),
    )


def _all_the_same(workload: Workload) -> Workload:
    return _one_duration(_one_order(workload))


def _any_order(workload: Workload) -> Workload:
    """Return the steps several times, their downlinks asked for in an order by chance each time."""
    rng = np.random.default_rng(0)
    roots = np.tile(workload.roots, (COPIES, 1))
    for row in roots:
        places = np.flatnonzero(workload.resource[row] == DOWNLINK)
        row[places] = row[rng.permutation(places)]
    return replace(
        workload,
        roots=roots,
        release=np.tile(workload.release, (COPIES, 1)),
        seconds=np.tile(workload.seconds, (COPIES, 1)),
        gap=np.tile(workload.gap, COPIES),
    )


VARIANTS = (
    Variant("as profiled", _as_profiled),
    Variant("all steps the same", _all_the_same),
    Variant("one order, durations as profiled", _one_order),
    Variant("orders as profiled, one duration", _one_duration),
    Variant("orders by chance", _any_order),
    Variant("unequal shares, sigma 0.3", _as_profiled, 0.3),
    Variant("unequal shares, sigma 0.7", _as_profiled, 0.7),
)


def course_of(job: MeasuredJob, run: Run, repeats: int) -> Course:
    """Follow a measured run and simulated ones over time."""
    alone = float(np.mean(job.profile.step_end - job.profile.step_begin))
    half = 2 * alone
    times = np.linspace(half, run.seconds - half, 120)

    def both(begins: Sequence[Floats], ends: Sequence[Floats]) -> Floats:
        return np.stack([rate_over_time(ends, times, half), coherence(begins, ends, times)])

    simulated = [
        both(window.begin, window.end)
        for window in _windows(job, run, VARIANTS[0], repeats, beyond=alone)
    ]
    return Course(job, run, times, both(run.begins, run.ends), np.array(simulated))


def ablate(job: MeasuredJob, repeats: int) -> list[Ablation]:
    """Simulate the windows of a job's runs after a common start in every variant."""
    runs = job.started_together
    measured = np.array([_second_half(run.begins, run.ends, run.seconds) for run in runs])
    found = []
    for variant in VARIANTS:
        rates = np.zeros((len(runs), repeats))
        coherences = np.zeros((len(runs), repeats))
        for row, run in enumerate(runs):
            for column, window in enumerate(_windows(job, run, variant, repeats)):
                ended = np.where(window.end <= run.seconds, window.end, np.nan)
                rates[row, column] = rate_after_start(ended, run.seconds)
                coherences[row, column] = _second_half(window.begin, window.end, run.seconds)
        found.append(Ablation(job, variant.name, runs, rates, coherences, measured))
    return found


def rate_over_time(ends: Sequence[Floats], times: Floats, half: float) -> Floats:
    """Return the steps/s of all workers in the seconds around each time.

    Args:
        ends: of the steps of each worker; between them a step is done in proportion to time.
        times: seconds.
        half: seconds before and after each of them.
    """
    rate = np.zeros(len(times))
    for row in ends:
        each = np.concatenate([[0.0], row[~np.isnan(row)]])
        done = np.arange(len(each), dtype=float)
        rate += np.interp(times + half, each, done) - np.interp(times - half, each, done)
    return np.asarray(rate / (2 * half))


def _second_half(begins: Sequence[Floats], ends: Sequence[Floats], seconds: float) -> float:
    last = min(float(np.nanmax(end)) for end in ends)
    times = np.linspace(seconds / 2, min(seconds, last), 100)
    return float(coherence(begins, ends, times).mean())


def _windows(
    job: MeasuredJob, run: Run, variant: Variant, repeats: int, beyond: float = 0.0
) -> list[Simulation]:
    """Simulate a run's window from its own start, some seconds longer at will."""
    target = job.target(run.workers, share_sigma=variant.uneven)
    ports = target.settings.ports
    target = replace(target, workload=variant.steps(target.workload))
    seconds = run.seconds + beyond
    steps = target.most_steps(ports, seconds)
    base = target.system(ports, run.stagger * np.arange(run.workers, dtype=float))
    found = []
    for repeat in range(repeats):
        drawn = target.drawn(run.workers, steps, [repeat])
        system = target.with_shares(base, steps, [repeat])
        played = simulate(target.workload, system, drawn, until=seconds)
        found.append(Simulation(played.step_begin, played.step_end))
    return found


def judge_courses(courses: Sequence[Course]) -> list[Finding]:
    """Check that throughput rises as workers leave lock-step."""
    findings = []
    for job in dict.fromkeys(course.job for course in courses):
        its = [course for course in courses if course.job is job]
        measured = np.mean([_ends(course.measured[0]) for course in its], axis=0)
        simulated = np.mean([_ends(course.simulated[:, 0].mean(axis=0)) for course in its], axis=0)
        findings.append(
            Finding(
                "Figure 16",
                f"{job.name}: throughput rises after a common start (steps/s in the first and the "
                f"last third of {len(its)} runs of 2 or more workers)",
                "it rises",
                f"measured {measured[0]:.2f} to {measured[1]:.2f}; simulated {simulated[0]:.2f} to "
                f"{simulated[1]:.2f}",
                bool(measured[1] > measured[0] and simulated[1] > simulated[0]),
            )
        )
        real = float(np.mean([_related(course.measured) for course in its]))
        ours = float(np.mean([_related(each) for course in its for each in course.simulated]))
        findings.append(
            Finding(
                "Figure 15",
                f"{job.name}: the more in step, the slower (correlation of throughput and "
                "coherence over time)",
                "steps are fastest when workers alternate",
                f"measured {real:+.2f}, simulated {ours:+.2f}",
                real < 0 and ours < 0,
            )
        )
    return findings


def judge_ablation(ablations: Sequence[Ablation]) -> list[Finding]:
    """Check what keeps workers in lock-step, and what does not."""
    findings = []
    for job in dict.fromkeys(ablation.job for ablation in ablations):
        its = {ablation.variant: ablation for ablation in ablations if ablation.job is job}
        findings += [_same_steps(its), _variations(its), _shares(its)]
    return findings


def _same_steps(its: Mapping[str, Ablation]) -> Finding:
    same, base = its["all steps the same"], its["as profiled"]
    return Finding(
        "Ours",
        f"{base.job.name}: workers with equal steps and equal shares never drift apart",
        "coherence 1 in the second half of every window",
        f"{same.coherences.min():.3f} at least (as profiled: {base.coherences.mean():.2f} in the "
        f"mean, measured {base.measured.mean():.2f}); throughput {_change(same, base)} of that as "
        "profiled",
        bool(same.coherences.min() > 0.999),
    )


def _variations(its: Mapping[str, Ablation]) -> Finding:
    durations, orders = (
        its["one order, durations as profiled"],
        its["orders as profiled, one duration"],
    )
    base = its["as profiled"]
    return Finding(
        "Section 4.2",
        f"{base.job.name}: small variations of durations, or of the order of transfers, get "
        "workers out of step (coherence in the second half)",
        "variations of computation and communication do",
        f"durations alone {durations.coherences.mean():.2f}, orders alone "
        f"{orders.coherences.mean():.2f}, both {base.coherences.mean():.2f}, measured "
        f"{base.measured.mean():.2f}"
        + ("" if _orders(base.job) > 1 else "; all profiled steps have one order"),
        bool(base.coherences.mean() < 0.999),
    )


def _shares(its: Mapping[str, Ablation]) -> Finding:
    base, wide = its["as profiled"], its["unequal shares, sigma 0.3"]
    before, after = (float(np.abs(each.errors).mean()) for each in (base, wide))
    closer = base.job.one_queue
    return Finding(
        "Ours",
        f"{base.job.name}: unequal shares (sigma 0.3) raise throughput after a common start, and "
        f"bring it {'closer to' if closer else 'farther from'} what was measured over "
        + ("one queue" if closer else "a fair queue for each worker"),
        "equal shares are assumed",
        f"throughput {_change(wide, base)}; mean error {base.errors.mean():+.1%} with equal "
        f"shares, {wide.errors.mean():+.1%} with unequal ones (of absolute errors {before:.1%} and "
        f"{after:.1%})",
        bool(wide.rates.mean() > base.rates.mean() and (after < before) is closer),
    )


def _orders(job: MeasuredJob) -> int:
    """Return how many orders of downlinks there are among the profiled steps."""
    workload = job.target(1).workload
    rows = workload.roots
    return len({tuple(row[workload.resource[row] == DOWNLINK].tolist()) for row in rows})


def _related(course: Floats) -> float:
    return float(np.corrcoef(*course)[0, 1])


def _ends(rate: Floats) -> tuple[float, float]:
    third = len(rate) // 3
    return float(rate[:third].mean()), float(rate[-third:].mean())


def _change(ablation: Ablation, base: Ablation) -> str:
    return f"{ablation.rates.mean() / base.rates.mean() - 1:+.1%}"
