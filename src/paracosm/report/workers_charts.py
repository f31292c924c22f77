"""Charts by number of workers: throughput and its ideal, efficiency, limits."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace

import numpy as np

from paracosm.report.chart import time_unit
from paracosm.report.throughput import MODELS, RESOURCES, ideal_examples
from paracosm.report.timeline_charts import lane_timeline, part_bars
from paracosm.results import JobSummary, ThroughputRow, ThroughputSummary
from paracosm.results.chart import Area, Axis, Chart, Curve, Dots, Mark, Symbol
from paracosm.results.view import Run
from paracosm.units import format_duration, format_energy

WIDE = {JobSummary: 16, ThroughputSummary: 32}
"""Ratio of numbers of workers from which axes are logarithmic."""

ROOM = 2.0  # times the highest throughput, the limit of an ideal line
ROWS = 24  # of a chart of bars

Row = ThroughputRow
Rows = Mapping[Run, Sequence[Row]]
Value = Callable[[Row], float | None]

LANES: Mapping[str, tuple[int, int]] = {
    "downlink": (0, 0),
    "compute": (1, 1),
    "uplink": (2, 2),
    "server": (3, 4),
}
"""Lane of a worker -> its line in the row, and its colour."""

SYMBOLS: Mapping[str, Symbol] = {"lin": "cross", "cynthia": "triangle", "cynthia_half": "diamond"}


def scaling_charts(runs: Sequence[Run]) -> list[Chart | None]:
    """Return the charts of jobs predicted for several numbers of workers, in one run or many."""
    rows, x, several = _rows(runs, JobSummary)
    if not several:
        return []
    longest = max(row.iteration_time or 0.0 for each in rows.values() for row in each)
    factor, unit = time_unit(longest)
    return [
        _examples(rows, x),
        _efficiency(rows, x),
        _chart(
            *("time_by_workers", "Iteration time", rows, x),
            Axis(f"time ({unit})", limits=(0.0, 1.05 * longest * factor)),
            lambda row: (row.iteration_time or 0.0) * factor,
            lambda value: format_duration(value / factor),
        ),
        _chart(
            *("exposed_communication", "Exposed communication", rows, x),
            Axis("share of the iteration", percent=True, limits=(0.0, 1.0)),
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
    of_one = next(iter(rows.items())) if len(runs) == 1 and several else None
    return [
        _steps(rows, x),
        _efficiency(rows, x) if several else None,
        _energy(rows, x, "Energy of a step") if several else None,
        None if of_one is None else _busy(*of_one, x),
        None if of_one is None else _gains(*of_one, x),
    ]


def first_steps_chart(run: Run, of_several: bool) -> Chart | None:
    """Return the first steps of each worker, one line per resource."""
    if not isinstance(run.numbers, ThroughputSummary):
        return None
    return lane_timeline(run, of_several, LANES, lambda lane: lane.split()[0])


def _rows(
    runs: Sequence[Run], kind: type[JobSummary] | type[ThroughputSummary]
) -> tuple[dict[Run, Sequence[Row]], Axis, bool]:
    rows = {run: run.numbers.throughput for run in runs if isinstance(run.numbers, kind)}
    numbers = sorted({row.workers for each in rows.values() for row in each})
    log = bool(numbers) and numbers[-1] >= WIDE[kind] * numbers[0]
    return rows, Axis("workers", log=log, switch="workers"), len(numbers) > 1


def _line(
    run: Run,
    rows: Sequence[Row],
    value: Value,
    series: str,
    label: Callable[[Row], str],
    *,
    faint: bool = False,
    symbol: Symbol = "dot",
    color: int | None = None,
) -> list[Mark]:
    known = [row for row in rows if value(row) is not None]
    if not known:
        return []
    x = np.array([row.workers for row in known], dtype=np.float64)
    y = np.array([value(row) for row in known], dtype=np.float64)
    labels = tuple(f"{row.workers:,} workers{label(row)}" for row in known)
    return [
        Curve(x, y, run.index, series, faint, color),
        Dots(x, y, labels, run.index, series, symbol, color),
    ]


def _chart(
    name: str, title: str, rows: Rows, x: Axis, y: Axis, value: Value, write: Callable[[float], str]
) -> Chart:
    marks: list[Mark] = []
    for run, each in rows.items():
        marks += _line(run, each, value, title.lower(), lambda row: f": {write(value(row) or 0.0)}")
    return Chart(name, f"{title} by workers", x, y, tuple(marks))


def _efficiency(rows: Rows, x: Axis) -> Chart:
    best = max(row.efficiency or 0.0 for each in rows.values() for row in each)
    return _chart(
        *("efficiency", "Efficiency", rows, x),
        Axis("throughput / ideal", percent=True, limits=(0.0, 1.05 * max(1.0, best))),
        lambda row: row.efficiency,
        "{:.1%}".format,
    )


def _energy(rows: Rows, x: Axis, title: str) -> Chart | None:
    highest = max(row.energy or 0.0 for each in rows.values() for row in each)
    if not highest:
        return None  # the cluster file says no power
    y = Axis("J", limits=(0.0, 1.05 * highest))
    return _chart("energy_by_workers", title, rows, x, y, lambda row: row.energy, format_energy)


def _examples(rows: Rows, x: Axis) -> Chart:
    chart = _chart(
        *("scaling", "Throughput", rows, x),
        Axis("examples/s", log=x.log, switch="examples/s"),
        lambda row: row.examples_per_second,
        "{:,.1f} examples/s".format,
    )
    ideal = [
        _line(run, each, ideal_examples, "ideal", lambda row: "", faint=True)[:1]
        for run, each in rows.items()
    ]
    return replace(
        chart,
        marks=(*chart.marks, *(mark for marks in ideal for mark in marks)),
        caption="Ideal: the same number of workers that never wait, over a free network.",
    )


def _parts(rows: Sequence[Row]) -> Chart:
    kept = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), ROWS)).round().astype(int))
    shown = [rows[place] for place in kept]
    return part_bars(
        *("parts_by_workers", "Mean iteration of a worker", "workers"),
        [f"{row.workers:,}" for row in shown],
        [row.breakdown or {} for row in shown],
    )


def _steps(rows: Rows, x: Axis) -> Chart:
    alone = len(rows) == 1
    highest = max(_rate(row) + (row.spread or 0.0) for each in rows.values() for row in each)
    marks: list[Mark] = []
    for run, each in rows.items():
        marks += _ideal(run, each, ROOM * highest)
        marks += _band(run, each)
        marks += _line(run, each, _rate, "throughput", _spread)
        marks += _after_start(run, each)
        if alone:
            marks += _models(run, [row.workers for row in each])
            marks += _saturation(run, each)
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


def _ideal(run: Run, rows: Sequence[Row], most: float) -> list[Mark]:
    """Return the ideal line, up to a height that does not flatten the others."""
    return _line(
        *(run, rows, lambda row: row.ideal if (row.ideal or 0.0) <= most else np.nan, "ideal"),
        lambda row: "",
        faint=True,
    )[:1]


def _band(run: Run, rows: Sequence[Row]) -> list[Mark]:
    known = [row for row in rows if row.spread is not None]
    if len(known) < 2:
        return []
    x = np.array([row.workers for row in known], dtype=np.float64)
    rate, spread = np.array([(_rate(row), row.spread) for row in known], dtype=np.float64).T
    labels = tuple(f"{row.workers:,} workers{_spread(row)}" for row in known)
    outline = np.concatenate([x, x[::-1]]), np.concatenate([rate - spread, (rate + spread)[::-1]])
    return [Area(*outline, labels + labels[::-1], run.index, "spread")]


def _after_start(run: Run, rows: Sequence[Row]) -> list[Mark]:
    def label(row: Row) -> str:
        after = row.after_start
        found = "" if after is None else f"{after.steps_per_second:.4g} ± {after.spread:.2g}"
        return f", the first {row.measure:.4g} s: {found} steps/s"

    return _line(
        *(run, rows, lambda row: row.after_start and row.after_start.steps_per_second),
        *("after the start", label),
        symbol="diamond",
    )[1:]


def _models(run: Run, numbers: Collection[int]) -> list[Mark]:
    marks: list[Mark] = []
    for color, (key, name) in enumerate(MODELS.items(), start=1):
        rows = [row for row in run.numbers["baselines"][key] if row.workers in numbers]

        def label(row: Row, name: str = name) -> str:
            return f", {name}: {row.steps_per_second:.4g} steps/s"

        symbol = SYMBOLS[key]
        marks += _line(run, rows, _rate, name, label, faint=True, symbol=symbol, color=color)
    return marks


def _saturation(run: Run, rows: Sequence[Row]) -> list[Mark]:
    found = run.numbers["saturation"]
    if found is None:
        return []
    label = f"saturates at {found.workers:,} workers: {found.because}"
    rate = next(_rate(row) for row in rows if row.workers == found.workers)
    place = np.array([float(found.workers)]), np.array([rate])
    return [Dots(*place, (label,), run.index, "saturation", "diamond")]


def _busy(run: Run, rows: Sequence[Row], x: Axis) -> Chart:
    return Chart(
        name="busy_by_workers",
        title="Utilisation by workers",
        x=x,
        y=Axis("share of the time", percent=True, limits=(0.0, 1.05)),
        marks=_by_resource(run, rows, "utilisation", "{}: {:.1%} busy"),
        caption="Servers: the busiest one. Workers: computing, on average.",
    )


def _gains(run: Run, rows: Sequence[Row], x: Axis) -> Chart:
    return Chart(
        name="if_twice_as_fast",
        title="If a resource were twice as fast",
        x=x,
        y=Axis("change of throughput", percent=True),
        marks=_by_resource(run, rows, "if_twice_as_fast", "{} twice as fast: {:+.1%}"),
        caption="The resource with the largest gain is the bottleneck.",
    )


def _by_resource(run: Run, rows: Sequence[Row], key: str, write: str) -> tuple[Mark, ...]:
    marks: list[Mark] = []
    for color, resource in enumerate(RESOURCES):

        def value(row: Row, resource: str = resource) -> float:
            return float(row[key][resource])

        def label(row: Row, resource: str = resource) -> str:
            return f", {write.format(resource, row[key][resource])}"

        marks += _line(run, rows, value, resource, label, color=color)
    return tuple(marks)
