"""The charts of emulated jobs: iteration times, where they go, collectives, delays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np

from paracosm.report.chart import extremes, row_chart, shown_sections, time_unit
from paracosm.report.timeline_charts import iteration_timeline, part_bars
from paracosm.results.chart import Axis, Boxes, Chart, Curve, Dots, Floats, Level, Mark, Section
from paracosm.results.view import Run
from paracosm.units import format_between, format_duration

TIMELINES = 3  # runs that show their timeline in a comparison
EXPOSED, HIDDEN = 1, 2  # colours


def sections(runs: Sequence[Run]) -> list[Section]:
    """Return every section that the runs have data for."""
    timelines = (iteration_timeline(run, len(runs) > 1) for run in runs)
    parts: list[tuple[str, list[Chart | None]]] = [
        ("Iterations", [iteration_times(runs)]),
        ("Where an iteration goes", [iteration_parts(runs), _collectives(runs)]),
        ("Added delay", [delay_chart(runs)]),
        ("A typical iteration", list(islice(filter(None, timelines), TIMELINES))),
    ]
    return shown_sections(parts)


def _collectives(runs: Sequence[Run]) -> Chart | None:
    """Return exposed and hidden time by kind of collective, of a single run."""
    kinds = runs[0].numbers.get("collectives") or {}
    if len(runs) > 1 or not kinds:
        return None
    per_iteration = any(each["per_iteration"] for each in kinds.values())
    times = {kind: each["per_iteration"] if per_iteration else each for kind, each in kinds.items()}
    times = {kind: each for kind, each in times.items() if each["time"] > 0}
    if not times:
        return None
    longest = max(each["time"] for each in times.values())
    factor, unit = time_unit(longest)
    rows, reached = np.arange(len(times), dtype=np.float64), np.zeros(len(times))
    marks = []
    for part, color in (("exposed", EXPOSED), ("hidden", HIDDEN)):
        labels = tuple(
            f"{kind}, {part}: {format_duration(each[part])} of {format_duration(each['time'])}"
            for kind, each in times.items()
        )
        end = reached + np.array([each[part] for each in times.values()])
        marks.append(Boxes(reached * factor, end * factor, rows, labels, 0.7, color, part))
        reached = end
    return row_chart(
        "collectives",
        "Collectives of an iteration" if per_iteration else "Collectives",
        Axis(f"time ({unit})", limits=(0.0, 1.01 * longest * factor)),
        times,
        marks,
        "Hidden: in progress while the rank computes. Exposed: while it waits. Overlapping "
        "collectives of a kind count once.",
        pixels=26,
    )


RANKS = 24  # bars of real ranks


def iteration_times(runs: Sequence[Run]) -> Chart | None:
    """Return the time of each iteration after the first; of a single run, with its exposed time."""
    known = {run.index: _after_first(run, "iteration_time") for run in runs}
    times = {index: found for index, found in known.items() if len(found[0])}
    if not times:
        return None
    restarted = any((np.diff(step) <= 0).any() for step, _ in times.values())
    highest = max(float(values.max()) for _, values in times.values())
    factor, unit = time_unit(highest)
    marks: list[Mark] = []
    for run in runs:
        if run.index in times:
            step, values = times[run.index]
            step, kept = _places(step, restarted), extremes(values)
            marks.append(Curve(step[kept], values[kept] * factor, run.index, "iteration"))
    if len(runs) == 1:
        step, exposed = _after_first(runs[0], "exposed")
        step, kept = _places(step, restarted), extremes(exposed)
        if len(step):
            at = step[kept], exposed[kept] * factor
            marks.append(Curve(*at, runs[0].index, "exposed communication", color=EXPOSED))
        marks += [] if restarted else _levels(runs[0], factor, times[runs[0].index][0])
    return Chart(
        name="iteration_times",
        title="Iteration times",
        x=Axis("iteration, of all runs of the script" if restarted else "iteration"),
        y=Axis(f"time ({unit})", limits=(0.0, 1.05 * highest * factor or 1.0)),
        marks=tuple(marks),
        caption=(
            "The script ran once for each delay; the first iteration of each holds its start-up "
            "and is left out."
            if restarted
            else "The first iteration holds the start-up and is left out."
        ),
        wide=True,
    )


def iteration_parts(runs: Sequence[Run]) -> Chart | None:
    """Return a bar in parts for each run; of one run, with and without changes, or a real rank."""
    bars: dict[str, Mapping[str, Any]] = {}
    numbers = runs[0].numbers
    if len(runs) == 1 and (before := numbers.get("unchanged")):
        after = "; ".join(numbers.get("what_if") or ())
        bars = {"unchanged": before["breakdown"] or {}, after: numbers.get("breakdown") or {}}
    elif len(runs) == 1 and (ranks := numbers.get("ranks")):
        bars = {f"rank {each['rank']}": each["breakdown"] for each in ranks[:RANKS]}
    else:
        bars = {run.name: run.numbers.get("breakdown") or {} for run in runs}
    bars = {who: parts for who, parts in bars.items() if parts}
    if not bars:
        return None
    alone = len(bars) == 1
    return part_bars(
        *("iteration_parts", "Parts of an iteration", ""),
        ["iteration"] if alone else list(bars),
        [_drawn(parts) for parts in bars.values()],
        "Mean of the middle half of the iterations. Waiting for others: until the last rank "
        "arrived.",
    )


def _after_first(run: Run, metric: str) -> tuple[Floats, Floats]:
    """Return steps and values of a metric of the rank that the summary describes."""
    series = run.series(metric)
    rank = run.numbers.get("slowest_rank")
    chosen = series.step > 0
    if rank is not None:
        chosen &= series.node == f"rank{rank}"
    elif len(series):
        chosen &= series.node == series.node[0]
    found = series.where(chosen)
    return found.step.astype(np.float64), found.value


def _places(step: Floats, restarted: bool) -> Floats:
    """Return the places of iterations on the axis, several runs of the script in sequence."""
    return np.arange(1.0, len(step) + 1) if restarted else step


def _levels(run: Run, factor: float, step: Floats) -> list[Level]:
    time = run.numbers.get("iteration_time")
    if not time:
        return []
    ends = float(step.min()), float(step.max())
    return [
        Level(time[key] * factor, *ends, f"{key} {format_duration(time[key])}", series)
        for key, series in (("median", "median"), ("p10", "p10 and p90"), ("p90", "p10 and p90"))
    ]


def _drawn(breakdown: Mapping[str, float]) -> dict[str, float]:
    """Return the parts under the names common to all jobs; waits without a cause stay blank."""
    late = breakdown["late_peers"]
    return {
        "compute": breakdown["compute"],
        "exposed_communication": breakdown["exposed_communication"] - late,
        "waiting": late,
        "idle": breakdown["waiting"],
    }


FIT = 1  # colours, in a chart of one run
KNEE = 2


def delay_chart(runs: Sequence[Run]) -> Chart | None:
    """Return medians with p10 to p90, the fitted line and its knee; None where no delay varied."""
    known = {run: points for run in runs if (points := _points(run))}
    if not known:
        return None
    every = [point for points in known.values() for point in points]
    x_factor, x_unit = time_unit(max(point["delay"] for point in every))
    y_factor, y_unit = time_unit(max(point["iteration_time"]["median"] for point in every))
    low = min(point["iteration_time"]["p10"] for point in every) * y_factor
    high = max(point["iteration_time"]["p90"] for point in every) * y_factor
    room = 0.08 * (high - low) or 0.1 * high
    limits = max(0.0, low - room), high + room
    marks: list[Mark] = []
    for run, points in known.items():
        alone = len(runs) == 1
        marks += _fit(run, points, x_factor, y_factor, alone)
        marks += _measured(run, points, x_factor, y_factor)
        marks += _knee(run, x_factor, y_factor, limits, alone)
    kinds = {str(run.numbers["knee"]["kind"]) for run in known if run.numbers.get("knee")}
    of = f" of each {kinds.pop()}" if len(kinds) == 1 else ""
    sentence = (runs[0].numbers.get("knee") or {}).get("sentence") if len(runs) == 1 else None
    return Chart(
        name="iteration_time_by_delay",
        title=f"Iteration time against added delay{of}",
        x=Axis(f"added delay ({x_unit})"),
        y=Axis(f"iteration time ({y_unit})", limits=limits),
        marks=tuple(marks),
        caption=" ".join(filter(None, [sentence, "Bars reach from p10 to p90."])),
        height=400,
        wide=True,
    )


def _points(run: Run) -> list[Mapping[str, Any]]:
    return [each for each in run.numbers.get("delays") or () if each["iteration_time"]]


def _measured(
    run: Run, points: Sequence[Mapping[str, Any]], x_factor: float, y_factor: float
) -> list[Mark]:
    """Return a dot at each median, and a bar from p10 to p90 through it."""
    delays = np.array([point["delay"] for point in points]) * x_factor
    times = [point["iteration_time"] for point in points]
    medians, p10, p90 = (
        np.array([time[key] for time in times]) * y_factor for key in ("median", "p10", "p90")
    )
    gap = np.full(len(points), np.nan)
    x: Floats = np.column_stack([delays, delays, gap]).ravel()
    y: Floats = np.column_stack([p10, p90, gap]).ravel()
    texts = [
        format_between(time["p10"], time["median"], time["p90"], format_duration) for time in times
    ]
    labels = tuple(
        f"{format_duration(point['delay'])} added: {median} ({spread})"
        for point, (median, spread) in zip(points, texts, strict=True)
    )
    return [
        Curve(x, y, run.index, "p10 to p90", faint=True),
        Dots(delays, medians, labels, run.index, "median"),
    ]


def _fit(
    run: Run, points: Sequence[Mapping[str, Any]], x_factor: float, y_factor: float, alone: bool
) -> list[Mark]:
    fit = run.numbers.get("knee") or {}
    if fit.get("base") is None:
        return []
    ends = [points[0]["delay"], points[-1]["delay"]]
    delays = np.array([*ends, *([] if fit["knee"] is None else [fit["knee"]])])
    delays.sort()
    x, y = delays * x_factor, _fitted(fit, delays) * y_factor
    return [Curve(x, y, run.index, "fit", color=FIT if alone else None)]


def _knee(
    run: Run, x_factor: float, y_factor: float, limits: tuple[float, float], alone: bool
) -> list[Mark]:
    """Return a diamond at the knee, and a line up to it."""
    fit = run.numbers.get("knee") or {}
    if fit.get("knee") is None:
        return []
    knee = float(fit["knee"])
    y = float(_fitted(fit, np.array([knee]))[0]) * y_factor
    label = f"knee: {format_duration(float(f'{knee:.3g}'))}"
    color = KNEE if alone else None
    edges, heights = np.array([knee, knee]) * x_factor, np.array([limits[0], y])
    place = np.array([knee * x_factor]), np.array([y])
    return [
        Curve(edges, heights, run.index, "knee", color=color),
        Dots(*place, (label,), run.index, "knee", "diamond", color),
    ]


def _fitted(fit: Mapping[str, Any], delays: Floats) -> Any:
    if fit["knee"] is None:
        return fit["base"] + fit["slope"] * delays
    flat = fit["flat_slope"] * np.minimum(delays, fit["knee"])
    steep = fit["slope"] * np.maximum(delays - fit["knee"], 0.0)
    return fit["base"] + flat + steep
