"""Plans of strategies: sentences, tables, the frontier of time and cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paracosm.cluster.description import cluster_text
from paracosm.report.chart import shown_sections
from paracosm.report.plan_words import cost_text, long_time, rounded_in_words
from paracosm.results import PlannedStrategy, RankedStrategy, StrategyPlanSummary, StrategySearch
from paracosm.results.chart import Axis, Chart, Curve, Dots, Section
from paracosm.results.view import Figure, Run, Table, View, figure
from paracosm.units import format_duration, format_size

DAY = 86400.0


def strategies_table(title: str, ranked: Sequence[RankedStrategy]) -> Table:
    """Return a table of strategies with their shares of an iteration, the best first."""
    causes = list(dict.fromkeys(cause for each in ranked for cause in each.causes))
    causes = [c for c in causes if any(_share(each, c) >= 0.005 for each in ranked)]
    is_plan = any(isinstance(each, PlannedStrategy) for each in ranked)
    rows = tuple(
        (
            *([f"{each.workers:,} workers"] if isinstance(each, PlannedStrategy) else []),
            each.strategy,
            f"{each.micro_batch:,}",
            format_duration(each.iteration_time),
            *(f"{each.iteration_time / each.examples:.4g} s" for _ in [0] if not is_plan),
            "" if each.peak_memory is None else format_size(each.peak_memory),
            *(f"{_share(each, cause):.0%}" for cause in causes),
        )
        for each in ranked
    )
    header = (
        *([title, "strategy"] if is_plan else [title]),
        *("micro-batch", "iteration"),
        *([] if is_plan else ["an example"]),
        *("memory", *causes),
    )
    return Table(title, header, rows)


def search_words(search: StrategySearch | StrategyPlanSummary) -> str:
    """State how many strategies were considered, and whether another can be faster."""
    rest = "no other can be faster" if search.complete else "others may be faster"
    return (
        f"{search.candidates:,} considered, {search.too_large:,} too large for the memory, "
        f"{search.predicted:,} predicted; {rest}"
    )


def _share(each: RankedStrategy, cause: str) -> float:
    return each.causes.get(cause, 0.0) / each.iteration_time


FIGURES: Mapping[str, Figure] = {
    "Model": lambda summary: f"{summary.model}, {rounded_in_words(summary.parameters)} parameters",
    "Dtype": figure("dtype", str),
    "Optimizer": figure("optimizer", str),
    "Hardware": figure("hardware", str),
    "Tokens": figure("tokens", rounded_in_words),
    "Batch": lambda summary: (
        f"{rounded_in_words(summary.batch_tokens)} tokens, in sequences of {summary.sequence:,}"
    ),
    "Price": figure("price", str),
    "Failures": lambda summary: summary.mtbf or "none",
    "Strategies": search_words,
}


def _tables(summary: StrategyPlanSummary) -> list[Table]:
    first = [each for each in summary.designs if each.place == 1]
    fails = any(each.effective is not None for each in first)
    rows = tuple(
        (
            f"{each.workers:,}",
            long_time(each.time),
            cost_text(summary, each.cost),
            f"{each.tokens_per_second:,.0f}",
            *(["" if each.effective is None else f"{each.effective:.1%}"] if fails else []),
            "yes" if each.is_efficient else "",
            each.limit,
            f"{each.strategy}, micro-batches of {each.micro_batch}",
        )
        for each in first
    )
    header = (
        *("workers", "time", "cost", "tokens/s", *(["goodput"] if fails else [])),
        *("efficient", "most of it", "strategy"),
    )
    by_workers = sorted(summary.designs, key=lambda each: (-each.workers, each.place))
    return [
        Table("By workers", header, rows),
        strategies_table("Fastest strategies", by_workers),
    ]


def _name(known: Mapping[str, Any]) -> str | None:
    model, hardware = known.get("model"), known.get("hardware")
    return None if model is None or hardware is None else f"{model} on {hardware}"


def sections(runs: Sequence[Run]) -> list[Section]:
    """Return the frontier of time and cost, and speed by workers."""
    plans = [
        (run, run.numbers)
        for run in runs
        if isinstance(run.numbers, StrategyPlanSummary) and run.numbers.designs
    ]
    return shown_sections([("Time and cost", [_frontier(plans), _speed(plans)] if plans else [])])


Plan = tuple[Run, StrategyPlanSummary]


def _frontier(plans: Sequence[Plan]) -> Chart:
    marks: list[Curve | Dots] = []
    for run, plan in plans:
        first = [each for each in plan.designs if each.place == 1]
        efficient = [each for each in first if each.is_efficient]
        marks.append(Curve(*_time_and_cost(efficient), run.index, "frontier"))
        labels = tuple(
            f"{each.workers:,} workers, {each.strategy}: {long_time(each.time)}, "
            f"{cost_text(plan, each.cost)}"
            for each in first
        )
        marks.append(
            Dots(*_time_and_cost(first), labels, run.index, "fastest for this number of workers")
        )
    first_plan = plans[0][1]
    money = first_plan.currency or ("money" if first_plan.price else "worker-hours")
    return Chart(
        name="frontier",
        title=f"Cost against time of {rounded_in_words(first_plan.tokens)} tokens",
        x=Axis("days", log=True, switch="time"),
        y=Axis(f"cost ({money})", switch="cost"),
        marks=tuple(marks),
        caption=(
            "One point per number of workers; none is both faster and cheaper than one on the line."
        ),
    )


def _speed(plans: Sequence[Plan]) -> Chart:
    marks: list[Curve | Dots] = []
    for run, plan in plans:
        first = [each for each in plan.designs if each.place == 1]
        x = np.array([each.workers for each in first], np.float64)
        y = np.array([each.tokens_per_second / each.workers for each in first], np.float64)
        labels = tuple(f"{each.workers:,} workers: {each.strategy}" for each in first)
        series = "fastest for this number of workers"
        marks += [Curve(x, y, run.index, series), Dots(x, y, labels, run.index, series)]
    return Chart(
        name="tokens_workers",
        title="Tokens/s per worker",
        x=Axis("workers", log=True, switch="workers"),
        y=Axis("tokens/s per worker", switch="throughput"),
        marks=tuple(marks),
        caption="The fastest strategy for each number of workers, without failures.",
    )


def _time_and_cost(designs: Sequence[PlannedStrategy]) -> tuple[Any, Any]:
    return (
        np.array([each.time / DAY for each in designs], np.float64),
        np.array([each.cost for each in designs], np.float64),
    )


VIEW = View(
    figures=FIGURES,
    sections=sections,
    name=_name,
    subject=figure("hardware", str),
    remarks=lambda summary: {"cluster": cluster_text(summary.cluster)} if summary.cluster else {},
    tables=_tables,
)
