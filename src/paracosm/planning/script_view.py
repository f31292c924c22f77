"""What a page shows of plans for scripts: the answer, a table, costs, speed by ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from paracosm.planning.strategy_view import large, long_time
from paracosm.planning.view import money
from paracosm.price import cost_text
from paracosm.results import PlannedScript, ScriptPlanSummary
from paracosm.results.chart import Axis, Chart, Mark, Sections
from paracosm.results.charts import line
from paracosm.results.view import Figure, Run, Table, View, assuming, figure, table
from paracosm.units import format_duration, format_size


def sentence(summary: ScriptPlanSummary) -> str:
    """Name the fastest and the cheapest hardware of those on which the script fits."""
    unfit = sum(not design.fits for design in summary.designs)
    count = len(summary.designs)
    left = f" {unfit} of {count} do not fit or do not run." if unfit else ""
    if summary.fastest is None or summary.cheapest is None:
        failure = next((design.failure for design in summary.designs if design.failure), None)
        why = failure or "its memory is on none of the devices"
        return f"{summary.script} runs on none of {count}: {why}." if count else "Nothing was run."
    best, cheapest = summary.designs[summary.fastest], summary.designs[summary.cheapest]
    text = (
        f"{_script(summary)} is fastest on {_name(best)}: {_speed(summary, best)}, for "
        f"{_cost(summary, best)}."
    )
    if (assumed := assuming(best.assumed)) is not None:
        text += f" {assumed}"
    if cheapest is best:
        return f"{text} Nothing is cheaper.{left}"
    return (
        f"{text} Cheapest on {_name(cheapest)}: {_cost(summary, cheapest)}, "
        f"{_speed(summary, cheapest)}.{left}"
    )


def _script(summary: ScriptPlanSummary) -> str:
    return Path(summary.script.removeprefix("module:")).name


def _name(design: PlannedScript) -> str:
    return f"{design.workers:,} x {design.hardware}"


def _speed(summary: ScriptPlanSummary, design: PlannedScript) -> str:
    """Return "2,628,000 tokens/s", and the time of all tokens where their number is given."""
    iteration = f"{format_duration(design.iteration_time or 0.0)} an iteration"
    if design.throughput is None:
        return iteration
    rate = f"{design.throughput:,.0f} {summary.unit}/s ({iteration})"
    if summary.tokens is None or design.time is None:
        return rate
    return f"{large(summary.tokens)} {summary.unit} in {long_time(design.time)}, {rate}"


def _cost(summary: ScriptPlanSummary, design: PlannedScript) -> str:
    return f"{cost_text(summary, design.cost or 0.0)} {_per(summary)}"


def _per(summary: ScriptPlanSummary) -> str:
    if summary.unit == "iterations":
        return "an iteration"
    return "in all" if summary.tokens is not None else f"per million {summary.unit}"


FIGURES: Mapping[str, Figure] = {
    "Script": lambda summary: " ".join([summary.script, *summary.arguments]),
    "Hardware": lambda summary: ", ".join(summary.hardware),
    "Tokens": lambda summary: None if summary.tokens is None else large(summary.tokens),
    "Price": figure("price"),
}


def _tables(summary: ScriptPlanSummary) -> list[Table]:
    ranked = sorted(summary.designs, key=lambda each: (not each.fits, each.time or 0.0))
    unit = summary.unit
    return [
        table(
            "Hardware, fastest first",
            ranked,
            {
                "hardware": _name,
                "iteration": figure("iteration_time", "s"),
                f"{unit}/s": lambda each: each.throughput and f"{each.throughput:,.0f}",
                "time": lambda each: (
                    None if summary.tokens is None or each.time is None else long_time(each.time)
                ),
                f"cost {_per(summary)}": lambda each: (
                    None if each.cost is None else cost_text(summary, each.cost)
                ),
                "memory": lambda each: (
                    each.memory
                    and f"{format_size(each.memory.reserved + each.memory.overhead)} of "
                    f"{format_size(each.memory.capacity)}"
                ),
                "fits": lambda each: "does not run" if each.memory is None else each.memory.verdict,
                "besides computing": figure("limit"),
                "efficient": lambda each: "yes" if each.is_efficient else "",
            },
        )
    ]


def sections(runs: Sequence[Run]) -> Sections:
    """Return the costs against the speed, and speed by ranks."""
    known = [run for run in runs if run.numbers.get("designs")]
    charts = [_frontier(known), _by_workers(known)] if known else []
    return {"Time and cost": [chart for chart in charts if chart.marks]} if known else {}


def _by_hardware(run: Run) -> dict[str, list[PlannedScript]]:
    """Return the designs that have a speed, by hardware."""
    scripts: dict[str, list[PlannedScript]] = {}
    for design in run.numbers.designs:
        if design.throughput is not None:
            scripts.setdefault(design.hardware, []).append(design)
    return scripts


def _frontier(runs: Sequence[Run]) -> Chart:
    marks: list[Mark] = []
    plan: ScriptPlanSummary = runs[0].numbers
    for run in runs:
        for color, (name, designs) in enumerate(_by_hardware(run).items()):
            labels = [
                f"{_name(design)}: {_cost(run.numbers, design)}, {_speed(run.numbers, design)}"
                + ("" if design.fits else "; does not fit")
                for design in designs
            ]
            rates = [design.throughput or 0.0 for design in designs]
            costs = [design.cost or 0.0 for design in designs]
            marks += line(run, rates, costs, name, labels, color=color)
    return Chart(
        name="frontier",
        title=f"Cost {_per(plan)} against speed",
        x=Axis(f"{plan.unit}/s", log=True, switch="throughput"),
        y=Axis(f"cost ({money(plan)})", switch="cost", from_zero=True),
        marks=tuple(marks),
        caption="One point per number of ranks; faster is to the right, cheaper below.",
    )


def _by_workers(runs: Sequence[Run]) -> Chart:
    marks: list[Mark] = []
    for run in runs:
        for color, (name, designs) in enumerate(_by_hardware(run).items()):
            rates = [(design.throughput or 0.0) / design.workers for design in designs]
            labels = [f"{_name(design)}: {design.limit}" for design in designs]
            counts = [design.workers for design in designs]
            marks += line(run, counts, rates, name, labels, color=color)
    unit = runs[0].numbers.unit
    return Chart(
        name="rate_workers",
        title=f"{unit.capitalize()}/s of each rank",
        x=Axis("ranks", log=True, switch="workers"),
        y=Axis(f"{unit}/s per rank", switch="throughput", from_zero=True),
        marks=tuple(marks),
    )


VIEW = View(
    figures=FIGURES,
    sections=sections,
    name=lambda known: Path(str(known["script"])).name if known.get("script") else None,
    subject=lambda known: ", ".join(known["hardware"]) if known.get("hardware") else None,
    remarks=lambda summary: {
        _name(script): script.failure for script in summary.get("designs") or () if script.failure
    },
    tables=_tables,
)
