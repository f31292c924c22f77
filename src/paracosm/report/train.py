"""The charts of training runs: convergence, staleness, utilisation, timeline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import TYPE_CHECKING

import numpy as np

from paracosm.report.chart import Area, Axis, Chart, Curve, Dots, Floats
from paracosm.report.run import Run
from paracosm.report.section import Section
from paracosm.report.thinning import extremes, histogram
from paracosm.report.time_axis import time_unit
from paracosm.report.timeline_chart import timeline_chart
from paracosm.report.utilisation_chart import utilisation_chart

if TYPE_CHECKING:
    from paracosm.study.series import Series

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
    return [
        Section(title, charts)
        for title, all_charts in parts
        if (charts := tuple(chart for chart in all_charts if chart is not None))
    ]


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
            return Dots(x, y, ("diverged",), run.index, "diverged", cross=True)
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
    """Return one histogram on an axis of its own, or several in rows, each to its own scale."""
    known = [run for run in runs if len(run.series("staleness"))]
    if not known:
        return None
    rows = tuple(_short(run.name) for run in known) if len(runs) > 1 else ()
    marks = []
    peak, highest = 0.0, 0.0
    for row, run in enumerate(known):
        edges, shares = histogram(run.series("staleness").value)
        peak, highest = max(peak, float(shares.max())), max(highest, float(edges[-1]))
        x = np.repeat(edges, 2)
        heights = np.concatenate([[0.0], np.repeat(shares, 2), [0.0]])
        labels = tuple(f"staleness {_whole(e)}: {h:.2%}" for e, h in zip(x, heights, strict=True))
        y: Floats = row + 0.4 - 0.8 * heights / shares.max() if rows else heights
        marks.append(Area(x, y, labels, run.index, "gradients"))
    return Chart(
        name="staleness",
        title="Staleness of gradients",
        x=Axis("staleness (updates)", limits=(-0.5, max(5.5, highest))),
        y=(
            Axis("", names=rows)
            if rows
            else Axis("share of gradients", percent=True, limits=(0.0, 1.05 * peak))
        ),
        marks=tuple(marks),
        caption="Each run is scaled to its own peak." if rows else "",
        height=_height(runs),
    )


def _height(runs: Sequence[Run]) -> int:
    """Return the height of the histograms, a row for each run, and of the figure beside them."""
    return max(320, 110 + 30 * len(runs))


def _short(name: str) -> str:
    return name if len(name) <= 30 else f"{name[:29]}…"


def _whole(edge: float) -> str:
    return f"{np.ceil(edge):.0f}"


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
