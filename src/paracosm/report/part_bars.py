"""Iterations of ranks as bars in parts: computing, exposed communication, waiting, ..."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paracosm.report.chart import Axis, Boxes, Chart, time_unit
from paracosm.report.rank_parts import PARTS, shown_parts, whole_of
from paracosm.units import format_duration

__all__ = ["part_bars"]


def part_bars(
    name: str,
    title: str,
    rows: str,
    names: Sequence[str],
    breakdowns: Sequence[Mapping[str, float]],
    caption: str = "",
) -> Chart:
    """Return a chart with a bar for each breakdown.

    Args:
        name, title, caption: of the chart.
        rows: what the bars differ in.
        names: one for each bar.
        breakdowns: seconds by part; what else is in them is not looked at.
    """
    whole = np.array([whole_of(each) for each in breakdowns])
    factor, unit = time_unit(float(whole.max()))
    places, reached = np.arange(len(names), dtype=np.float64), np.zeros(len(names))
    marks = []
    for part in shown_parts(breakdowns):
        times = np.array([each.get(part, 0.0) for each in breakdowns])
        labels = tuple(
            f"{who}, {PARTS[part].name}: {format_duration(time)}, {time / (total or 1.0):.1%}"
            for who, time, total in zip(names, times.tolist(), whole.tolist(), strict=True)
        )
        if (color := PARTS[part].color) is not None:
            ends = reached * factor, (reached + times) * factor
            marks.append(Boxes(*ends, places, labels, 0.7, color, PARTS[part].name))
        reached = reached + times
    return Chart(
        name=name,
        title=title,
        x=Axis(f"time ({unit})", limits=(0.0, 1.01 * factor * float(whole.max()) or 1.0)),
        y=Axis(rows, names=tuple(names)),
        marks=tuple(marks),
        caption=caption,
        height=110 + 26 * len(names),
        wide=True,
    )
