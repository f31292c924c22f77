"""The charts of training runs: convergence, staleness, utilisation, timeline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from paracosm.report.chart import (
    Axis,
    Chart,
    Curve,
    Dots,
    Floats,
    Section,
    shown_sections,
    time_unit,
)
from paracosm.report.run import Run
from paracosm.report.staleness_chart import staleness_chart
from paracosm.report.thinning import extremes, histogram
from paracosm.report.timeline_charts import timeline_chart
from paracosm.report.utilisation_chart import utilisation_chart

if TYPE_CHECKING:
    from paracosm.studies import Series

__all__ = ["sections"]

LOSSES = {
    "minibatch_loss": "minibatch loss",
    "test_loss": "test loss",
    "loss": "training loss",
}
TIMELINES = 3  # of several runs, the first ones show their timeline
WIDE_RANGE = 30.0  # a loss that falls by more than this factor is shown on a logarithmic axis


def sections(runs: Sequence[Run]) -> list[Section]:
    """Return every section that the runs have data for."""
    timelines = (timeline_chart(run, of_several=len(runs) > 1) for run in runs)
    parts: list[tuple[str, list[Chart | None]]] = [
        (
            "Convergence",
            [_loss(runs, "updates"), _loss(runs, "time"), _accuracy(runs), _staleness(runs)],
        ),
        ("Where the time went", [utilisation_chart(runs)]),
        ("First rounds", list(islice(filter(None, timelines), TIMELINES))),
    ]
    return shown_sections(parts)


def _loss(runs: Sequence[Run], against: str) -> Chart | None:
    unit = _time_unit(runs)
    marks: list[Curve | Dots] = []
    for metric, series in LOSSES.items():
        for run in runs:
            if len(values := run.series(metric)):
                x = _x(values, against, unit)
                kept = extremes(values.value)
                faint = metric == "minibatch_loss"
                marks.append(Curve(x[kept], values.value[kept], run.index, series, faint))
    marks += [mark for run in runs if (mark := _divergence(run, against, unit)) is not None]
    if not marks:
        return None
    hidden = {"test loss"} if any(mark.series == "training loss" for mark in marks) else set()
    if len(runs) > 2:
        hidden |= {"minibatch loss"} if hidden else set()
    shown = np.concatenate([mark.y for mark in marks if mark.series not in hidden])
    shown = shown[np.isfinite(shown) & (shown > 0)]
    return Chart(
        name=f"loss_{against}",
        title="Loss against updates" if against == "updates" else "Loss against virtual time",
        x=Axis("updates") if against == "updates" else _time_axis(unit),
        y=Axis(
            "loss",
            log=len(shown) > 0 and shown.max() > WIDE_RANGE * shown.min(),
            switch="loss",
        ),
        marks=tuple(marks),
        hidden=frozenset(hidden),
    )


def _divergence(run: Run, against: str, unit: tuple[float, str]) -> Dots | None:
    """Return a cross at the last loss that was a number, where the run diverged."""
    if run.folder.status != "diverged":
        return None
    for metric in ("loss", "minibatch_loss"):
        values = run.series(metric)
        finite = np.flatnonzero(np.isfinite(values.value))
        if len(finite):
            last = finite[-1:]
            x, y = _x(values, against, unit)[last], values.value[last]
            return Dots(x, y, ("diverged",), run.index, "diverged", symbol="cross")
    return None


def _accuracy(runs: Sequence[Run]) -> Chart | None:
    unit = _time_unit(runs)
    curves = [
        Curve(_x(values, "time", unit)[kept], values.value[kept], run.index, "test accuracy")
        for run in runs
        if len(values := run.series("accuracy"))
        for kept in [extremes(values.value)]
    ]
    if not curves:
        return None
    return Chart(
        name="accuracy_time",
        title="Accuracy against virtual time",
        x=_time_axis(unit),
        y=Axis("test accuracy", percent=True),
        marks=tuple(curves),
        height=_height(runs),
    )


def _staleness(runs: Sequence[Run]) -> Chart | None:
    histograms = {
        run.index: histogram(staleness.value)
        for run in runs
        if len(staleness := run.series("staleness"))
    }
    return staleness_chart(runs, histograms, "gradients", _height(runs))


def _height(runs: Sequence[Run]) -> int:
    """Return the height of the histograms, a row for each run, and of the figure beside them."""
    return max(320, 110 + 30 * len(runs))


def _x(values: Series, against: str, unit: tuple[float, str]) -> Floats:
    if against == "updates":
        return values.step.astype(np.float64)
    return values.virtual_time * unit[0]


def _time_axis(unit: tuple[float, str]) -> Axis:
    return Axis(f"virtual time ({unit[1]})", switch="time")


def _time_unit(runs: Sequence[Run]) -> tuple[float, str]:
    """Return the unit that suits the longest of the runs."""
    ends = [float(run.numbers.get("virtual_time") or 0.0) for run in runs]
    return time_unit(max(ends))
