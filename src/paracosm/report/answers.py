"""The answer of a run in one or two sentences: one function for each kind of summary.

The terminal, the report and a result in Python begin with it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any

from paracosm.report.plan_words import plan_sentence, step_words, strategy_plan_sentence
from paracosm.report.train_words import percent, training_sentence
from paracosm.results import (
    EmulationSummary,
    IterationSummary,
    JobSummary,
    PlanSummary,
    ProfileSummary,
    RelaxationSummary,
    ReplaySummary,
    StrategyPlanSummary,
    Summary,
    ThroughputRow,
    ThroughputSummary,
    TrainingSummary,
    TuningSummary,
)
from paracosm.results.kind import imported
from paracosm.results.summaries import Lateness, RelaxationTwin
from paracosm.units import format_between, format_duration, format_energy

MOST_SQUARED = 1e150  # sums of squares of larger numbers may be infinite
HALF = 0.5  # of ideal: the efficiency up to which numbers of workers are counted as good
WIDE_BAND = 0.1  # relative difference between workers in step and apart that is worth reporting
ALIKE = 0.01  # relative difference up to which times count as equal


def answer(summary: Summary) -> str:
    """Return the answer of a run, or a note that it is unfinished."""
    if summary.status == "unfinished":
        return "The run is unfinished: still running, or killed."
    from paracosm.studies.kinds import KINDS  # which loads pydantic

    shown = KINDS.answer_to(summary)
    place = None if shown is None else shown.sentence
    say = _ANSWERS.get(type(summary)) if place is None else imported(place)
    return (say and say(summary)) or f"The run ended with status {summary.status}."


def relaxation_answer(summary: RelaxationSummary) -> str | None:
    """Describe the outcome of an iteration, and compare it with its synchronous baseline."""
    if None in (summary.virtual_time, summary.sweeps):
        return None
    if summary.status == "diverged":
        said = _diverged(summary)
    elif summary.status == "stopped":
        said = _stopped(summary)
    else:
        how = "synchronous" if summary.synchronous else "asynchronous"
        said = (
            f"{how} {summary.method} on {_count(summary.processors, 'processor')} "
            f"{summary.status} after {_short(summary.virtual_time)}, "
            f"{_few(summary.sweeps)} sweeps."
        )
    twin = "" if summary.twin is None else _twin(summary, summary.twin)
    return " ".join(filter(None, [f"{said[0].upper()}{said[1:]}", _noticed(summary), twin]))


def _noticed(summary: RelaxationSummary) -> str:
    """Say how late a residual test was, and how often it was wrong before."""
    late, wrong = (summary.detection.get(key) for key in ("late_by", "false_detections"))
    if late is None:
        return ""
    before = f" and {_count(wrong, 'false detection')}" if wrong else ""
    return f"It was noticed {_short(late)}{before} after it was so."


def _diverged(summary: RelaxationSummary) -> str:
    residual, initial = summary.residual, summary.initial_residual
    finite = residual is not None and math.isfinite(residual)
    reached = f"reached {residual:.3g}" if finite else "was no longer finite"
    if finite and residual > MOST_SQUARED:
        reached += ", whose square is not finite"
    began = "" if initial is None else f" from {initial:.3g}"
    rate = summary.growth_rate
    grew = "" if rate is None or rate <= 1 else f", growing by the factor {rate:.4g} a sweep"
    return f"The iteration diverged: the residual{began} {reached}{grew}."


def _stopped(summary: RelaxationSummary) -> str:
    reason = summary.reason or "the run reached its limit before it converged"
    residual, tolerance = summary.residual, summary.tolerance
    known = residual is not None and tolerance is not None
    where = f": the residual is {residual:.3g}, the tolerance {tolerance:.3g}" if known else ""
    return f"{reason.rstrip('.')}{where}."


def _twin(summary: RelaxationSummary, twin: RelaxationTwin) -> str:
    if twin.status == "diverged":
        also = "diverges as well" if summary.status == "diverged" else "diverges"
        return f"The same iteration, synchronous, {also}."
    if twin.run_time is None or twin.twin_time is None:
        came = "converges" if twin.status == "converged" else f"comes to {twin.residual:.3g}"
        return f"The same iteration, synchronous, {came} in {_short(twin.virtual_time)}."
    own, other = twin.run_time, twin.twin_time
    to = f" to a residual of {twin.level:.3g}" if twin.level is not None else ""
    sweeps = "" if twin.level is not None else f", {_few(twin.sweeps)} sweeps"
    ratio = other / own if own else 1.0
    if abs(ratio - 1) < ALIKE:
        how = "as fast as synchronous"
    elif ratio > 1:
        how = f"{ratio:.2g} times as fast as synchronous"
    else:
        how = f"slower than synchronous by a factor of {1 / ratio:.2g}"
    energy = _energies(summary, twin) if twin.level is None else ""
    return (
        f"Asynchronous is {how}{to} here ({_short(own)} against {_short(other)}{sweeps}){energy}."
    )


def _energies(summary: RelaxationSummary, twin: RelaxationTwin) -> str:
    """Compare the energy to solution of both, where it is known."""
    if not summary.energy or not twin.energy:
        return ""
    own, other = format_energy(summary.energy), format_energy(twin.energy)
    ratio = summary.energy / twin.energy
    return f" and takes {ratio:.2g} times the energy ({own} against {other})"


def iteration_answer(summary: IterationSummary) -> str:
    """Say how long an iteration on one device takes, and what limits it."""
    interval = summary.interval
    time, within = format_between(
        interval.low, summary.iteration_time, interval.high, format_duration
    )
    return (
        f"An iteration of {summary.model} takes {time} ({within}){step_words(summary)}. "
        f"{summary.bottleneck}"
    )


def job_answer(summary: JobSummary) -> str:
    """Say what the most workers give, from where on more of them lose, and what would help."""
    rows, last = summary.throughput, summary.throughput[-1] if summary.throughput else None
    rate = summary.examples_per_second
    chosen = "" if summary.search is None else ", the fastest strategy that fits"
    how = f"({summary.strategy}{chosen})"
    time = format_duration(summary.iteration_time)
    in_what = step_words(summary)
    if rate is None or last is None:
        said = f"With {_count(summary.workers, 'worker')} {how} an iteration takes {time}{in_what}."
    else:
        share = "" if last.efficiency is None else f", {percent(last.efficiency)} of ideal"
        give = "gives" if summary.workers == 1 else "give"
        said = (
            f"{_count(summary.workers, 'worker')} {give} {_rate(rate)} examples/s{share}: an "
            f"iteration takes {time} {how}{in_what}."
        )
    knee = knee_text(rows)
    energy = None if last is None or last.energy is None else format_energy(last.energy)
    taken = "" if energy is None else f"An iteration takes {energy}."
    gain = None if last is None else (last.if_twice_as_fast or {}).get("links")
    links = "" if gain is None else f"Links twice as fast: {gain:+.0%}."
    reaches = "" if knee is None else f"Efficiency is at least {HALF:.0%} {knee}."
    return " ".join(filter(None, [said, taken, reaches, summary.bottleneck, links]))


def knee_text(rows: Sequence[ThroughputRow]) -> str | None:
    """Say up to which of several numbers of workers at least half of the ideal is kept."""
    known = [row for row in rows if row.efficiency is not None]
    if len(known) < 2:
        return None
    good = list(takewhile(lambda row: (row.efficiency or 0.0) >= HALF, known))
    if not good:
        return "with none of these numbers of workers"
    tried = ", the most that were tried" if len(good) == len(known) else ""
    return f"up to {_count(good[-1].workers, 'worker')}{tried}"


def throughput_answer(summary: ThroughputSummary) -> str:
    """Say what workers with parameter servers make, and where more of them bring little."""
    joules = summary.throughput[-1].energy
    energy = "" if joules is None else f", {format_energy(joules)} a step"
    return (
        f"{_count(summary.workers, 'worker')} make {_rate_or_band(summary)}{energy}. "
        f"{summary.bottleneck}"
    )


def _rate_or_band(summary: ThroughputSummary) -> str:
    """State the steady steps/s, the rate after a requested start, or the band in step to apart."""
    row, start = summary.throughput[-1], summary.target.get("start")
    if row.after_start is not None:
        how = "a common" if start == "together" else "a staggered"
        return f"{row.after_start.steps_per_second:.4g} steps/s after {how} start"
    if row.in_step and row.apart and abs(row.apart / row.in_step - 1) > WIDE_BAND:
        return f"{row.in_step:.4g} (in step) to {row.apart:.4g} steps/s (apart)"
    share = "" if row.efficiency is None else f", {percent(row.efficiency)} of ideal"
    return f"{row.steps_per_second:.4g} steps/s{share}"


def emulation_answer(summary: EmulationSummary) -> str:
    """Say how long an iteration takes, what of it is waiting for whom, and what links change."""
    time = summary.iteration_time
    world = f"In a world of {summary.world_size:,}"
    if time is None:
        what = summary.no_iteration_time or "no iteration was measured"
        return f"{world}, {what} ({summary.status})."
    said = f"{world}, an iteration takes {_short(time.median)}"
    if summary.unchanged is not None and summary.unchanged.iteration_time is not None:
        before = _short(summary.unchanged.iteration_time.median)
        said += f" with {'; '.join(summary.what_if or ())} instead of {before}"
    if (exposed := exposed_share(summary)) is not None:
        collectives = (summary.collectives or {}).items()
        kinds = {kind: (each["per_iteration"] or each)["exposed"] for kind, each in collectives}
        most = max(kinds, key=lambda kind: kinds[kind], default="")
        of_what = f", most of it for {most.replace('_', '-')}" if kinds.get(most) else ""
        said += f": {percent(exposed)} of it waits for communication{of_what}"
    if summary.twice_bandwidth is not None:
        again = "" if summary.unchanged is None else " again"
        said += f"; with twice the bandwidth{again} {_short(summary.twice_bandwidth)}"
    return f"{said}."


def exposed_share(summary: EmulationSummary) -> float | None:
    """Return the share of an iteration that waits for communication; None if unknown."""
    parts = summary.breakdown or {}
    whole = sum(parts.get(part, 0.0) for part in ("compute", "exposed_communication", "waiting"))
    return parts["exposed_communication"] / whole if whole else None


def replay_answer(summary: ReplaySummary) -> str | None:
    """Say how long an iteration takes as traced, replayed and changed, and who comes last."""
    if summary.replayed is None:
        return None
    last = summary.together or [summary.replayed, *summary.what_ifs][-1]
    change = "" if last is summary.replayed else f", {last.what_if}"
    return (
        f"An iteration takes {format_duration(summary.iteration_time)} as traced, and "
        f"{format_duration(last.iteration_time)} replayed{change}. {last.bottleneck} "
        f"{latest_rank(summary.lateness)}".rstrip()
    )


def latest_rank(late: Lateness | None) -> str:
    """Return a sentence on the rank that the others wait for longest; "" without any."""
    if late is None or not late.ranks[0].lateness:
        return ""
    rank, steps = late.ranks[0], len(late.steps)
    most = f", {format_duration(rank.most)} at most" if rank.last > 1 else ""
    latest = f"; the others wait longest for it in {rank.steps:,} of {steps:,} steps"
    return (
        f"Rank {rank.rank} comes last to {rank.last:,} of {rank.collectives:,} collectives, "
        f"{format_duration(rank.mean)} after the others on average{most}"
        f"{latest if steps > 1 else ''}."
    )


def profile_answer(summary: ProfileSummary) -> str:
    """Say how many ops were timed, and what an iteration took."""
    real = summary.iteration_time
    time_text = "" if real is None else f"; an iteration takes {format_duration(real)}"
    return f"{summary.distinct_ops:,} ops, {summary.timings:,} timings{time_text}."


def tuned(name: str, value: float) -> str:
    """Return a value of a tuned parameter with its unit: omega is a duration."""
    return format_duration(value) if name == "omega" else f"{value:g}"


def tuning_answer(summary: TuningSummary) -> str:
    """Say which values are best, and how long a run takes with them."""
    values = ", ".join(f"{name}={tuned(name, summary.best[name])}" for name in summary.space)
    ratio = summary.best["in_search"]["time_over_fault_free"]["median"]
    best = "Interrupted, not validated: best" if summary.status == "interrupted" else "Best"
    return (
        f"{best} of {summary.trials:,} trials: {values}, {ratio:.3g} times the time without faults."
    )


def _count(count: int, noun: str) -> str:
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


def _short(seconds: float) -> str:
    return format_duration(float(f"{seconds:.4g}"))


def _few(number: float) -> str:
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def _rate(rate: float) -> str:
    return f"{rate:,.0f}" if rate >= 1000 else f"{rate:,.1f}" if rate >= 10 else f"{rate:.3g}"


_ANSWERS: Mapping[type[Summary], Callable[[Any], str | None]] = {
    TrainingSummary: training_sentence,
    RelaxationSummary: relaxation_answer,
    IterationSummary: iteration_answer,
    JobSummary: job_answer,
    ThroughputSummary: throughput_answer,
    EmulationSummary: emulation_answer,
    ReplaySummary: replay_answer,
    ProfileSummary: profile_answer,
    PlanSummary: plan_sentence,
    StrategyPlanSummary: strategy_plan_sentence,
    TuningSummary: tuning_answer,
}
