"""Comparison of training runs: what they vary, how fast they learn, which is best."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from math import ceil, floor, inf, isfinite, log10
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.results import TrainingSummary
from paracosm.results.comparison import (
    by_design,
    comparisons_of_best,
    design_name,
    design_of,
    in_order,
    median_of,
    varied_of,
    with_fewest_arguments,
)
from paracosm.results.spread import seconds_or_never, seeds_within, spread
from paracosm.results.view import Goal, Quantity, Run, Trial, Trials
from paracosm.training.sentence import final_quality, is_at_chance
from paracosm.units import format_duration

if TYPE_CHECKING:
    from paracosm.results.metrics import Series

LEARNT = 0.9  # of the first loss
NAMED = 3  # designs named in a sentence


def trials_of(runs: Sequence[Run]) -> Trials:
    """Compare runs: by their common target, else by the lowest loss that all reach that learn."""
    runs = [run for run in runs if isinstance(run.numbers, TrainingSummary)]
    targets = {run.numbers.target for run in runs}
    if len(targets) == 1 and None not in targets:
        goal: Goal | None = Goal(targets.pop(), True)
        reached = [(run.numbers.reached_at, run.numbers.reached_updates) for run in runs]
    else:
        losses = [run.series("loss") for run in runs]
        best = [
            lowest
            for loss, run in zip(losses, runs, strict=True)
            if failure_of(run.numbers) is None
            and (lowest := np.nanmin(loss.value, initial=np.inf)) < _start(loss)
        ]
        level = rounded_up(float(max(best))) if best else -inf
        reached = [_first_passage(loss, level) for loss in losses]
        goal = Goal(f"training loss {level:g}", False) if best else None
    return Trials(
        [
            Trial(varied, run.numbers, failure_of(run.numbers), time, updates)
            for varied, run, (time, updates) in zip(varied_of(runs), runs, reached, strict=True)
        ],
        goal,
    )


def failure_of(summary: TrainingSummary) -> str | None:
    """Why a run learnt nothing: "diverged" or "at chance"; None where it did."""
    if summary.status == "diverged":
        return "diverged"
    return "at chance" if is_at_chance(summary) else None


def _start(loss: Series) -> float:
    return LEARNT * float(loss.value[0]) if len(loss) else -inf


def _first_passage(loss: Series, level: float) -> tuple[float | None, int | None]:
    there = np.flatnonzero(loss.value <= level)
    if not len(there):
        return None, None
    return float(loss.virtual_time[there[0]]), int(loss.step[there[0]])


def rounded_up(value: float) -> float:
    """Return the least value with two digits, or the next one, that is no lower."""
    if value <= 0:
        return value
    power = floor(log10(value)) - 1
    digits = ceil(value / 10.0**power)
    candidates = (float(f"{digits + more}e{power}") for more in range(3))
    return next(level for level in candidates if level >= value)


def compare(trials: Trials) -> str | None:
    """Say which design is best, by how much, and where it stops paying.

    Of one design there is something to say where it was to reach a target with several seeds.
    """
    computed = [trial for trial in trials.runs if trial.summary.final_loss is not None]
    trials = with_fewest_arguments(replace(trials, runs=computed) if computed else trials)
    if len(by_design(trials)) < 2:
        return _reached(trials)
    return " ".join(filter(None, [_fastest(trials), _lowest(trials), _failing(trials)])) or None


def _reached(trials: Trials) -> str | None:
    """Say when seeds of one design reach their target, and within which time others will."""
    if trials.goal is None or not trials.goal.is_target or len(trials.runs) < 2:
        return None
    median = median_of(trials.runs, lambda trial: trial.time)
    goal = _capitalised(trials.goal.text)
    if not isfinite(median):
        return f"{goal} is reached by less than half of the seeds."
    return f"{goal} is reached after {seconds_or_never(median)} ({_within(trials.runs)})."


def _within(seeds: Sequence[Trial]) -> str:
    """Return "80 % of seeds within 37 to 46 s"; a run that never gets there is later than all."""
    return seeds_within(spread([in_order(trial.time) for trial in seeds]), seconds_or_never)


def _fastest(trials: Trials) -> str:
    """Say which design is soonest at the goal; where nothing was computed, which does most."""
    designs = by_design(trials)
    if trials.goal is None:
        if any(trial.summary.final_loss is not None for trial in trials.runs):
            return ""
        costs = {name: median_of(seeds, _seconds_an_example) for name, seeds in designs.items()}
        if not any(map(isfinite, costs.values())):
            return ""
        best = "Highest throughput with"
        return comparisons_of_best(designs, costs, best, lambda cost: f"{1 / cost:,.0f} examples/s")
    goal = _capitalised(trials.goal.text)
    if not trials.goal.is_target:
        goal += " (the lowest loss that every learning run reaches)"
    costs = {name: median_of(seeds, lambda trial: trial.time) for name, seeds in designs.items()}
    if not any(map(isfinite, costs.values())):
        return f"{goal} is never reached."
    return comparisons_of_best(
        designs,
        costs,
        f"{goal} is reached soonest with",
        seconds_or_never,
        _within,
    )


def _seconds_an_example(trial: Trial) -> float | None:
    rate = trial.summary.examples_per_second
    return 1 / rate if rate else None


def _lowest(trials: Trials) -> str:
    if trials.goal is None or trials.goal.is_target:
        return ""
    designs = by_design(trials)
    losses = {
        name: median_of(seeds, lambda t: t.summary.final_loss) for name, seeds in designs.items()
    }
    best = min(losses, key=lambda name: losses[name])
    if not isfinite(losses[best]):
        return ""
    middle = sorted(designs[best], key=lambda trial: in_order(trial.summary.final_loss))
    shown = middle[(len(middle) - 1) // 2].summary
    took = format_duration(shown.virtual_time)
    return f"Lowest at the end: {design_name(best)}, {final_quality(shown)} after {took}."


def _failing(trials: Trials) -> str:
    """Say which algorithms do not learn, where, and which others do there."""
    failed = sum(trial.failure is not None for trial in trials.runs)
    if not failed:
        return ""
    count = f"{failed:,} of {len(trials.runs):,} runs"
    learns: dict[Any, set[Any]] = {}  # by algorithm, what else makes a design
    fails: dict[Any, list[Any]] = {}
    for design, seeds in by_design(trials).items():
        algorithm = dict(design).get("algorithm")
        rest = design_of(dict(design), "algorithm")
        if 2 * sum(trial.failure is not None for trial in seeds) > len(seeds):
            fails.setdefault(algorithm, []).append(rest)
        else:
            learns.setdefault(algorithm, set()).add(rest)
    parts = []
    for algorithm, rests in fails.items():
        others = [
            str(other) for other in learns if other != algorithm and learns[other] >= {*rests}
        ]
        verb = "does" if len(others) == 1 else "do"
        where = f", where {_in_words(others, 'and')} {verb}" if others else ""
        subject = "Nothing is learnt" if algorithm is None else f"{algorithm} does not learn"
        parts.append(f"{subject}{_places(rests)}{where}")
    return f"{'; '.join(parts)} ({count})." if parts else f"{count} do not learn."


def _places(designs: Sequence[Any]) -> str:
    """Return " with 16 or 32 workers" for designs of one algorithm."""
    if not any(designs):
        return ""
    if all(len(design) == 1 and design[0][0] == "workers" for design in designs):
        return f" with {_in_words([f'{design[0][1]:,}' for design in designs], 'or')} workers"
    if len(designs) > NAMED:
        return f" in {len(designs):,} designs"
    return f" with {_in_words(map(design_name, designs), 'or')}"


def _in_words(words: Iterable[str], conjunction: str) -> str:
    *first, last = words
    return f"{', '.join(first)} {conjunction} {last}" if first else last


def _capitalised(text: str) -> str:
    return text[0].upper() + text[1:]


def quantities(trials: Trials) -> list[Quantity]:
    """Return what is drawn of training runs against what they vary."""
    to_goal = []
    if trials.goal is not None:
        text, missing = trials.goal.text, "never get there"
        to_goal = [
            Quantity("time_to_goal", f"Time to {text}", lambda trial: trial.time, "s", missing),
            Quantity(
                "updates_to_goal",
                f"Updates to {text}",
                lambda trial: trial.updates,
                "updates",
                missing,
            ),
        ]
    return [
        Quantity(
            "final_loss",
            "Final training loss",
            lambda trial: None if trial.failure == "diverged" else trial.summary.final_loss,
            "training loss",
            "learn nothing",
        ),
        *to_goal,
        Quantity(
            "throughput",
            "Throughput",
            lambda trial: trial.summary.examples_per_second,
            "examples/s",
            marks_failures=False,
        ),
        Quantity(
            "energy",
            "Energy of the run",
            lambda trial: trial.summary.energy,
            "J",
            marks_failures=False,
        ),
    ]
