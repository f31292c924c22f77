"""Several training runs side by side: what they vary, how soon they learn, which is best."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil, floor, inf, isfinite, log10
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.report.train_words import came_to, is_at_chance
from paracosm.report.view import Run, argument, asked_of, design_name, differing
from paracosm.results import TrainingSummary
from paracosm.units import format_duration

if TYPE_CHECKING:
    from paracosm.studies import Series

LEARNT = 0.9  # of the first loss
PAYS = 1.1  # times as fast as with fewer workers, below which more of them do not pay
NAMED = 3  # designs that a sentence names


@dataclass(frozen=True)
class Goal:
    """What the times and updates of several runs are counted to."""

    text: str  # "accuracy >= 0.95", "training loss 0.4"
    is_asked: bool  # whether it is the runs' own target; else a loss that all reach that learn


@dataclass(frozen=True)
class Trial:
    """One of several runs: what it varies, and how soon it got to the goal."""

    varied: Mapping[str, Any]  # by argument, those that the run takes no notice of left out
    summary: TrainingSummary
    time: float | None = None  # virtual seconds to the goal; None where it never came there
    updates: int | None = None  # to the goal

    @property
    def failure(self) -> str | None:
        """Why the run learnt nothing: "diverged" or "at chance"; None where it did."""
        if self.summary.status == "diverged":
            return "diverged"
        return "at chance" if is_at_chance(self.summary) else None


@dataclass(frozen=True)
class Trials:
    """Several runs, in the order of the report, and what their times are counted to."""

    runs: Sequence[Trial]
    goal: Goal | None  # None where no run learnt anything, or nothing was computed

    @property
    def variables(self) -> dict[str, list[Any]]:
        """The arguments that differ, the seed among them, each with its values in order."""
        found: dict[str, dict[Any, None]] = {}
        for trial in self.runs:
            for name, value in trial.varied.items():
                found.setdefault(name, {})[value] = None
        return {name: list(values) for name, values in found.items()}


def trials_of(runs: Sequence[Run]) -> Trials:
    """Compare runs: by their common target, else by the lowest loss that all reach that learn."""
    found = [
        Trial(varied, run.numbers)
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


def varied_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return what runs differ in; a cluster file says how many workers there are."""
    asked = []
    for run in runs:
        workers = run.numbers.get("workers")
        own = {} if workers is None else {"workers": workers}
        asked.append(asked_of(run.folder) | own)
    return differing(asked)


def design_of(varied: Mapping[str, Any], *without: str) -> tuple[tuple[str, Any], ...]:
    """Return what makes a design: what is varied but for the seed, and for some names."""
    return tuple((n, value) for n, value in varied.items() if n not in ("seed", *without))


def by_design(trials: Trials, *without: str) -> dict[tuple[tuple[str, Any], ...], list[Trial]]:
    """Return the trials of each design, seed by seed."""
    found: dict[tuple[tuple[str, Any], ...], list[Trial]] = {}
    for trial in trials.runs:
        found.setdefault(design_of(trial.varied, *without), []).append(trial)
    return found


def sweep_sentence(trials: Trials) -> str | None:
    """Say which design is best, by how much, and where it stops paying; None for one design."""
    computed = [each for each in trials.runs if each.summary.final_loss is not None]
    trials = _told_apart(replace(trials, runs=computed) if computed else trials)
    if len(by_design(trials)) < 2:
        return None
    parts = [_fastest(trials), _lowest(trials), *_failing(trials)]
    return " ".join(part for part in parts if part) or None


def _told_apart(trials: Trials) -> Trials:
    """Return the trials with no more arguments than it takes to tell their designs apart."""
    count = len(by_design(trials))
    names = [name for name in trials.variables if name != "seed"]
    kept = next(
        names[:number]
        for number in range(len(names) + 1)
        if len(by_design(trials, *names[number:])) == count
    )
    runs = [
        replace(each, varied={n: v for n, v in each.varied.items() if n in (*kept, "seed")})
        for each in trials.runs
    ]
    return replace(trials, runs=runs)


def _fastest(trials: Trials) -> str:
    """Say which design is soonest at the goal; where nothing was computed, which does most."""
    designs = by_design(trials)
    if trials.goal is None and any(each.summary.final_loss is not None for each in trials.runs):
        return ""
    if trials.goal is None:
        costs = {name: _median(each, _seconds_an_example) for name, each in designs.items()}
    else:
        costs = {name: _median(each, lambda trial: trial.time) for name, each in designs.items()}
    known = sorted((cost, place) for place, cost in enumerate(costs.values()) if isfinite(cost))
    if not known:
        reached = "" if trials.goal is None else f" {_capital(trials.goal.text)} is never reached."
        return reached.strip()
    names = list(costs)
    cost, place = known[0]
    best = names[place]
    count = len(designs[best])
    of_seeds = f" (median of {count} seeds)" if count > 1 else ""
    if trials.goal is None:
        first = f"Most examples/s with {design_name(best)}: {1 / cost:,.0f}{of_seeds}"
    else:
        goal = _capital(trials.goal.text)
        first = f"{goal} is reached soonest with {design_name(best)}: "
        first += f"{format_duration(float(f'{cost:.3g}'))}{of_seeds}"
    return f"{first}{_compared(best, costs)}.{_paying(costs)}"


def _seconds_an_example(trial: Trial) -> float | None:
    rate = trial.summary.examples_per_second
    return 1 / rate if rate else None


def _compared(best: Any, costs: Mapping[Any, float]) -> str:
    cost = costs[best]

    def ratio(others: Mapping[Any, float]) -> tuple[float, Any] | None:
        known = [(value, name) for name, value in others.items() if isfinite(value)]
        return min(known, key=lambda each: each[0]) if known else None

    said = []
    own = dict(best)
    if "workers" in own:
        fewest = min(dict(name)["workers"] for name in costs)
        alone = ratio({n: c for n, c in costs.items() if dict(n)["workers"] == fewest})
        if alone is not None and own["workers"] != fewest:
            said.append(_faster(alone[0] / cost, argument("workers", fewest)))
    if "algorithm" in own:
        others = {n: c for n, c in costs.items() if dict(n).get("algorithm") != own["algorithm"]}
        if (other := ratio(others)) is not None:
            said.append(_faster(other[0] / cost, design_name(other[1])))
    if not said and (other := ratio({n: c for n, c in costs.items() if n != best})) is not None:
        said.append(_faster(other[0] / cost, design_name(other[1])))
    return f", {' and '.join(said)}" if said else ""


def _faster(ratio: float, other: str) -> str:
    times = f"{ratio:.2g}"
    return f"{'' if times == '1' else f'{times} times '}as fast as {other}"


def _paying(costs: Mapping[Any, float]) -> str:
    by_workers: dict[int, float] = {}
    for name, cost in costs.items():
        if (workers := dict(name).get("workers")) is not None:
            by_workers[workers] = min(cost, by_workers.get(workers, inf))
    numbers = sorted(by_workers)
    if len(numbers) < 2 or not any(map(isfinite, by_workers.values())):
        return ""
    enough = next(
        number
        for number in numbers
        if isfinite(by_workers[number])
        and all(by_workers[number] < PAYS * by_workers[more] for more in numbers if more > number)
    )
    if enough == numbers[-1]:
        return f" More workers pay up to {enough:,}, the most that were tried."
    return f" More than {enough:,} do not pay."


def _lowest(trials: Trials) -> str:
    if trials.goal is None or trials.goal.is_asked:
        return ""
    designs = by_design(trials)
    losses = {name: _median(each, lambda t: t.summary.final_loss) for name, each in designs.items()}
    best = min(losses, key=lambda name: losses[name])
    if not isfinite(losses[best]):
        return ""
    middle = sorted(designs[best], key=lambda trial: _order(trial.summary.final_loss))
    shown = middle[(len(middle) - 1) // 2].summary
    took = format_duration(shown.virtual_time)
    return f"Lowest at the end: {design_name(best)}, {came_to(shown)} after {took}."


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
            f", where {_listed(map(str, instead), 'and')} {'does' if len(instead) == 1 else 'do'}"
            if instead
            else ""
        )
        said.append(f"{who}{where}{others}")
    return [f"{'; '.join(said)} ({count})."]


def _places(designs: Sequence[Any]) -> str:
    """Return " with 16 or 32 workers", of designs of one algorithm."""
    rests = [design_of(dict(name), "algorithm") for name in designs]
    if not any(rests):
        return ""
    if all(len(rest) == 1 and rest[0][0] == "workers" for rest in rests):
        return f" with {_listed([f'{rest[0][1]:,}' for rest in rests], 'or')} workers"
    if len(rests) > NAMED:
        return f" in {len(rests):,} designs"
    return f" with {_listed(map(design_name, rests), 'or')}"


def _listed(words: Iterable[str], joined: str) -> str:
    *first, last = words
    return f"{', '.join(first)} {joined} {last}" if first else last


def _median(trials: Sequence[Trial], value: Callable[[Trial], float | None]) -> float:
    """Return the median over seeds; a run without a value never gets one."""
    return median(_order(value(trial)) for trial in trials)


def _order(value: float | None) -> float:
    return inf if value is None or not isfinite(value) else value


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
