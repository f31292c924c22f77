"""Several runs beside each other: what they vary, and which design is best by a cost."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from math import inf, isfinite
from statistics import median
from typing import Any

from paracosm.results.view import Run, Trial, Trials, counted

PAYS = 1.1  # times as fast as with fewer workers, below which more of them do not pay


def scalar_arguments(run: Run) -> dict[str, Any]:
    """Return the arguments of a run, including the seed; values that are not scalars as texts."""
    arguments = {"seed": run.study.get("seed"), **run.arguments}
    return {name: _scalar(value) for name, value in arguments.items() if value is not None}


def _scalar(value: Any) -> str | int | float:
    if isinstance(value, list):
        return "; ".join(map(str, value)) or "none"
    return value if isinstance(value, str | int | float) else str(value)


FIRST = ("algorithm", "workers")


def differing(arguments: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return each run's arguments that differ between runs, algorithm and workers first."""
    values: dict[str, set[Any]] = {}
    for mapping in arguments:
        for name, value in mapping.items():
            values.setdefault(name, set()).add(value)
    names = [name for name, different in values.items() if len(different) > 1]
    names.sort(key=lambda name: FIRST.index(name) if name in FIRST else len(FIRST))
    return [{name: mapping[name] for name in names if name in mapping} for mapping in arguments]


def design_name(design: Iterable[tuple[str, Any]]) -> str:
    """Return "asgd, 16 workers, lr 0.1"."""
    return ", ".join(argument(name, value) for name, value in design)


NAMES = ("algorithm", "model", "data", "method", "problem", "strategy", "hardware", "stack")
"""Arguments whose values are self-explanatory."""

COUNTED = ("workers", "servers", "processors")
"""Arguments that are numbers of what they are called."""


def argument(name: str, value: Any) -> str:
    """Return "16 workers", "lr 0.1", "asgd"."""
    if name in COUNTED and isinstance(value, int):
        return counted(value, name.removesuffix("s"))
    if name == "what_if":
        return "unchanged" if value == "none" else str(value)
    words = name.replace("_", " ")
    if isinstance(value, bool):
        return words if value else f"no {words}"
    return str(value) if name in NAMES else f"{words} {value}"


def runs_side_by_side(runs: Sequence[Run]) -> Trials:
    """Return runs as trials, with what each varies; those that ended badly say how."""
    return Trials(
        [
            Trial(varied, run.numbers, run.verdict.word if run.verdict.level == "bad" else None)
            for varied, run in zip(varied_of(runs), runs, strict=True)
        ]
    )


def varied_of(runs: Sequence[Run]) -> list[dict[str, Any]]:
    """Return what runs differ in; files say how many workers there are, and examples in a batch."""
    arguments = []
    for run in runs:
        known = {name: run.numbers.get(name) for name in ("workers", "batch")}
        known = {name: value for name, value in known.items() if isinstance(value, int | float)}
        arguments.append(scalar_arguments(run) | known)
    return differing(arguments)


def design_of(varied: Mapping[str, Any], *without: str) -> tuple[tuple[str, Any], ...]:
    """Return what makes a design: what is varied but for the seed, and for some names."""
    return tuple((n, value) for n, value in varied.items() if n not in ("seed", *without))


def by_design(trials: Trials, *without: str) -> dict[tuple[tuple[str, Any], ...], list[Trial]]:
    """Return the trials of each design, seed by seed."""
    designs: dict[tuple[tuple[str, Any], ...], list[Trial]] = {}
    for trial in trials.runs:
        designs.setdefault(design_of(trial.varied, *without), []).append(trial)
    return designs


def with_fewest_arguments(trials: Trials) -> Trials:
    """Return the trials with no more arguments than it takes to tell their designs apart."""
    count = len(by_design(trials))
    names = [name for name in trials.variables if name != "seed"]
    kept = next(
        names[:number]
        for number in range(len(names) + 1)
        if len(by_design(trials, *names[number:])) == count
    )
    runs = [
        replace(trial, varied={n: v for n, v in trial.varied.items() if n in (*kept, "seed")})
        for trial in trials.runs
    ]
    return replace(trials, runs=runs)


def best_sentence(
    trials: Trials,
    begin: str,
    cost: Callable[[Any], float | None],
    write: Callable[[float], str],
) -> str | None:
    """Say which design has the least cost, by how much, and up to how many workers pay.

    Args:
        trials: several.
        begin: how the sentence begins: "An iteration is shortest with".
        cost: of a summary; None where the run failed.
        write: writes a cost.
    """
    trials = with_fewest_arguments(trials)
    designs = by_design(trials)
    costs = {
        name: median_of(seeds, lambda trial: None if trial.failure else cost(trial.summary))
        for name, seeds in designs.items()
    }
    if len(designs) < 2 or not any(map(isfinite, costs.values())):
        return None
    return comparisons_of_best(designs, costs, begin, write)


def comparisons_of_best(
    designs: Mapping[Any, Sequence[Trial]],
    costs: Mapping[Any, float],
    begin: str,
    write: Callable[[float], str],
    within: Callable[[Sequence[Trial]], str] | None = None,
) -> str:
    """Return "WHAT 8 workers: 12 s, 3 times as fast as 1 worker. More than 8 do not pay.".

    `within` says of several seeds of a design where others are expected, if that is known.
    """
    best = min(costs, key=lambda name: costs[name])
    count = len(designs[best])
    further = "" if within is None else f", {within(designs[best])}"
    of_seeds = f" (median of {count} seeds{further})" if count > 1 else ""
    first = f"{begin} {design_name(best)}: {write(costs[best])}{of_seeds}"
    return f"{first}{_compared(best, costs)}.{_paying(costs)}"


def _compared(best: Any, costs: Mapping[Any, float]) -> str:
    cost = costs[best]
    if cost == 0:
        return ""

    def ratio(others: Mapping[Any, float]) -> tuple[float, Any] | None:
        known = [(value, name) for name, value in others.items() if isfinite(value)]
        return min(known, key=lambda pair: pair[0]) if known else None

    comparisons = []
    design = dict(best)
    if "workers" in design:
        fewest = min(dict(name)["workers"] for name in costs)
        alone = ratio({n: c for n, c in costs.items() if dict(n)["workers"] == fewest})
        if alone is not None and design["workers"] != fewest:
            comparisons.append(_faster(alone[0] / cost, argument("workers", fewest)))
    if "algorithm" in design:
        others = {n: c for n, c in costs.items() if dict(n).get("algorithm") != design["algorithm"]}
        if (other := ratio(others)) is not None:
            comparisons.append(_faster(other[0] / cost, design_name(other[1])))
    rest = {name: cost for name, cost in costs.items() if name != best}
    if not comparisons and (other := ratio(rest)) is not None:
        comparisons.append(_faster(other[0] / cost, design_name(other[1])))
    return f", {' and '.join(comparisons)}" if comparisons else ""


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


def median_of(trials: Sequence[Trial], value: Callable[[Trial], float | None]) -> float:
    """Return the median over seeds; a run without a value never gets one."""
    return median(in_order(value(trial)) for trial in trials)


def in_order(value: float | None) -> float:
    return inf if value is None or not isfinite(value) else value
