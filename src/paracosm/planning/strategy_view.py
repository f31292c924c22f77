"""What a page shows of plans of strategies: the answer, tables, the frontier of time and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from paracosm.cluster.description import cluster_text
from paracosm.planning.view import money
from paracosm.prediction.view import search_text, step_text, strategies_table, what_is_assumed
from paracosm.price import cost_text
from paracosm.results import PlannedStrategy, StrategyPlanSummary
from paracosm.results.chart import Axis, Chart, Curve, Mark, Sections
from paracosm.results.charts import line
from paracosm.results.hardware import (
    Offer,
    best_offers,
    compares_hardware,
    hardware_side_by_side,
    measured_text,
    nearest_text,
)
from paracosm.results.view import (
    Figure,
    Quantity,
    Run,
    Table,
    Trials,
    View,
    assuming,
    counted,
    figure,
    table,
    template,
)
from paracosm.simulation.breakdown import CAUSES
from paracosm.units import format_duration

DAY = 86400.0


def sentence(summary: StrategyPlanSummary) -> str:
    """Name the fastest strategy, what limits it, and the cheapest one."""
    best, cheapest = summary.designs[summary.fastest], summary.designs[summary.cheapest]
    text = (
        f"{large(summary.tokens)} tokens of {summary.model} take {long_time(best.time)} on "
        f"{best.workers:,} x {summary.hardware}, for {cost_text(summary, best.cost)}"
        f"{step_text(summary)}: "
        f"{best.strategy}, micro-batches of {best.micro_batch}; most of the time is {best.limit}"
    )
    limits = {"launch": "Launching"} | dict.fromkeys(CAUSES.values(), "Communication")
    assumed = assuming(what_is_assumed(summary.durations, limits.get(best.limit, best.limit)))
    text += f". {assumed}" if assumed else "."
    if cheapest is best:
        return f"{text} Nothing is cheaper."
    return (
        f"{text} Cheapest on {counted(cheapest.workers, 'worker')}: "
        f"{cost_text(summary, cheapest.cost)}, {long_time(cheapest.time)}."
    )


def large(number: float) -> str:
    """Return "1 trillion", "8.03 billion", "4,096"."""
    for name, size in (("trillion", 1e12), ("billion", 1e9), ("million", 1e6)):
        if number >= size:
            return f"{number / size:.3g} {name}"
    return f"{number:,.0f}"


def long_time(seconds: float) -> str:
    """Return a duration such as "12.3 days" or "3.2 h"."""
    for unit, length in (("years", 365.25 * DAY), ("days", DAY), ("h", 3600.0)):
        if seconds >= 1.5 * length:
            return f"{seconds / length:,.3g} {unit}"
    return format_duration(float(f"{seconds:.3g}"))


FIGURES: Mapping[str, Figure] = {
    "Model": lambda summary: f"{summary.model}, {large(summary.parameters)} parameters",
    "Dtype": figure("dtype"),
    "Optimizer": figure("optimizer"),
    "Hardware": figure("hardware"),
    "Software": figure("stack"),
    "Tokens": figure("tokens", large),
    "Batch": lambda summary: (
        f"{large(summary.batch_tokens)} tokens, in sequences of {summary.sequence:,}"
    ),
    "Price": figure("price"),
    "Failures": lambda summary: summary.mtbf or "none",
    "Strategies": search_text,
}


def _tables(summary: StrategyPlanSummary) -> list[Table]:
    workers = {"workers": lambda design: f"{design.workers:,}"}
    fastest_first = sorted(summary.designs, key=lambda design: (-design.workers, design.place))
    return [
        table(
            "By workers",
            _fastest(summary),
            {
                **workers,
                "time": figure("time", long_time),
                "cost": lambda design: cost_text(summary, design.cost),
                "tokens/s": figure("tokens_per_second", "{:,.0f}".format),
                "goodput": figure("effective", "%"),
                "efficient": lambda design: "yes" if design.is_efficient else "",
                "most of it": figure("limit"),
                "strategy": lambda design: (
                    f"{design.strategy}, micro-batches of {design.micro_batch}"
                ),
            },
        ),
        strategies_table(
            "Fastest strategies",
            fastest_first,
            {"Fastest strategies": lambda design: f"{design.workers:,} workers"},
        ),
    ]


def _fastest(summary: StrategyPlanSummary) -> list[PlannedStrategy]:
    """Return the fastest strategy of each number of workers."""
    return [design for design in summary.designs if design.place == 1]


def sections(runs: Sequence[Run]) -> Sections:
    """Return the frontier of time and cost, and speed by workers."""
    runs = [run for run in runs if run.numbers.get("designs")]
    return {"Time and cost": [_frontier(runs), _speed(runs)]} if runs else {}


SERIES = "fastest for this number of workers"


def _frontier(runs: Sequence[Run]) -> Chart:
    marks: list[Mark] = []
    for run in runs:
        plan: StrategyPlanSummary = run.numbers
        designs = _fastest(plan)
        days, costs = [d.time / DAY for d in designs], [d.cost for d in designs]
        efficient = [place for place, design in enumerate(designs) if design.is_efficient]
        x, y = np.array(days)[efficient], np.array(costs)[efficient]
        labels = [
            f"{d.workers:,} workers, {d.strategy}: {long_time(d.time)}, {cost_text(plan, d.cost)}"
            for d in designs
        ]
        marks.append(Curve(x, y, run.index, "frontier"))
        marks += line(run, days, costs, SERIES, labels)[1:]
    plan = runs[0].numbers
    return Chart(
        name="frontier",
        title=f"Cost against time of {large(plan.tokens)} tokens",
        x=Axis("time (days)", log=True, switch="time"),
        y=Axis(f"cost ({money(plan)})", switch="cost"),
        marks=tuple(marks),
        caption=(
            "One point per number of workers; none is both faster and cheaper than one on the line."
        ),
    )


def _speed(runs: Sequence[Run]) -> Chart:
    marks: list[Mark] = []
    for run in runs:
        designs = _fastest(run.numbers)
        rates = [design.tokens_per_second / design.workers for design in designs]
        labels = [f"{design.workers:,} workers: {design.strategy}" for design in designs]
        marks += line(run, [design.workers for design in designs], rates, SERIES, labels)
    return Chart(
        name="tokens_workers",
        title="Tokens/s per worker",
        x=Axis("workers", log=True, switch="workers"),
        y=Axis("tokens/s per worker", switch="throughput"),
        marks=tuple(marks),
        caption="The fastest strategy for each number of workers, without failures.",
    )


def _trials(runs: Sequence[Run]) -> Trials:
    """Return plans side by side; those of different hardware with the fastest first."""
    trials = hardware_side_by_side(runs)
    if not compares_hardware(trials):
        return trials
    return replace(trials, runs=sorted(trials.runs, key=lambda trial: _best(trial.summary).time))


def _best(plan: StrategyPlanSummary) -> PlannedStrategy:
    return plan.designs[plan.fastest]


def _compare(trials: Trials) -> str | None:
    """Name the hardware that is done first, and the one that costs least."""
    if not compares_hardware(trials):
        return None
    plan: StrategyPlanSummary = trials.runs[0].summary
    offers = [
        Offer(
            devices=design.workers,
            hardware=trial.summary.hardware,
            stack=trial.summary.stack or "",
            speed=1 / design.time,
            fast=f"{long_time(design.time)} for {large(plan.tokens)} tokens of {plan.model}",
            cost=None if trial.summary.price is None else design.cost,
            cheap=cost_text(trial.summary, design.cost),
        )
        for trial in trials.runs
        for design in (trial.summary.designs[i] for i in _fastest_and_cheapest(trial.summary))
    ]
    return best_offers(offers)


def _fastest_and_cheapest(plan: StrategyPlanSummary) -> list[int]:
    return list(dict.fromkeys((plan.fastest, plan.cheapest)))


def _ranked(trials: Trials) -> Table | None:
    """Return a table of different hardware, the one that is done first before the others."""
    if not compares_hardware(trials):
        return None
    rows = [
        (trial.summary, trial.summary.designs[place])
        for trial in trials.runs
        for place in _fastest_and_cheapest(trial.summary)
    ]

    def cost_of_a_million(row: tuple[StrategyPlanSummary, PlannedStrategy]) -> str:
        plan, design = row
        return cost_text(plan, design.cost / plan.tokens * 1e6)

    return table(
        "Hardware, fastest first",
        rows,
        {
            "hardware": lambda row: f"{row[1].workers:,} x {row[0].hardware}",
            "software": lambda row: row[0].stack,
            "time": lambda row: long_time(row[1].time),
            "cost": lambda row: cost_text(row[0], row[1].cost),
            "cost, a million tokens": cost_of_a_million,
            "tokens/s": lambda row: f"{row[1].tokens_per_second:,.0f}",
            "nearest measured": lambda row: nearest_text(row[0]),
            "strategy": lambda row: f"{row[1].strategy}, micro-batches of {row[1].micro_batch}",
        },
    )


QUANTITIES = (
    Quantity("time", "Least time of all tokens", lambda trial: _best(trial.summary).time, "s"),
    Quantity(
        "cost",
        "Least cost of all tokens",
        lambda trial: trial.summary.designs[trial.summary.cheapest].cost,
        "in the money of the price, or worker-hours",
    ),
)


VIEW = View(
    figures=FIGURES,
    sections=sections,
    trials=_trials,
    quantities=lambda trials: QUANTITIES if compares_hardware(trials) else (),
    compare=_compare,
    ranked=_ranked,
    name=template("{model} on {hardware}"),
    subject=figure("hardware"),
    remarks=lambda summary: {
        "cluster": cluster_text(summary.cluster or {}),
        "nearest measured": measured_text(summary.nearest),
    },
    tables=_tables,
    decisive=frozenset(
        {
            *("Tokens", "Batch", "Price", "Failures", "Strategies", "cluster", "By workers"),
            *("launching an op", "computing beside collectives"),
        }
    ),
)
