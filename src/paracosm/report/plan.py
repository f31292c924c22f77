"""Texts and charts of plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paracosm.report.answers import answer
from paracosm.report.chart import extremes, shown_sections, time_unit
from paracosm.report.plan_words import (
    METRICS,
    cost_text,
    design_name,
    interval_of,
    seconds_or_never,
    target_name,
)
from paracosm.results import PlannedDesign, PlanSummary, TunedWorkers
from paracosm.results.chart import Axis, Chart, Curve, Dots, Floats, Level, Section
from paracosm.results.view import Figure, Run, Table, View, figure
from paracosm.units import format_duration

CURVES = 6  # designs whose metric is drawn against time

BASELINES = {
    "constant_updates": "updates of one worker",
    "goodput": "Pollux's goodput",
    "critical_batch": "McCandlish et al.",
}
"""Other predictors of the time to the target, by their names in the summary."""


def _short(summary: PlanSummary, index: int | None) -> str | None:
    if index is None:
        return None
    design = summary.designs[index]
    return (
        f"{design_name(design)} ({seconds_or_never(design.time.median)}, {_cost(summary, design)})"
    )


FIGURES: Mapping[str, Figure] = {
    "Target": figure("target", str),
    "Fastest": lambda summary: _short(summary, summary.fastest),
    "Cheapest": lambda summary: _short(summary, summary.cheapest),
    "Designs": lambda summary: f"{len(summary.designs):,}" if summary.designs else None,
    "Seeds": figure("seeds", "{:,}".format),
    "Runs": figure("runs", "{:,}".format),
    "Updates made": figure("updates_made", "{:,}".format),
    "Wall time": figure("wall_time", format_duration),
}


def _tables(summary: PlanSummary) -> list[Table]:
    if not summary.designs:
        return []
    tables = [_designs_table(summary), _dropped_table(summary), _tuning_table(summary)]
    return [table for table in tables if table.rows]


def _designs_table(summary: PlanSummary) -> Table:
    """Return designs that were run with all seeds, best first, with throughput and updates.

    How many times as fast, and at how many times the cost, is by pairs of runs with the same seed,
    and in comparison to the reference.
    """
    names = [
        name
        for name in BASELINES
        if any((d.baselines or {}).get(name) for d in _fully_run(summary))
    ]
    fails = any(each.effective is not None for each in _fully_run(summary))
    header = (
        *("design", "time", "80 % of seeds", "cost", "times as fast", "times the cost"),
        *("updates", "updates/s", "reached"),
        *("staleness", "efficient", *(BASELINES[name] for name in names)),
        *(["effective time"] if fails else []),
    )
    rows = tuple(
        (
            design_name(each),
            *interval_of(each.time),
            _cost(summary, each),
            _plain(each.speedup),
            _plain(each.relative_cost),
            "never" if each.updates.median is None else f"{each.updates.median:,.0f}",
            _plain(each.updates_per_second),
            f"{each.reached:.0%}",
            _plain(each.staleness),
            "yes" if each.is_efficient else "",
            *(seconds_or_never((each.baselines or {}).get(name)) for name in names),
            *(["" if each.effective is None else f"{each.effective:.1%}"] if fails else []),
        )
        for each in _fully_run(summary)
    )
    return Table(f"To {target_name(summary)}", header, rows)


def _dropped_table(summary: PlanSummary) -> Table:
    """Return designs that were not run with all seeds, with the stability bound under delay."""
    rows = tuple(
        (
            design_name(each),
            each.verdict,
            _plain(each.best),
            _plain(each.staleness),
            _plain(each.steepness),
            _plain(each.steepest),
            each.why,
        )
        for each in summary.designs
        if each.verdict != "reached"
    )
    header = ("design", "verdict", "best", "staleness", "lr x curvature", "stable below", "why")
    return Table("Dropped", header, rows)


def _tuning_table(summary: PlanSummary) -> Table:
    rows = tuple(
        (
            f"{each.workers:,}",
            *_best_of(summary, each),
            seconds_or_never(each.tuning_time),
            cost_text(summary, each.tuning_cost),
        )
        for each in summary.by_workers
    )
    header = ("workers", "best design", "time", "time to find it", "cost to find it")
    return Table("By workers", header, rows)


def _best_of(summary: PlanSummary, tuned: TunedWorkers) -> tuple[str, str]:
    """Return the best design for a number of workers and its time, or why there is none."""
    if tuned.design is not None:
        design = summary.designs[tuned.design]
        return design_name(design), seconds_or_never(design.time.median)
    verdicts = {each.verdict for each in summary.designs if each.workers == tuned.workers}
    return f"none: {', '.join(sorted(verdicts))}", ""


def _fully_run(summary: PlanSummary) -> list[PlannedDesign]:
    """Return designs that were run with all seeds, the fastest first."""
    kept = [each for each in summary.designs if each.verdict == "reached"]
    return sorted(kept, key=lambda each: -(each.speedup or 0.0))


def _plain(value: float | None) -> str:
    return "" if value is None else f"{value:.3g}"


def _cost(summary: PlanSummary, design: PlannedDesign) -> str:
    return "" if design.cost is None else cost_text(summary, design.cost)


def _remarks(summary: PlanSummary) -> dict[str, str]:
    if not summary.designs:
        return {}
    counts: dict[str, int] = {}
    for each in summary.designs:
        counts[each.verdict] = counts.get(each.verdict, 0) + 1
    said = {"designs": ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items())}
    if summary.what_if:
        said["what if"] = "; ".join(summary.what_if)
    if summary.unchanged is not None:
        said["unchanged"] = answer(summary.unchanged)
    if summary.curvature is not None:
        said["curvature"] = f"at most {summary.curvature:.3g} where it was computed"
    return said


def _name(known: Mapping[str, Any]) -> str | None:
    model, target = known.get("model"), known.get("target")
    return None if model is None or target is None else f"{model}, {target}"


def _subject(known: Mapping[str, Any]) -> str | None:
    model, data = known.get("model"), known.get("data")
    return None if model is None or data is None else f"{model} on {data}"


Plan = tuple[Run, PlanSummary]


def sections(runs: Sequence[Run]) -> list[Section]:
    """Return the charts of plans."""
    plans = [
        (run, run.numbers)
        for run in runs
        if isinstance(run.numbers, PlanSummary) and run.numbers.designs
    ]
    return shown_sections(
        [
            ("Time and cost", [_frontier(plans), _factors(plans)] if plans else []),
            ("Convergence", [_curves(run, plan, len(plans)) for run, plan in plans]),
        ]
    )


def _frontier(plans: Sequence[Plan]) -> Chart:
    """Return cost against time of designs, and their Pareto frontier."""
    marks: list[Curve | Dots] = []
    factor, unit = time_unit(max(_longest(plan) for _, plan in plans))
    for run, plan in plans:
        designs = [each for each in _fully_run(plan) if each.time.median and each.cost]
        if efficient := [each for each in designs if each.is_efficient]:
            marks.append(
                Curve(_times(efficient) * factor, _costs(efficient), run.index, "frontier")
            )
        for algorithm, color in _colors(designs, len(plans)).items():
            own = [each for each in designs if each.algorithm == algorithm]
            labels = tuple(
                f"{design_name(each)}: {seconds_or_never(each.time.median)}, {_cost(plan, each)}"
                for each in own
            )
            x, y = _times(own) * factor, _costs(own)
            marks.append(Dots(x, y, labels, run.index, algorithm, color=color))
    first = plans[0][1]
    money = first.currency or ("money" if first.price else "worker-hours")
    return Chart(
        name="frontier",
        title=f"Cost against time to {target_name(first)}",
        x=Axis(f"time to target ({unit})", switch="time"),
        y=Axis(f"cost ({money})", switch="cost"),
        marks=tuple(marks),
        caption="Medians over seeds; compared seed by seed, no design is both faster and cheaper "
        "than one on the line.",
    )


def _factors(plans: Sequence[Plan]) -> Chart:
    """Return throughput against updates: the two factors of the time."""
    marks: list[Dots] = []
    for run, plan in plans:
        designs = [
            each for each in _fully_run(plan) if each.updates.median and each.updates_per_second
        ]
        for algorithm, color in _colors(designs, len(plans)).items():
            own = [each for each in designs if each.algorithm == algorithm]
            x = np.array([each.updates.median for each in own], np.float64)
            y = np.array([each.updates_per_second for each in own], np.float64)
            labels = tuple(map(design_name, own))
            marks.append(Dots(x, y, labels, run.index, algorithm, color=color))
    return Chart(
        name="throughput_updates",
        title="Throughput against updates to the target",
        x=Axis("updates to target", switch="updates"),
        y=Axis("updates/s", switch="throughput"),
        marks=tuple(marks),
        caption="The time to the target is updates divided by throughput.",
    )


def _curves(run: Run, plan: PlanSummary, of: int) -> Chart:
    metric, _, bound = plan.target.split()
    values = run.series(metric)
    best = [plan.designs[each.design] for each in plan.by_workers if each.design is not None]
    if len(best) > CURVES:
        best = [best[place] for place in np.linspace(0, len(best) - 1, CURVES).round().astype(int)]
    marks: list[Curve | Level] = []
    end = 0.0
    factor, unit = time_unit(_longest(plan))
    for place, each in enumerate(best):
        own = values.where(values.node == design_name(each))
        if len(own):
            kept = extremes(own.value)
            x = own.virtual_time[kept] * factor
            end = max(end, float(x.max()))
            marks.append(Curve(x, own.value[kept], run.index, design_name(each), color=place))
    marks.append(Level(float(bound), 0.0, end, plan.target, "target"))
    return Chart(
        name="metric_time" if of == 1 else f"metric_time_{run.index}",
        title=f"{METRICS[metric].capitalize()} against virtual time, first seed",
        x=Axis(f"virtual time ({unit})", switch="time"),
        y=Axis(METRICS[metric], log=metric != "accuracy", switch=metric),
        marks=tuple(marks),
    )


def _colors(designs: Sequence[PlannedDesign], plans: int) -> dict[str, int | None]:
    names = dict.fromkeys(each.algorithm for each in designs)
    return {name: place if plans == 1 else None for place, name in enumerate(names)}


def _longest(plan: PlanSummary) -> float:
    return max((each.time.median or 0.0 for each in plan.designs), default=0.0)


def _times(designs: Sequence[PlannedDesign]) -> Floats:
    return np.array([each.time.median for each in designs], np.float64)


def _costs(designs: Sequence[PlannedDesign]) -> Floats:
    return np.array([each.cost for each in designs], np.float64)


VIEW = View(
    figures=FIGURES,
    sections=sections,
    subject=_subject,
    name=_name,
    tables=_tables,
    remarks=_remarks,
    endings={"not reached": answer},
)
