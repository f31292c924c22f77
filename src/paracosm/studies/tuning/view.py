"""What is shown of tunings: the answer; of relaxations under faults, the landscape of trials."""

from __future__ import annotations

import csv
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paracosm.errors import InputError
from paracosm.factory import describe_error
from paracosm.files import read_bytes
from paracosm.results import TuningSummary
from paracosm.results.chart import Axis, Chart, Curve, Dots, Floats, Mark, Sections
from paracosm.results.charts import WIDE, ranges
from paracosm.results.view import Figure, Run, Table, View, figure, joined
from paracosm.units import format_between, format_duration

LABELS: Mapping[str, str] = {
    "alpha": "alpha: growth of the residual put down to a fault",
    "omega": "omega: time between checkpoints (s)",
    "relaxation": "relaxation factor",
}
COMPARED = {"best": "best", "no checkpoints": "without checkpoints"} | {
    name: f"{name.title()}'s interval" for name in ("young", "daly")
}
CLASSES: Mapping[str, tuple[float, int]] = {
    "within 1 % of the best": (0.01, 2),
    "1 to 10 % longer": (0.1, 5),
    "10 to 100 % longer": (1.0, 4),
    "longer": (np.inf, 1),
}
"""Trials on the map -> how much longer than the best they take at most, and their colour."""

Trials = Mapping[str, Floats]
"""The columns of the trials."""


def _tuned(name: str, value: float | str) -> str:
    """Return a value of a tuned parameter with its unit: omega is a duration."""
    if isinstance(value, str):
        return value
    return format_duration(value) if name == "omega" else f"{value:.6g}"


def sentence(summary: TuningSummary) -> str:
    """Say which values are best, and what a run comes to with them."""
    values = ", ".join(f"{name}={_tuned(name, summary.best[name])}" for name in summary.space)
    trials, name = f"{summary.trials:,} trials", summary.objective
    searched = summary.best["in_search"][name]
    best = "Interrupted, not validated: best" if summary.status == "interrupted" else "Best"
    if name == "time_over_fault_free":
        ratio = searched["median"]
        return f"{best} of {trials}: {values}, {ratio:.3g} times the time without faults."
    fresh = {key: _reached(numbers[name]) for key, numbers in summary.validation.items()}
    if summary.answer == "given":
        return (
            f"The study as given is the best: with fresh seeds {name} {fresh['given']}, and "
            f"{fresh['best']} with the best of {trials}: {values}."
        )
    if not fresh:
        return f"{best} of {trials}: {values}; {name} {_reached(searched)}."
    as_given = f", {fresh['given']} as given" if "given" in fresh else ""
    return f"{best} of {trials}: {values}; with fresh seeds {name} {fresh['best']}{as_given}."


def _reached(number: float | None) -> str:
    return f"{number:.4g}" if number is not None and math.isfinite(number) else "not reached"


def _best(summary: TuningSummary) -> str:
    return ", ".join(f"{name} {_tuned(name, summary.best[name])}" for name in summary.space)


def _near(summary: TuningSummary) -> str:
    return ", ".join(
        f"{name} {_tuned(name, low)} to {_tuned(name, high)}"
        for name, (low, high) in (summary.near_best or {}).items()
        if low < high
    )


def _first_to_last(seeds: Sequence[int]) -> str:
    first, last = seeds
    return f"{first:,} to {last:,}" if first < last else f"{first:,}"


FIGURES: Mapping[str, Figure] = {
    "Best": _best,
    "Policy": lambda summary: (policy := summary.best.get("checkpoint")) and f'"{policy}"',
    "Within 1 % of it": lambda summary: _near(summary) or None,
    "Fresh seeds": figure("fresh_seeds", _first_to_last),
    "Trials": figure("trials", "n"),
    "Seeds": figure("seeds", _first_to_last),
    "Without faults": figure("fault_free_time.median", "s"),
}


def _tables(summary: TuningSummary) -> list[Table]:
    if summary.fault_free_time is None:
        return []
    intervals = {"best": summary.best.get("omega"), **(summary.suggested_intervals or {})}
    rows = tuple(
        (
            COMPARED[name],
            "" if (interval := intervals.get(name)) is None else format_duration(interval),
            *format_between(
                ratio["lower_quartile"], ratio["median"], ratio["upper_quartile"], "{:.3f}".format
            ),
            format_duration(found["time"]["median"]),
            f"{found['failures']:.0%}",
        )
        for name, found in summary.validation.items()
        if None not in (ratio := found["time_over_fault_free"]).values()
    )
    header = (
        *("with fresh seeds", "omega", "time / without faults"),
        *("quartiles", "time", "not converged"),
    )
    return [Table("With fresh seeds", header, rows)]


def sections(runs: Sequence[Run]) -> Sections:
    """Return the landscape of one tuning: its first two parameters, and each alone."""
    summary = runs[0].numbers
    if len(runs) > 1 or not isinstance(summary, TuningSummary) or not summary.fault_free_time:
        return {}
    trials = _trials(runs[0], summary)
    if trials is None:
        return {}
    names = list(summary.space)
    charts = [_map(summary, trials, *names[:2])] if len(names) > 1 else []
    return {"The landscape": [*charts, *(_slice(summary, trials, name) for name in names)]}


_MEASURED = ("trial", "failures", "time_over_fault_free", "lower_quartile", "upper_quartile")


def _trials(run: Run, summary: TuningSummary) -> Trials | None:
    file = run.path / "trials.csv"
    if not file.is_file():
        return None
    try:
        rows = list(csv.DictReader(read_bytes(file).decode().splitlines(), strict=True))
        names = (*_MEASURED, *summary.space)
        return {name: np.array([float(row[name]) for row in rows]) for name in names}
    except KeyError as error:
        raise InputError(f"{file}: damaged: it has no column {error}") from None
    except (csv.Error, TypeError, ValueError) as error:
        raise InputError(f"{file}: damaged: {describe_error(error)}") from None


def _axis(summary: TuningSummary, name: str) -> Axis:
    low, high = summary.space[name]
    log = high >= WIDE * low
    margin = (high / low) ** 0.04 if log else 0.04 * (high - low)
    limits = (low / margin, high * margin) if log else (low - margin, high + margin)
    return Axis(LABELS.get(name, name), log=log, switch=name, limits=limits)


def _map(summary: TuningSummary, trials: Trials, first: str, second: str) -> Chart:
    time, failed = trials["time_over_fault_free"], trials["failures"] > 0.5
    longer = time / time[~failed].min(initial=np.inf) - 1
    marks: list[Mark] = []
    least = -np.inf
    for series, (most, color) in CLASSES.items():
        chosen = ~failed & (longer > least) & (longer <= most)
        least = most
        marks += _dots(trials, chosen, (first, second), series, color)
    marks += _dots(trials, failed, (first, second), "most runs did not converge", 3)
    best = trials["trial"] == summary.best["trial"]
    marks += _dots(trials, best, (first, second), "best", 1)
    title = f"Time to tolerance over {first} and {second}"
    axes = _axis(summary, first), _axis(summary, second)
    return Chart("landscape", title, *axes, tuple(marks), height=400)


def _slice(summary: TuningSummary, trials: Trials, name: str) -> Chart:
    failed = trials["failures"] > 0.5
    ended = ~failed & np.isfinite(trials["upper_quartile"])
    x, low, high = (trials[column][ended] for column in (name, "lower_quartile", "upper_quartile"))
    places = (name, "time_over_fault_free")
    marks: list[Mark] = []
    if len(x):
        marks.append(Curve(*ranges(x, low, high), 0, "quartiles", faint=True))
    marks += _dots(trials, ~failed, places, "median", 0)
    top, bottom = float(np.max(high, initial=1.0)), float(np.min(low, initial=1.0))
    at_top = {**trials, "time_over_fault_free": np.full(len(failed), top)}
    marks += _dots(at_top, failed, places, "most runs did not converge", 3)
    marks += _dots(trials, trials["trial"] == summary.best["trial"], places, "best", 1)
    if name == "omega":
        for color, (whose, interval) in enumerate(
            (summary.suggested_intervals or {}).items(), start=4
        ):
            if interval is not None:
                ends = np.full(2, float(interval)), np.array([bottom, top])
                marks.append(Curve(*ends, 0, COMPARED[whose], color=color))
    y = Axis("multiple of the time without faults", log=top >= WIDE * bottom, switch="time")
    return Chart(name, f"Time to tolerance over {name}", _axis(summary, name), y, tuple(marks))


def _dots(
    trials: Trials, chosen: Any, places: tuple[str, str], series: str, color: int
) -> list[Mark]:
    if not chosen.any():
        return []
    x, y = (trials[name][chosen] for name in places)
    labels = tuple(
        f"trial {trial:.0f}: {', '.join(f'{name} {trials[name][row]:.4g}' for name in places)}, "
        f"{ratio:.4g} times as long as without faults"
        for row, trial, ratio in zip(
            np.flatnonzero(chosen).tolist(),
            trials["trial"][chosen].tolist(),
            trials["time_over_fault_free"][chosen].tolist(),
            strict=True,
        )
    )
    symbol: Any = {"best": "diamond", "most runs did not converge": "cross"}.get(series, "dot")
    return [Dots(x, y, labels, 0, series, symbol, color)]


def _subject(known: Mapping[str, Any]) -> str | None:
    """Return the problem, which version 0.1 has among the arguments of the tuning."""
    study = known.get("study")
    arguments = study.get("relax") if isinstance(study, Mapping) else known
    problem = arguments.get("problem") if isinstance(arguments, Mapping) else None
    return None if problem is None else str(problem)


def _why_failed(summary: TuningSummary) -> str:
    if summary.fault_free_time is not None:
        return "No trial's median run converged: widen the ranges."
    return f"The median run did not come to a {summary.objective}: widen the ranges."


VIEW = View(
    figures=FIGURES,
    sections=sections,
    subject=_subject,
    name=lambda known: f"tuning of {joined(known['space'])}" if known.get("space") else None,
    remarks=lambda summary: {f"remark {n}": r for n, r in enumerate(summary.remarks, start=1)},
    tables=_tables,
    endings={"failed": _why_failed},
)
