"""What a page shows of plans: the answer, the designs, time against cost, convergence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from math import inf

import numpy as np

from paracosm.price import Priced, cost_text
from paracosm.results import (
    Planned,
    PlannedDesign,
    PlanSummary,
    TunedWorkers,
)
from paracosm.results.chart import Axis, Chart, Curve, Dots, Level, Mark, Sections
from paracosm.results.spread import Spread, seconds_or_never, seeds_within
from paracosm.results.view import (
    Figure,
    Run,
    Table,
    View,
    assumed_values,
    assuming,
    counted,
    figure,
    table,
    template,
)
from paracosm.units import format_between, format_number

SHOWN = 3  # designs whose best values are named where none reached the target
CURVES = 6  # designs whose metric is drawn against time
METRICS = {"loss": "training loss", "test_loss": "test loss", "accuracy": "accuracy"}
BASELINES = {
    "constant_updates": "updates of one worker",
    "goodput": "Pollux's goodput",
    "critical_batch": "McCandlish et al.",
}
"""Other predictors of the time to the target, by their names in the summary."""


def sentence(summary: PlanSummary) -> str:
    """Name the fastest and the cheapest design, or state that none reached the target."""
    target = _target(summary)
    if summary.fastest is None:
        seldom = any(design.reached for design in summary.designs)
        often = " with most of its seeds" if seldom else ""
        return f"No design reaches {target}{often}{_best_values(summary)}"
    best = summary.designs[summary.fastest]
    text = f"{target[0].upper()}{target[1:]} is reached soonest with {_name(best)}: {_time(best)}"
    reference = None if summary.reference is None else summary.designs[summary.reference]
    if reference is not None and reference is not best and best.speedup and best.relative_cost:
        other = "one worker" if reference.workers == 1 else f"{reference.workers:,} workers"
        text += (
            f", {best.speedup:.2g} times as fast as {other} at {best.relative_cost:.2g} times its "
            "cost"
        )
    text += _not_apart(summary, summary.as_fast, "time")
    cheapest = None if summary.cheapest is None else summary.designs[summary.cheapest]
    if cheapest is best:
        text += "; nothing is cheaper"
    elif cheapest is not None and cheapest.cost is not None:
        cost = cost_text(summary, cheapest.cost)
        text += f"; cheapest: {_name(cheapest)}, {_time(cheapest)}, {cost}"
    text += f"{_not_apart(summary, summary.as_cheap, 'cost')}."
    assumed = assuming(assumed_values(summary.durations, ("latency", "bandwidth")))
    return f"{text} {assumed}" if assumed else text


def _name(design: PlannedDesign) -> str:
    """Return "8 workers, ssp(slack=3), lr 0.1"."""
    return f"{counted(design.workers, 'worker')}, {design.algorithm}, lr {format_number(design.lr)}"


def _target(summary: PlanSummary) -> str:
    """Return "test loss 0.1"."""
    metric, _, value = summary.target.split()
    return f"{METRICS.get(metric, metric)} {value}"


def _not_apart(summary: PlanSummary, designs: Sequence[int] | None, quantity: str) -> str:
    """Return " (5 seeds do not tell it apart by cost from 4 workers, asgd, lr 0.1)"."""
    if not designs:
        return ""
    names = [_name(summary.designs[number]) for number in designs]
    if len(names) > SHOWN:
        names = [*names[:SHOWN], f"{len(names) - SHOWN} more"]
    joined = f"{'; '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
    return f" ({summary.seeds} seeds do not tell it apart by {quantity} from {joined})"


def _time(design: PlannedDesign) -> str:
    """Return "41 s (80 % of seeds within 37 to 46 s)"."""
    time = design.time
    if time.median is None or design.seeds < 2 or time.low is None:
        return seconds_or_never(time.median)
    spread = Spread(time.median, time.low, inf if time.high is None else time.high)
    share = "" if design.reached == 1 else f", {design.reached:.0%} of seeds reached it"
    within = seeds_within(spread, seconds_or_never)
    return f"{seconds_or_never(time.median)} ({within}{share})"


def _interval(time: Planned) -> tuple[str, str]:
    """Return the median and the interval of a time to the target as texts."""
    low, median, high = (
        inf if seconds is None else seconds for seconds in (time.low, time.median, time.high)
    )
    return format_between(low, median, high, seconds_or_never)


def _best_values(summary: PlanSummary) -> str:
    """Return ": best 0.12 (4 workers, asgd, lr 0.1), ...; try ..."."""
    known = [design for design in summary.designs if design.best is not None]
    if not known:
        return f" ({summary.status}: no run is done)."
    sign = -1.0 if ">=" in summary.target else 1.0
    known.sort(key=lambda design: sign * (design.best or 0.0))
    values = ", ".join(f"{design.best:.4g} ({_name(design)})" for design in known[:SHOWN])
    return f": best {values}; {_advice(summary, known[0])}."


def _advice(summary: PlanSummary, best: PlannedDesign) -> str:
    verdicts = {design.verdict for design in summary.designs}
    rates = sorted({design.lr for design in summary.designs})
    if summary.status == "interrupted":
        return "the plan was interrupted: the same command resumes it"
    if verdicts <= {"diverged", "learns nothing"}:
        return f"try lower learning rates: --lr {format_number(rates[0] / 10)}"
    hints = [f"--updates {4 * summary.most_updates}"]
    if len(rates) > 1 and best.lr == rates[-1]:
        hints.append(f"higher learning rates (--lr {format_number(2 * best.lr)})")
    if len(rates) > 1 and best.lr == rates[0]:
        hints.append(f"lower learning rates (--lr {format_number(best.lr / 2)})")
    return f"try {', '.join(hints)} or an easier target"


def _of_design(which: str) -> Figure:
    def text(summary: PlanSummary) -> str | None:
        if summary.get(which) is None:
            return None
        design = summary.designs[summary[which]]
        time = seconds_or_never(design.time.median)
        return f"{_name(design)} ({time}, {_cost(summary, design)})"

    return text


def _cost(summary: PlanSummary, design: PlannedDesign) -> str:
    return "" if design.cost is None else cost_text(summary, design.cost)


FIGURES: Mapping[str, Figure] = {
    "Target": figure("target"),
    "Fastest": _of_design("fastest"),
    "Cheapest": _of_design("cheapest"),
    "Designs": figure("designs", lambda designs: f"{len(designs):,}" if designs else None),
    "Seeds": figure("seeds", "n"),
    "Runs": figure("runs", "n"),
    "Updates made": figure("updates_made", "n"),
    "Wall time": figure("wall_time", "s"),
}


def _remarks(summary: PlanSummary) -> dict[str, str | None]:
    if not summary.designs:
        return {}
    counts = Counter(design.verdict for design in summary.designs)
    unchanged, curvature = summary.unchanged, summary.curvature
    return {
        "designs": ", ".join(f"{count:,} {verdict}" for verdict, count in counts.items()),
        "unchanged": None if unchanged is None else sentence(unchanged),
        "curvature": None
        if curvature is None
        else f"at most {curvature:.3g} where it was computed",
    }


def _tables(summary: PlanSummary) -> list[Table]:
    """Return designs that were run with all seeds, those that were dropped, and the best ones by
    workers. How many times as fast, and at how many times the cost, is by pairs of runs with the
    same seed, and in comparison to the reference.
    """
    if not summary.designs:
        return []
    dropped = [design for design in summary.designs if design.verdict != "reached"]
    return [
        table(
            "To the target",
            _fully_run(summary),
            {
                "design": _name,
                "time": lambda design: _interval(design.time)[0],
                "80 % of seeds": lambda design: _interval(design.time)[1],
                "cost": lambda design: _cost(summary, design),
                "times as fast": _number("speedup"),
                "times the cost": _number("relative_cost"),
                "updates": lambda design: (
                    "never" if design.updates.median is None else f"{design.updates.median:,.0f}"
                ),
                "updates/s": _number("updates_per_second"),
                "reached": figure("reached", "{:.0%}".format),
                "staleness": _number("staleness"),
                "efficient": lambda design: "yes" if design.is_efficient else "",
                **{
                    header: figure(f"baselines.{name}", seconds_or_never)
                    for name, header in BASELINES.items()
                },
                "effective time": figure("effective", "%"),
            },
        ),
        table(
            "Dropped",
            dropped,
            {
                "design": _name,
                "verdict": figure("verdict"),
                "best": _number("best"),
                "staleness": _number("staleness"),
                "lr x curvature": _number("steepness"),
                "stable below": _number("steepest"),
                "why": figure("why"),
            },
        ),
        table(
            "By workers",
            summary.by_workers,
            {
                "workers": figure("workers", "n"),
                "best design": lambda tuned: _best_of(summary, tuned)[0],
                "time": lambda tuned: _best_of(summary, tuned)[1],
                "time to find it": figure("tuning_time", seconds_or_never),
                "cost to find it": lambda tuned: cost_text(summary, tuned.tuning_cost),
            },
        ),
    ]


def _number(key: str) -> Figure:
    return figure(key, lambda value: f"{float(f'{value:.3g}'):,g}")


def _best_of(summary: PlanSummary, tuned: TunedWorkers) -> tuple[str, str]:
    """Return the best design for a number of workers and its time, or why there is none."""
    if tuned.design is not None:
        design = summary.designs[tuned.design]
        return _name(design), seconds_or_never(design.time.median)
    verdicts = {design.verdict for design in summary.designs if design.workers == tuned.workers}
    return f"none: {', '.join(sorted(verdicts))}", ""


def _fully_run(summary: PlanSummary) -> list[PlannedDesign]:
    """Return designs that were run with all seeds, the fastest first."""
    kept = [design for design in summary.designs if design.verdict == "reached"]
    return sorted(kept, key=lambda design: -(design.speedup or 0.0))


def sections(runs: Sequence[Run]) -> Sections:
    """Return the charts of plans."""
    runs = [run for run in runs if run.numbers.get("designs")]
    if not runs:
        return {}
    curves = [_curves(run, len(runs)) for run in runs]
    return {"Time and cost": [_frontier(runs), _factors(runs)], "Convergence": curves}


def _by_algorithm(
    run: Run, designs: Sequence[PlannedDesign], points: Sequence[tuple[float, float, str]], of: int
) -> list[Dots]:
    """Return a dot for each design, those of one plan coloured by their algorithms."""
    marks = []
    for color, algorithm in enumerate(dict.fromkeys(design.algorithm for design in designs)):
        chosen = [p for p, d in zip(points, designs, strict=True) if d.algorithm == algorithm]
        x, y, labels = zip(*chosen, strict=True)
        where = np.array(x, np.float64), np.array(y, np.float64)
        own_color = color if of == 1 else None
        marks.append(Dots(*where, labels, run.index, algorithm, color=own_color))
    return marks


def _frontier(runs: Sequence[Run]) -> Chart:
    """Return cost against time of designs, and their Pareto frontier."""
    marks: list[Mark] = []
    for run in runs:
        plan: PlanSummary = run.numbers
        designs = [d for d in _fully_run(plan) if d.time.median and d.cost]
        points = [
            (
                d.time.median or 0.0,
                d.cost or 0.0,
                f"{_name(d)}: {seconds_or_never(d.time.median)}, {_cost(plan, d)}",
            )
            for d in designs
        ]
        if best := [p[:2] for p, d in zip(points, designs, strict=True) if d.is_efficient]:
            x, y = np.array(best, np.float64).T
            marks.append(Curve(x, y, run.index, "frontier"))
        marks += _by_algorithm(run, designs, points, len(runs))
    plan = runs[0].numbers
    return Chart(
        name="frontier",
        title=f"Cost against time to {_target(plan)}",
        x=Axis("time to target", "s", switch="time"),
        y=Axis(f"cost ({money(plan)})", switch="cost"),
        marks=tuple(marks),
        caption="Medians over seeds; compared seed by seed, no design is both faster and cheaper "
        "than one on the line.",
    )


def money(summary: Priced) -> str:
    """Return the unit of costs."""
    return summary.currency or ("money" if summary.price else "worker-hours")


def _factors(runs: Sequence[Run]) -> Chart:
    """Return throughput against updates: the two factors of the time."""
    marks: list[Mark] = []
    for run in runs:
        designs = [d for d in _fully_run(run.numbers) if d.updates.median and d.updates_per_second]
        points = [(d.updates.median or 0.0, d.updates_per_second or 0.0, _name(d)) for d in designs]
        marks += _by_algorithm(run, designs, points, len(runs))
    return Chart(
        name="throughput_updates",
        title="Throughput against updates to the target",
        x=Axis("updates to target", switch="updates"),
        y=Axis("updates/s", switch="throughput"),
        marks=tuple(marks),
        caption="The time to the target is updates divided by throughput.",
    )


def _curves(run: Run, of: int) -> Chart:
    plan: PlanSummary = run.numbers
    metric, _, bound = plan.target.split()
    values = run.series(metric)
    best = [plan.designs[tuned.design] for tuned in plan.by_workers if tuned.design is not None]
    if len(best) > CURVES:
        best = [best[place] for place in np.linspace(0, len(best) - 1, CURVES).round().astype(int)]
    marks: list[Mark] = []
    end = 0.0
    for color, design in enumerate(best):
        name = _name(design)
        curve = values.where(values.node == name)
        if len(curve):
            end = max(end, float(curve.virtual_time.max()))
            marks.append(Curve(curve.virtual_time, curve.value, run.index, name, color=color))
    marks.append(Level(float(bound), 0.0, end, plan.target, "target"))
    return Chart(
        name="metric_time" if of == 1 else f"metric_time_{run.index}",
        title=f"{METRICS[metric].capitalize()} against virtual time, first seed",
        x=Axis("virtual time", "s", switch="time"),
        y=Axis(METRICS[metric], log=metric != "accuracy", switch=metric),
        marks=tuple(marks),
    )


VIEW = View(
    figures=FIGURES,
    sections=sections,
    subject=template("{model} on {data}"),
    name=template("{model}, {target}"),
    tables=_tables,
    remarks=_remarks,
    decisive=frozenset(
        {
            *("Target", "Fastest", "Cheapest", "Seeds", "designs", "unchanged"),
            *("start", "failures", "To the target"),
        }
    ),
    endings={"not reached": sentence},
)
