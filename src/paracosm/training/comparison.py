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
from paracosm.results.view import Goal, Quantity, Run, Trial, Trials
from paracosm.training.sentence import final_quality, is_at_chance
from paracosm.units import format_duration

if TYPE_CHECKING:
    from paracosm.results.metrics import Series

LEARNT = 0.9  # of the first loss
NAMED = 3  # designs named in a sentence


def trials_of(runs: Sequence[Run]) -> Trials:
    """Compare runs: by their common target, else by the lowest loss that all reach that learn."""
    found = [
        Trial(varied, run.numbers, failure_of(run.numbers))
        for varied, run in zip(varied_of(runs), runs, strict=True)
        if isinstance(run.numbers, TrainingSummary)
    ]
    targets = {trial.summary.target for trial in found}
    target = next(iter(targets)) if len(targets) == 1 else None
    if target is not None:
        reached = [(each.summary.reached_at, each.summary.reached_updates) for each in found]
        goal = Goal(target, True)
    else:
        losses = [run.series("loss") for run in runs]
        best = [
            float(np.nanmin(loss.value))
            for loss, trial in zip(losses, found, strict=True)
            if trial.failure is None and np.nanmin(loss.value, initial=np.inf) < _start(loss)
        ]
        if not best:
            return Trials(found, None)
        level = rounded_up(max(best))
        reached = [_first_passage(loss, level) for loss in losses]
        goal = Goal(f"training loss {level:g}", False)
    return Trials(
        [
            replace(trial, time=time, updates=updates)
            for trial, (time, updates) in zip(found, reached, strict=True)
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
    return next(each for each in candidates if each >= value)


def compare(trials: Trials) -> str | None:
    """Say which design is best, by how much, and where it stops paying; None for one design."""
    computed = [each for each in trials.runs if each.summary.final_loss is not None]
    trials = with_fewest_arguments(replace(trials, runs=computed) if computed else trials)
    if len(by_design(trials)) < 2:
        return None
    parts = [_fastest(trials), _lowest(trials), *_failing(trials)]
    return " ".join(part for part in parts if part) or None


def _fastest(trials: Trials) -> str:
    """Say which design is soonest at the goal; where nothing was computed, which does most."""
    designs = by_design(trials)
    if trials.goal is None and any(each.summary.final_loss is not None for each in trials.runs):
        return ""
    if trials.goal is None:
        costs = {name: median_of(each, _seconds_an_example) for name, each in designs.items()}
    else:
        costs = {name: median_of(each, lambda trial: trial.time) for name, each in designs.items()}
    if not any(map(isfinite, costs.values())):
        return "" if trials.goal is None else f"{_capitalised(trials.goal.text)} is never reached."
    if trials.goal is None:
        return comparisons_of_best(
            designs, costs, "Highest throughput with", lambda cost: f"{1 / cost:,.0f} examples/s"
        )
    return comparisons_of_best(
        *(designs, costs, f"{_capitalised(trials.goal.text)} is reached soonest with"),
        lambda cost: format_duration(float(f"{cost:.3g}")),
    )


def _seconds_an_example(trial: Trial) -> float | None:
    rate = trial.summary.examples_per_second
    return 1 / rate if rate else None


def _lowest(trials: Trials) -> str:
    if trials.goal is None or trials.goal.is_target:
        return ""
    designs = by_design(trials)
    losses = {
        name: median_of(each, lambda t: t.summary.final_loss) for name, each in designs.items()
    }
    best = min(losses, key=lambda name: losses[name])
    if not isfinite(losses[best]):
        return ""
    middle = sorted(designs[best], key=lambda trial: in_order(trial.summary.final_loss))
    shown = middle[(len(middle) - 1) // 2].summary
    took = format_duration(shown.virtual_time)
    return f"Lowest at the end: {design_name(best)}, {final_quality(shown)} after {took}."


def _failing(trials: Trials) -> list[str]:
    failed = [trial for trial in trials.runs if trial.failure is not None]
    if not failed:
        return []
    designs = by_design(trials)
    lost = {
        name
        for name, each in designs.items()
        if 2 * sum(t.failure is not None for t in each) > len(each)
    }
    count = f"{len(failed):,} of {len(trials.runs):,} runs"
    if not lost:
        return [f"{count} do not learn."]
    said = []
    algorithms = dict.fromkeys(dict(name).get("algorithm") for name in lost)
    for algorithm in algorithms:
        own = [name for name in lost if dict(name).get("algorithm") == algorithm]
        rests = {design_of(dict(name), "algorithm") for name in own}
        instead = [
            other
            for other in dict.fromkeys(dict(name).get("algorithm") for name in designs)
            if other != algorithm
            and rests
            <= {
                design_of(dict(n), "algorithm")
                for n in designs.keys() - lost
                if dict(n).get("algorithm") == other
            }
        ]
        where = _places([name for name in designs if name in own])
        who = "Nothing is learnt" if algorithm is None else f"{algorithm} does not learn"
        others = (
            f", where {_joined_words(map(str, instead), 'and')} "
            f"{'does' if len(instead) == 1 else 'do'}"
            if instead
            else ""
        )
        said.append(f"{who}{where}{others}")
    return [f"{'; '.join(said)} ({count})."]


def _places(designs: Sequence[Any]) -> str:
    """Return " with 16 or 32 workers" for designs of one algorithm."""
    rests = [design_of(dict(name), "algorithm") for name in designs]
    if not any(rests):
        return ""
    if all(len(rest) == 1 and rest[0][0] == "workers" for rest in rests):
        return f" with {_joined_words([f'{rest[0][1]:,}' for rest in rests], 'or')} workers"
    if len(rests) > NAMED:
        return f" in {len(rests):,} designs"
    return f" with {_joined_words(map(design_name, rests), 'or')}"


def _joined_words(words: Iterable[str], joined: str) -> str:
    *first, last = words
    return f"{', '.join(first)} {joined} {last}" if first else last


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
