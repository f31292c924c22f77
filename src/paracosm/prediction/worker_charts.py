"""Charts by number of workers: throughput and its ideal, efficiency, limits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from paracosm.prediction.parameter_servers.view import MODELS, RESOURCES
from paracosm.results import JobSummary, ThroughputRow, ThroughputSummary
from paracosm.results.chart import Axis, Chart, Dots, Mark, Symbol
from paracosm.results.charts import band, breakdown_chart, is_wide, line
from paracosm.results.view import Run
from paracosm.units import format_duration, format_energy

WIDE = {JobSummary: 16, ThroughputSummary: 32}
"""Ratio of numbers of workers from which axes are logarithmic."""

ROOM = 2.0  # times the highest throughput, the limit of an ideal line
ROWS = 24  # of a chart of bars
SYMBOLS: Mapping[str, Symbol] = {"lin": "cross", "cynthia": "triangle", "cynthia_half": "diamond"}

Row = ThroughputRow
Rows = Mapping[Run, Sequence[Row]]
Value = Callable[[Row], float | None]


def scaling_charts(runs: Sequence[Run]) -> list[Chart | None]:
    """Return the charts of jobs that are each predicted for several numbers of workers; those of
    one number each are compared by `QUANTITIES`.
    """
    rows, x, several = _rows(runs, JobSummary)
    if not several:
        return []
    exposed = Axis("share of the iteration", percent=True, limits=(0.0, 1.0))
    return [
        _examples(rows, x),
        _efficiency(rows, x),
        _chart(
            "time_by_workers",
            "Iteration time",
            rows,
            x,
            Axis("time", "s", from_zero=True),
            lambda row: row.iteration_time,
            format_duration,
        ),
        _chart(
            "exposed_communication",
            "Exposed communication",
            rows,
            x,
            exposed,
            lambda row: (row.breakdown or {})["exposed_communication"] / (row.iteration_time or 1),
            "{:.1%}".format,
        ),
        _energy(rows, x, "Energy of an iteration"),
        _parts(next(iter(rows.values()))) if len(runs) == 1 else None,
    ]


def throughput_charts(runs: Sequence[Run]) -> list[Chart | None]:
    """Return the charts of runs that were predicted from job profiles, all together."""
    rows, x, several = _rows(runs, ThroughputSummary)
    if not rows:
        return []
    if not several:
        return [_steps(rows, x)]
    charts = [_steps(rows, x), _efficiency(rows, x), _energy(rows, x, "Energy of a step")]
    if len(runs) == 1:
        (run,) = rows
        charts.append(
            Chart(
                name="busy_by_workers",
                title="Utilisation by workers",
                x=x,
                y=Axis("share of the time", percent=True, limits=(0.0, 1.05)),
                marks=_by_resource(run, "utilisation", "{}: {:.1%} busy"),
                caption="Servers: the busiest one. Workers: computing, on average.",
            )
        )
        charts.append(
            Chart(
                name="if_twice_as_fast",
                title="If a resource were twice as fast",
                x=x,
                y=Axis("change of throughput", percent=True),
                marks=_by_resource(run, "if_twice_as_fast", "{} twice as fast: {:+.1%}"),
                caption="The resource with the largest gain is the bottleneck.",
            )
        )
    return charts


def _rows(
    runs: Sequence[Run], kind: type[JobSummary] | type[ThroughputSummary]
) -> tuple[dict[Run, Sequence[Row]], Axis, bool]:
    rows = {run: run.numbers.throughput for run in runs if isinstance(run.numbers, kind)}
    numbers = {row.workers for points in rows.values() for row in points}
    log = is_wide(numbers, WIDE[kind])
    several = any(len(points) > 1 for points in rows.values())
    return rows, Axis("workers", log=log, switch="workers"), several


def _line(
    run: Run,
    rows: Sequence[Row],
    value: Value,
    series: str,
    label: Callable[[Row], str] = lambda row: "",
    symbol: Symbol = "dot",
    color: int | None = None,
    *,
    faint: bool = False,
) -> list[Mark]:
    values = [(row, number) for row in rows if (number := value(row)) is not None]
    x, y = [row.workers for row, _ in values], [number for _, number in values]
    labels = [f"{row.workers:,} workers{label(row)}" for row, _ in values]
    return line(run, x, y, series, labels, symbol, color, faint=faint)


def _chart(
    name: str, title: str, rows: Rows, x: Axis, y: Axis, value: Value, write: Callable[[float], str]
) -> Chart:
    marks: list[Mark] = []
    for run, points in rows.items():
        marks += _line(
            run, points, value, title.lower(), lambda row: f": {write(value(row) or 0.0)}"
        )
    return Chart(name, f"{title} by workers", x, y, tuple(marks))


def _efficiency(rows: Rows, x: Axis) -> Chart:
    best = max(row.efficiency or 0.0 for points in rows.values() for row in points)
    y = Axis("share of the ideal throughput", percent=True, limits=(0.0, 1.05 * max(1.0, best)))
    return _chart(
        "efficiency", "Efficiency", rows, x, y, lambda row: row.efficiency, "{:.1%}".format
    )


def _energy(rows: Rows, x: Axis, title: str) -> Chart | None:
    if not any(row.energy for points in rows.values() for row in points):
        return None  # the cluster file says no power
    y = Axis("energy (J)", from_zero=True)
    return _chart("energy_by_workers", title, rows, x, y, lambda row: row.energy, format_energy)


def _examples(rows: Rows, x: Axis) -> Chart:
    chart = _chart(
        "scaling",
        "Throughput",
        rows,
        x,
        Axis("examples/s", log=x.log, switch="examples/s"),
        lambda row: row.examples_per_second,
        "{:,.1f} examples/s".format,
    )
    marks = list(chart.marks)
    for run, points in rows.items():
        marks += _line(run, points, ideal_examples, "ideal", faint=True)[:1]
    caption = "Ideal: the same number of workers that never wait, over a free network."
    return replace(chart, marks=tuple(marks), caption=caption)


def ideal_examples(row: Row) -> float | None:
    """Return the ideal examples per second of a row."""
    if row.examples_per_second is None or not row.efficiency:
        return None
    return row.examples_per_second / row.efficiency


def _parts(rows: Sequence[Row]) -> Chart:
    kept = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), ROWS)).round().astype(int))
    breakdowns = {f"{rows[place].workers:,}": rows[place].breakdown or {} for place in kept}
    title = "Mean iteration of a worker"
    return breakdown_chart("parts_by_workers", title, breakdowns, label="workers")


def _steps(rows: Rows, x: Axis) -> Chart:
    alone = len(rows) == 1
    highest = max(_rate(row) + (row.spread or 0.0) for points in rows.values() for row in points)

    def ideal(row: Row) -> float:
        """Return the ideal rate, up to a height that does not flatten the others."""
        return row.ideal if row.ideal and row.ideal <= ROOM * highest else np.nan

    def after_start(row: Row) -> float | None:
        return None if row.after_start is None else row.after_start.steps_per_second

    marks: list[Mark] = []
    for run, points in rows.items():
        marks += _line(run, points, ideal, "ideal", faint=True)[:1]
        marks += _spread_band(run, points)
        marks += _line(run, points, _rate, "throughput", _spread)
        marks += _line(run, points, after_start, "after the start", _after_start, "diamond")[1:]
        if alone:
            marks += _models(run, {row.workers for row in points})
            marks += _saturation(run, points)
    return Chart(
        name="throughput_by_workers",
        title="Throughput by workers",
        x=x,
        y=Axis("steps/s", log=x.log, switch="steps/s"),
        marks=tuple(marks),
        caption=(
            "The band is the standard deviation between measurements. Ideal: the same number of "
            "workers, each with the servers to itself; drawn as far as there is room."
        ),
        # Bands and ideals of several runs would overlap.
        hidden=frozenset(
            {MODELS["cynthia"], MODELS["cynthia_half"]} if alone else {"ideal", "spread"}
        ),
        height=380,
        wide=True,
    )


def _rate(row: Row) -> float:
    return row.steps_per_second or 0.0


def _spread(row: Row) -> str:
    spread = "" if row.spread is None else f" ± {row.spread:.2g}"
    return f": {row.steps_per_second:.4g}{spread} steps/s"


def _spread_band(run: Run, rows: Sequence[Row]) -> list[Mark]:
    known = [row for row in rows if row.spread is not None]
    if len(known) < 2:
        return []
    x = np.array([row.workers for row in known], dtype=np.float64)
    rate, spread = np.array([(_rate(row), row.spread) for row in known], dtype=np.float64).T
    labels = [f"{row.workers:,} workers{_spread(row)}" for row in known]
    return [band(x, rate - spread, rate + spread, labels, run.index, "spread")]


def _after_start(row: Row) -> str:
    after = row.after_start
    rate = "" if after is None else f"{after.steps_per_second:.4g} ± {after.spread:.2g}"
    return f", the first {row.measure:.4g} s: {rate} steps/s"


def _models(run: Run, numbers: Collection[int]) -> list[Mark]:
    marks: list[Mark] = []
    for color, (key, name) in enumerate(MODELS.items(), start=1):
        rows = [row for row in run.numbers.baselines[key] if row.workers in numbers]

        def label(row: Row, name: str = name) -> str:
            return f", {name}: {row.steps_per_second:.4g} steps/s"

        marks += _line(run, rows, _rate, name, label, SYMBOLS[key], color, faint=True)
    return marks


def _saturation(run: Run, rows: Sequence[Row]) -> list[Mark]:
    saturation = run.numbers.saturation
    if saturation is None:
        return []
    label = f"saturates at {saturation.workers:,} workers: {saturation.because}"
    rate = next(_rate(row) for row in rows if row.workers == saturation.workers)
    at = np.array([float(saturation.workers)]), np.array([rate])
    return [Dots(*at, (label,), run.index, "saturation", "diamond")]


def _by_resource(run: Run, key: str, write: str) -> tuple[Mark, ...]:
    marks: list[Mark] = []
    for color, resource in enumerate(RESOURCES):

        def value(row: Row, resource: str = resource) -> float:
            return float(row[key][resource])

        def label(row: Row, resource: str = resource) -> str:
            return f", {write.format(resource, row[key][resource])}"

        marks += _line(run, run.numbers.throughput, value, resource, label, color=color)
    return tuple(marks)
