"""Iterations of ranks as bars in parts: computing, exposed communication, waiting, ..."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from paracosm.report.chart import Axis, Boxes, Chart, time_unit
from paracosm.units import format_duration

LEAST = 5e-4  # of the time: a part below this in all bars is not worth a name

PARTS: Mapping[str, tuple[str, int | None]] = {
    "compute": ("compute", 0),
    "copies": ("copies", 3),
    "exposed_communication": ("exposed communication", 1),
    "waiting": ("waiting for others", 4),
    "bubble": ("pipeline bubble", 2),
    "launch": ("launching", 5),
    "idle": ("idle", None),
}
"""Name and colour of each part; without a colour it is left blank."""


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
    whole = np.array([_whole(each) for each in breakdowns])
    factor, unit = time_unit(float(whole.max()))
    places, reached = np.arange(len(names), dtype=np.float64), np.zeros(len(names))
    marks = []
    for part in shown_parts(breakdowns):
        series, color = PARTS[part]
        times = np.array([each.get(part, 0.0) for each in breakdowns])
        labels = tuple(
            f"{who}, {series}: {format_duration(time)}, {time / (total or 1.0):.1%}"
            for who, time, total in zip(names, times.tolist(), whole.tolist(), strict=True)
        )
        if color is not None:
            ends = reached * factor, (reached + times) * factor
            marks.append(Boxes(*ends, places, labels, 0.7, color, series))
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


def shown_parts(breakdowns: Iterable[Mapping[str, float]]) -> list[str]:
    """Return the parts that matter in one of the breakdowns at least; computing always does."""
    breakdowns = list(breakdowns)
    return [
        part
        for part in PARTS
        if part == "compute"
        or any(each.get(part, 0.0) > LEAST * _whole(each) for each in breakdowns)
    ]


def _whole(breakdown: Mapping[str, float]) -> float:
    return sum(breakdown.get(part, 0.0) for part in PARTS)


def ranks_alike(alike: Mapping[str, Any]) -> str:
    """Name ranks that spend their time alike."""
    others = alike["ranks"] - 1
    return f"{alike['first']} and {others:,} alike" if others else str(alike["first"])
