"""Throughput from job profiles: what is said of it, and its charts beside coarse models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import numpy as np

from paracosm.report.chart import Area, Axis, Chart, Curve, Dots, Floats, Level, Mark, Symbol
from paracosm.report.run import Run
from paracosm.report.timeline_charts import lane_timeline
from paracosm.report.view import Figure, Table, figure
from paracosm.results import Summary, ThroughputRow, ThroughputSummary
from paracosm.units import format_bandwidth, format_duration, format_size

RESOURCES = ("downlink", "worker", "uplink", "server")

MODELS: Mapping[str, str] = {
    "lin": "Lin et al.",
    "cynthia": "Cynthia",
    "cynthia_half": "Cynthia, half T_C",
}
"""Coarse models that stand beside the prediction, by their names in the summary."""


def _spread(summary: Summary) -> str | None:
    spread = summary.spread if isinstance(summary, ThroughputSummary) else None
    return None if spread is None else f"± {spread:.2g} steps/s"


def _saturation_figure(summary: Summary) -> str | None:
    if not isinstance(summary, ThroughputSummary) or len(summary.throughput) < 2:
        return None
    found = summary.saturation
    return "not yet" if found is None else f"{found.workers:,} workers ({found.because})"


def _of_profile(key: str, form: str) -> Figure:
    """Return a figure that only a prediction from a job profile has."""
    write = figure(key, form.format)
    return lambda summary: write(summary) if isinstance(summary, ThroughputSummary) else None


THROUGHPUT_FIGURES: Mapping[str, Figure] = {
    "Servers": _of_profile("servers", "{:,}"),
    "Steps/s": _of_profile("steps_per_second", "{:.4g}"),
    "Spread": _spread,
    "Saturates at": _saturation_figure,
}


def throughput_name(known: Mapping[str, Any]) -> str | None:
    """Name a run by its profile and its workers; None where it has no profile."""
    if (profile := known.get("profile")) is None:
        return None
    workers = known.get("workers")
    path = PurePath(str(profile))
    # Profiles of the packed form all have one name: that of their folder tells them apart.
    name = path.parent.name or path.name if path.name == "profile.json.gz" else path.name
    return f"{name}, {workers:,} workers" if isinstance(workers, int) else name


def throughput_remarks(summary: ThroughputSummary) -> dict[str, str]:
    """Return what was assumed, what the profile is, and what coarse models say."""
    return {
        "coarse models": _models_text(summary),
        "imagined": _imagined(summary.imagined),
        "profiled": _profiled(summary.job_profile),
    }


def throughput_tables(summary: ThroughputSummary) -> list[Table]:
    """Return throughput beside coarse models, and what limits it, by number of workers."""
    return [_rates_table(summary), _limits(summary.throughput)]


def _rates_table(summary: ThroughputSummary) -> Table:
    rows = summary.throughput
    examples = any(row.examples_per_second is not None for row in rows)
    started = any(row.after_start is not None for row in rows)
    header = (
        *("workers", "steps/s", "spread"),
        *(["examples/s"] if examples else []),
        *(["after start", "its spread"] if started else []),
        *("efficiency", "bottleneck", *(name for key, name in MODELS.items() if key in SHOWN)),
    )
    models = [{each.workers: each for each in summary.baselines[key]} for key in SHOWN]
    return Table(
        "Throughput",
        header,
        tuple(
            (
                f"{row.workers:,}",
                _rate(row.steps_per_second),
                "" if row.spread is None else f"{row.spread:.2g}",
                *([_rate(row.examples_per_second)] if examples else []),
                *(_after_start_cells(row) if started else []),
                f"{row.efficiency:.1%}",
                str(row.bottleneck),
                *(_rate(model[row.workers].steps_per_second) for model in models),
            )
            for row in rows
        ),
    )


SHOWN = ("lin", "cynthia")  # coarse models in the table


def _limits(rows: Sequence[ThroughputRow]) -> Table:
    """Return how busy resources are, and what they would bring if they were twice as fast."""
    return Table(
        "Busy / if twice as fast",
        ("workers", *RESOURCES),
        tuple(
            (f"{row.workers:,}", *(f"{busy[name]:.0%} / {gains[name]:+.0%}" for name in RESOURCES))
            for row in rows
            for busy, gains in [(row.utilisation or {}, row.if_twice_as_fast or {})]
        ),
    )


def _models_text(summary: ThroughputSummary) -> str:
    return ", ".join(
        f"{name} {_rate(summary.baselines[key][-1].steps_per_second)} steps/s"
        for key, name in MODELS.items()
    )


def _imagined(found: Mapping[str, Any]) -> str:
    """Return the assumptions that a user may want to change."""
    window = found["window"]
    parts = [
        f"links of {format_bandwidth(found['bandwidth'])}",
        f"latency {format_duration(found['latency'])}" if found["latency"] else "",
        "streams sent as a whole"
        if window is None
        else f"streams that take turns after {format_size(window)}",
        f"order {found['order']}" if isinstance(found["order"], str) else "an order of one's own",
        f"parsing {found['alpha'] * 1e9:.3g} ns/byte + {format_duration(found['beta'])}"
        if found["alpha"] or found["beta"]
        else "",
        f"{found['cores']:,} cores of each server" if found["cores"] else "",
        _waiting(found),
    ]
    return ", ".join(part for part in parts if part)


def _waiting(found: Mapping[str, Any]) -> str:
    if not found["synchronous"]:
        return "asynchronous"
    return f"synchronous, {found['backup']:,} backup" if found["backup"] else "synchronous"


def _profiled(found: Mapping[str, Any]) -> str:
    dropped = ", ".join(f"{count:,} {reason}" for reason, count in found["dropped"].items())
    steps = f"{found['steps']:,} steps of {found['ops']:,} ops"
    return f"{steps}; left out: {dropped}" if dropped else steps


def _after_start_cells(row: ThroughputRow) -> list[str]:
    after = row.after_start
    return [_rate(after.steps_per_second), f"{after.spread:.2g}"] if after else ["", ""]


def _rate(rate: float | None) -> str:
    return "" if rate is None else f"{rate:,.1f}" if rate >= 1000 else f"{rate:.4g}"


WIDE = 32  # times as many workers: from there on axes are logarithmic

ROOM = 2.0  # times the highest throughput, that an ideal line may take

Row = ThroughputRow
Rows = Mapping[int, Row]

LANES: Mapping[str, tuple[int, int]] = {
    "downlink": (0, 0),
    "compute": (1, 1),
    "uplink": (2, 2),
    "server": (3, 4),
}
"""Lane of a worker -> which line of its row it is drawn on, and its colour."""

SYMBOLS: Mapping[str, Symbol] = {"lin": "cross", "cynthia": "triangle", "cynthia_half": "diamond"}


def throughput_charts(runs: Sequence[Run]) -> list[Chart | None]:
    """Return the charts of runs that were predicted from job profiles, all together."""
    rows = {run: found for run in runs if (found := _rows(run))}
    if not rows:
        return []
    numbers = [number for each in rows.values() for number in each]
    log = max(numbers) >= WIDE * min(numbers)
    x = Axis("workers", log=log, switch="workers")
    several = len({*numbers}) > 1
    return [
        _throughput(rows, x, log),
        _efficiency(rows, x) if several else None,
        _busy(*next(iter(rows.items())), x) if len(runs) == 1 and several else None,
        _gains(*next(iter(rows.items())), x) if len(runs) == 1 and several else None,
    ]


def first_steps_chart(run: Run, of_several: bool) -> Chart | None:
    """Return what each worker does in its first steps: one line for each resource."""
    if not isinstance(run.numbers, ThroughputSummary):
        return None
    return lane_timeline(run, of_several, LANES, lambda lane: lane.split()[0])


def _rows(run: Run) -> Rows:
    if not isinstance(run.numbers, ThroughputSummary):
        return {}
    return {row.workers: row for row in run.numbers.throughput}


def _throughput(rows: Mapping[Run, Rows], x: Axis, log: bool) -> Chart:
    alone = len(rows) == 1
    highest = max(
        _steps(row) + (row.spread or 0.0) for each in rows.values() for row in each.values()
    )
    marks: list[Mark] = []
    for run, each in rows.items():
        marks += _ideal(run, each, ROOM * highest)
        marks += _band(run, each)
        marks += _curve(run, each, _steps, "throughput")
        marks += _dots(run, each, _steps, "throughput", _said)
        marks += _after_start(run, each)
        if alone:
            marks += _models(run, each)
            marks += _saturation(run, each)
    return Chart(
        name="throughput_by_workers",
        title="Throughput by workers",
        x=x,
        y=Axis("steps/s", log=log, switch="steps/s"),
        marks=tuple(marks),
        caption=(
            "The band is the standard deviation between measurements. Ideal: as many workers that "
            "each have the servers to themselves; drawn as far as there is room."
        ),
        # Bands and ideals of several runs cover each other.
        hidden=frozenset(
            {MODELS["cynthia"], MODELS["cynthia_half"]} if alone else {"ideal", "spread"}
        ),
        height=380,
        wide=True,
    )


def _efficiency(rows: Mapping[Run, Rows], x: Axis) -> Chart:
    best = max(row.efficiency or 0.0 for each in rows.values() for row in each.values())
    marks: list[Mark] = []
    for run, each in rows.items():
        marks += _curve(run, each, _efficiency_of, "efficiency")
        marks += _dots(
            *(run, each, _efficiency_of, "efficiency"),
            lambda workers, row: f"{workers:,} workers: {row.efficiency:.1%}",
        )
    return Chart(
        name="efficiency",
        title="Efficiency by workers",
        x=x,
        y=Axis("throughput / ideal", percent=True, limits=(0.0, 1.05 * max(1.0, best))),
        marks=tuple(marks),
    )


def _busy(run: Run, rows: Rows, x: Axis) -> Chart:
    """Return how busy each resource is; of several servers, the busiest."""
    return Chart(
        name="busy_by_workers",
        title="Utilisation by workers",
        x=x,
        y=Axis("share of the time", percent=True, limits=(0.0, 1.05)),
        marks=_by_resource(run, rows, "utilisation", "{}: {:.1%} busy"),
        caption="Of several servers, the busiest. Workers: computing, in the mean.",
    )


def _gains(run: Run, rows: Rows, x: Axis) -> Chart:
    return Chart(
        name="if_twice_as_fast",
        title="If a resource were twice as fast",
        x=x,
        y=Axis("change of throughput", percent=True),
        marks=_by_resource(run, rows, "if_twice_as_fast", "{} twice as fast: {:+.1%}"),
        caption="The one that would bring most is the bottleneck.",
    )


def _by_resource(run: Run, rows: Rows, key: str, write: str) -> tuple[Mark, ...]:
    marks: list[Mark] = []
    for color, resource in enumerate(RESOURCES):

        def value(row: Row, resource: str = resource) -> float:
            return float(row[key][resource])

        marks += _curve(run, rows, value, resource, color=color)
        labels = tuple(
            f"{number:,} workers, {write.format(resource, value(row))}"
            for number, row in rows.items()
        )
        x, y = _points(rows, value)
        marks.append(Dots(x, y, labels, run.index, resource, color=color))
    return tuple(marks)


def _models(run: Run, rows: Rows) -> list[Mark]:
    """Return what coarse models say."""
    marks: list[Mark] = []
    for color, (key, name) in enumerate(MODELS.items(), start=1):
        found = {row.workers: row for row in run.numbers["baselines"][key] if row.workers in rows}
        x, y = _points(found, _steps)
        labels = tuple(
            f"{number:,} workers, {name}: {row.steps_per_second:.4g} steps/s"
            for number, row in found.items()
        )
        marks.append(Curve(x, y, run.index, name, True, color))
        marks.append(Dots(x, y, labels, run.index, name, SYMBOLS[key], color))
    return marks


def _ideal(run: Run, rows: Rows, most: float) -> list[Mark]:
    """Return the ideal line up to a height beyond which it would flatten all others."""
    x, y = _points(rows, lambda row: row.ideal or 0.0)
    return [Curve(x, np.where(y <= most, y, np.nan), run.index, "ideal", True)]


def _after_start(run: Run, rows: Rows) -> list[Mark]:
    known = {number: row for number, row in rows.items() if row.after_start is not None}
    if not known:
        return []
    x, y = _points(known, lambda row: row["after_start"].steps_per_second)
    labels = tuple(
        f"{number:,} workers, the first {row.measure:.4g} s: "
        f"{row.after_start.steps_per_second:.4g} ± {row.after_start.spread:.2g} steps/s"
        for number, row in known.items()
        if row.after_start is not None
    )
    return [Dots(x, y, labels, run.index, "after the start", "diamond")]


def _saturation(run: Run, rows: Rows) -> list[Mark]:
    found = run.numbers["saturation"]
    if found is None:
        return []
    label = f"saturates at {found.workers:,} workers: {found.because}"
    ends = float(found.workers), float(max(rows))
    return [Level(_steps(rows[found.workers]), *ends, label, "saturation")]


def _band(run: Run, rows: Rows) -> list[Mark]:
    known = {number: row for number, row in rows.items() if row.spread is not None}
    if len(known) < 2:
        return []
    x, low = _points(known, lambda row: _steps(row) - (row.spread or 0.0))
    _, high = _points(known, lambda row: _steps(row) + (row.spread or 0.0))
    labels = tuple(_said(number, row) for number, row in known.items())
    outline = np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])
    return [Area(*outline, labels + labels[::-1], run.index, "spread")]


def _said(workers: int, row: Row) -> str:
    spread = "" if row.spread is None else f" ± {row.spread:.2g}"
    return f"{workers:,} workers: {row.steps_per_second:.4g}{spread} steps/s"


def _steps(row: Row) -> float:
    return row.steps_per_second or 0.0


def _efficiency_of(row: Row) -> float:
    return row.efficiency or 0.0


def _curve(
    run: Run,
    rows: Rows,
    value: Callable[[Row], float],
    series: str,
    faint: bool = False,
    color: int | None = None,
) -> list[Mark]:
    return [Curve(*_points(rows, value), run.index, series, faint, color)]


def _dots(
    run: Run,
    rows: Rows,
    value: Callable[[Row], float],
    series: str,
    label: Callable[[int, Row], str],
) -> list[Mark]:
    labels = tuple(label(number, row) for number, row in rows.items())
    return [Dots(*_points(rows, value), labels, run.index, series)]


def _points(rows: Mapping[int, Row], value: Callable[[Row], float]) -> tuple[Floats, Floats]:
    points = [(number, value(row)) for number, row in rows.items()]
    workers, values = np.array(points, dtype=np.float64).reshape(-1, 2).T
    return workers, values
