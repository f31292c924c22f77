"""Jobs by their number of workers: tables and charts of the scaling curve."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from paracosm.report.chart import Axis, Chart, Curve, Dots, Mark, time_unit
from paracosm.report.run import Run
from paracosm.report.timeline_charts import PARTS, part_bars, ranks_alike, shown_parts
from paracosm.report.view import Table
from paracosm.results import JobSummary, ThroughputRow
from paracosm.units import format_duration, format_size

RANK_ROWS = 16  # kinds of ranks in a table


def job_tables(summary: JobSummary) -> list[Table]:
    """Return the tables of a job on a cluster."""
    rows, ranks = summary.throughput, summary.breakdown["ranks"]
    scaling = [_scaling(rows)] if len(rows) > 1 else []
    return scaling + ([_ranks(ranks)] if ranks else [])


def _scaling(rows: Sequence[ThroughputRow]) -> Table:
    """Return a row for each number of workers: the scaling curve, and the ideal beside it."""
    header = ("workers", "iteration", "examples/s", "ideal", "efficiency", "exposed", "waiting")
    return Table(
        "Scaling",
        (*header, "bubble") if _any(rows, "bubble") else header,
        tuple(
            (
                f"{row.workers:,}",
                format_duration(row.iteration_time or 0.0),
                _rate(row.examples_per_second),
                _rate(ideal_examples(row)),
                "" if row.efficiency is None else f"{row.efficiency:.1%}",
                _share(row, "exposed_communication"),
                _share(row, "waiting"),
                *([_share(row, "bubble")] if _any(rows, "bubble") else []),
            )
            for row in rows
        ),
    )


def _ranks(ranks: Sequence[Mapping[str, Any]]) -> Table:
    """Return a row for each kind of ranks, with the parts of its iteration."""
    parts = shown_parts(ranks)
    shown = ranks if len(ranks) <= RANK_ROWS else ranks[: RANK_ROWS - 1]
    rows = [
        (
            ranks_alike(each),
            *(format_duration(each[part]) for part in parts),
            "" if each["peak_memory"] is None else format_size(each["peak_memory"]),
        )
        for each in shown
    ]
    if len(shown) < len(ranks):
        others = sum(each["ranks"] for each in ranks[len(shown) :])
        rows.append((f"{others:,} other ranks", *("" for _ in (*parts, "memory"))))
    header = ("rank", *(PARTS[part][0] for part in parts), "peak memory")
    return Table("Time by rank", header, tuple(rows))


def ideal_examples(row: ThroughputRow) -> float | None:
    """Return the ideal examples per second of a row."""
    if row.examples_per_second is None or not row.efficiency:
        return None
    return row.examples_per_second / row.efficiency


def _any(rows: Sequence[ThroughputRow], part: str) -> bool:
    return any((row.breakdown or {})[part] > 0 for row in rows)


def _share(row: ThroughputRow, part: str) -> str:
    return f"{(row.breakdown or {})[part] / (row.iteration_time or 1.0):.1%}"


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}" if rate >= 10 else f"{rate:.3g}"


WIDE = 16  # times as many workers: from there on axes are logarithmic
ROWS = 24  # of a chart of bars

Row = ThroughputRow
Value = Callable[[Row], float | None]


def scaling_charts(runs: Sequence[Run]) -> list[Chart | None]:
    """Return the charts of runs that were predicted for several numbers of workers, all together.

    The numbers may be those of one run, or one run may have each of them.
    """
    rows = {run: run.numbers.throughput for run in runs if isinstance(run.numbers, JobSummary)}
    numbers = sorted({row.workers for each in rows.values() for row in each})
    if len(numbers) < 2:
        return []
    log = numbers[-1] >= WIDE * numbers[0]
    x = Axis("workers", log=log, switch="workers")
    longest = max(row.iteration_time or 0.0 for each in rows.values() for row in each)
    factor, unit = time_unit(longest)
    best = max(row.efficiency or 0.0 for each in rows.values() for row in each)
    return [
        _throughput(rows, x, log),
        _chart(
            *("efficiency", "Efficiency", rows, x),
            Axis("throughput / ideal", percent=True, limits=(0.0, 1.05 * max(1.0, best))),
            lambda row: row.efficiency,
            "{:.1%}".format,
        ),
        _chart(
            *("time_by_workers", "Iteration time", rows, x),
            Axis(f"time ({unit})", limits=(0.0, 1.05 * longest * factor)),
            lambda row: (row.iteration_time or 0.0) * factor,
            lambda value: format_duration(value / factor),
        ),
        _chart(
            *("exposed_communication", "Exposed communication", rows, x),
            Axis("share of the iteration", percent=True, limits=(0.0, 1.0)),
            _exposed,
            "{:.1%}".format,
        ),
        _parts(next(iter(rows.values()))) if len(runs) == 1 else None,
    ]


def _throughput(rows: Mapping[Run, Sequence[Row]], x: Axis, log: bool) -> Chart | None:
    chart = _chart(
        *("scaling", "Throughput", rows, x),
        Axis("examples/s", log=log, switch="examples/s"),
        lambda row: row.examples_per_second,
        "{:,.1f} examples/s".format,
    )
    if chart is None:
        return None
    marks = [_curve(run, each, ideal_examples, "ideal", faint=True) for run, each in rows.items()]
    return Chart(
        chart.name,
        chart.title,
        chart.x,
        chart.y,
        (*chart.marks, *(mark for mark in marks if mark is not None)),
        caption="Ideal: as many workers that never wait, over a network that costs nothing.",
    )


def _chart(
    name: str,
    title: str,
    rows: Mapping[Run, Sequence[Row]],
    x: Axis,
    y: Axis,
    value: Value,
    write: Callable[[float], str],
) -> Chart | None:
    """Return a line with a dot at each number of workers for each run; None without any value."""
    series, marks = title.lower(), list[Mark]()
    for run, each in rows.items():
        if (curve := _curve(run, each, value, series)) is None:
            continue
        labels = tuple(
            f"{number:.0f} workers: {write(float(found))}"
            for number, found in zip(curve.x, curve.y, strict=True)
        )
        marks += [curve, Dots(curve.x, curve.y, labels, run.index, series)]
    return Chart(name, f"{title} by workers", x, y, tuple(marks)) if marks else None


def _curve(
    run: Run, rows: Sequence[Row], value: Value, series: str, faint: bool = False
) -> Curve | None:
    points = [(row.workers, found) for row in rows if (found := value(row)) is not None]
    if not points:
        return None
    workers, values = np.array(points, dtype=np.float64).T
    return Curve(workers, values, run.index, series, faint)


def _exposed(row: Row) -> float:
    return (row.breakdown or {})["exposed_communication"] / (row.iteration_time or 1.0)


def _parts(rows: Sequence[Row]) -> Chart:
    """Return the mean time of workers in parts, a bar for each number of them."""
    kept = np.unique(np.linspace(0, len(rows) - 1, min(len(rows), ROWS)).round().astype(int))
    shown = [rows[place] for place in kept]
    return part_bars(
        *("parts_by_workers", "An iteration of a worker, in the mean", "workers"),
        [f"{row.workers:,}" for row in shown],
        [row.breakdown or {} for row in shown],
    )
