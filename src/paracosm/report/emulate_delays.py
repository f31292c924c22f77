"""Iteration time against the delay added to every collective: figure 4 of the emulation paper."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paracosm.report.chart import Axis, Chart, Curve, Dots, Floats, Mark, time_unit
from paracosm.report.run import Run
from paracosm.units import format_duration

__all__ = ["delay_chart"]

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
    labels = tuple(
        f"{format_duration(point['delay'])} added: {format_duration(time['median'])} "
        f"({format_duration(time['p10'])} to {format_duration(time['p90'])})"
        for point, time in zip(points, times, strict=True)
    )
    return [
        Curve(x, y, run.index, "p10 to p90", faint=True),
        Dots(delays, medians, labels, run.index, "median"),
    ]


def _fit(
    run: Run,
    points: Sequence[Mapping[str, Any]],
    x_factor: float,
    y_factor: float,
    alone: bool,
) -> list[Mark]:
    fit = run.numbers.get("knee") or {}
    if fit.get("base") is None:
        return []
    ends = [points[0]["delay"], points[-1]["delay"]]
    delays = np.array([*ends, *([] if fit["knee"] is None else [fit["knee"]])])
    delays.sort()
    color = FIT if alone else None
    return [
        Curve(delays * x_factor, _fitted(fit, delays) * y_factor, run.index, "fit", color=color)
    ]


def _knee(
    run: Run, x_factor: float, y_factor: float, limits: tuple[float, float], alone: bool
) -> list[Mark]:
    """Return a diamond at the knee, and a line up to it that spans the knee's interval."""
    fit = run.numbers.get("knee") or {}
    if fit.get("knee") is None:
        return []
    knee = float(fit["knee"])
    y = float(_fitted(fit, np.array([knee]))[0]) * y_factor
    interval = f"{format_duration(_digits(fit['low']))} to {format_duration(_digits(fit['high']))}"
    label = f"knee: {format_duration(_digits(knee))} ({interval})"
    color = KNEE if alone else None
    edges = np.array([fit["low"], fit["high"], np.nan, knee, knee]) * x_factor
    heights = np.array([y, y, np.nan, limits[0], y])
    place = np.array([knee * x_factor]), np.array([y])
    return [
        Curve(edges, heights, run.index, "knee", color=color),
        Dots(*place, (label,), run.index, "knee", "diamond", color),
    ]


def _fitted(fit: Mapping[str, Any], delays: Floats) -> Floats:
    if fit["knee"] is None:
        straight: Floats = fit["base"] + fit["slope"] * delays
        return straight
    flat = fit["flat_slope"] * np.minimum(delays, fit["knee"])
    steep = fit["slope"] * np.maximum(delays - fit["knee"], 0.0)
    broken: Floats = fit["base"] + flat + steep
    return broken


def _digits(value: float) -> float:
    return float(f"{value:.3g}")
