"""How the residual falls, or grows, and what faults and rollbacks did to it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.report.chart import Axis, Chart, Curve, Dots, Floats, Level, Symbol, time_unit
from paracosm.report.run import Run
from paracosm.report.thinning import extremes

if TYPE_CHECKING:
    from paracosm.studies import Series

__all__ = ["residual_chart"]

CURVES = {"error": "error of the iterate", "residual": "residual"}
EVENTS: Mapping[str, tuple[str, Symbol]] = {
    "checkpoint": ("checkpoints", "dot"),
    "rollback": ("rollbacks", "triangle"),
    "fault": ("faults", "cross"),
}
MOST_EVENTS = 400  # of a kind and a run; more are drawn evenly spread
QUIET_CHECKPOINTS = 30  # more than these hide the curve, and are switched off to begin with


def residual_chart(runs: Sequence[Run], against: str) -> Chart | None:
    """Return the residual against "time" (virtual) or "sweeps"; None without data.

    A sweep is as many relaxations as there are unknowns; where a run is not finished, and nobody
    has said how many these are, the axis counts relaxations.
    """
    scale = _Scale(runs, against)
    marks: list[Curve | Dots | Level] = []
    for metric, series in CURVES.items():
        for run in runs:
            values = _positive(run.series(metric))
            if len(values):
                kept = extremes(np.log(values.value))
                x = scale.x(run, values)[kept]
                marks.append(
                    Curve(x, values.value[kept], run.index, series, faint=metric == "error")
                )
    if not marks:
        return None
    marks += _levels(runs, marks)
    hidden = {CURVES["error"]} if len(runs) > 2 else set()
    for metric, (series, symbol) in EVENTS.items():
        for run in runs:
            events = _positive(run.series(metric))
            if metric == "checkpoint" and len(events) > QUIET_CHECKPOINTS:
                hidden.add(series)
            if len(events):
                marks.append(_events(run, events, metric, scale.x(run, events), series, symbol))
    marks += [cross for run in runs if (cross := _divergence(run, scale)) is not None]
    return Chart(
        name=f"residual_{against}",
        title=f"Residual against {scale.title}",
        x=scale.axis,
        y=Axis("residual", log=True, switch="residual"),
        marks=tuple(marks),
        hidden=frozenset(hidden),
    )


class _Scale:
    """The x axis: which column of a series it shows, in which unit."""

    def __init__(self, runs: Sequence[Run], against: str) -> None:
        self._time = against == "time"
        ends = [float(run.numbers.get("virtual_time") or 0.0) for run in runs]
        self._factor, unit = time_unit(max(ends))
        known = all(run.numbers.get("unknowns") for run in runs)
        self._rows = {run.index: run.numbers["unknowns"] if known else 1 for run in runs}
        counted = "sweeps" if known else "relaxations"
        self.title = "virtual time" if self._time else counted
        self.axis = Axis(f"virtual time ({unit})", switch="time") if self._time else Axis(counted)

    def x(self, run: Run, values: Series) -> Floats:
        if self._time:
            return values.virtual_time * self._factor
        return values.step / float(self._rows[run.index])


def _levels(runs: Sequence[Run], marks: Sequence[Curve | Dots | Level]) -> list[Level]:
    """Return a line at each tolerance that a run was to reach."""
    ends = np.concatenate([mark.x for mark in marks if isinstance(mark, Curve)])
    begin, end = float(ends.min()), float(ends.max())
    wanted = {run.numbers.get("tolerance") for run in runs}
    return [
        Level(tolerance, begin, end, f"tolerance {tolerance:.3g}", "tolerance")
        for tolerance in sorted(filter(None, wanted), reverse=True)
    ]


def _events(run: Run, events: Series, metric: str, x: Floats, series: str, symbol: Symbol) -> Dots:
    told = _told(run, metric, len(events))
    labels = [
        f"{what}: residual {value:.3g}"
        for what, value in zip(told, events.value.tolist(), strict=True)
    ]
    kept = np.linspace(0, len(x) - 1, min(len(x), MOST_EVENTS)).round().astype(np.intp)
    return Dots(
        x[kept], events.value[kept], tuple(labels[i] for i in kept), run.index, series, symbol
    )


def _told(run: Run, metric: str, count: int) -> list[str]:
    """Return what each event was, as the summary tells the faults."""
    faults: Mapping[str, Any] = run.numbers.get("faults") or {}
    told = [str(event.get("what")) for event in faults.get("events") or []]
    return told if metric == "fault" and len(told) == count else [metric] * count


def _divergence(run: Run, scale: _Scale) -> Dots | None:
    """Return a cross at the last residual that was a number, where the run diverged."""
    values = _positive(run.series("residual"))
    if run.folder.status != "diverged" or not len(values):
        return None
    last = values.value[-1:]
    return Dots(scale.x(run, values)[-1:], last, ("diverged",), run.index, "diverged", "cross")


def _positive(series: Series) -> Series:
    """Return what a logarithmic axis can show."""
    shown = np.isfinite(series.value) & (series.value > 0)
    return series if shown.all() else series.where(shown)
