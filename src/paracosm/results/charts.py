"""Charts that many kinds of run share: bars, lines, histograms. Values are in SI units."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from paracosm.results.chart import Area, Axis, Boxes, Chart, Curve, Dots, Floats, Mark, Symbol
from paracosm.results.view import Run
from paracosm.units import format_duration

WIDE = 10.0  # times the lowest value, from which on an axis is logarithmic
HISTOGRAMS = 20  # rows of a chart of histograms
LEAST = 5e-4  # share of the time: parts below it in all bars are not named
PALEST = 0.45  # shade of the first of several
POINTS: tuple[Symbol, ...] = ("dot", "triangle", "diamond", "square")


def is_wide(values: Iterable[float], factor: float = WIDE) -> bool:
    """Whether positive values differ by such a factor that a logarithmic axis is better."""
    positive = [value for value in values if value > 0]
    return bool(positive) and max(positive) >= factor * min(positive)


def shade_of(rank: int, count: int) -> float:
    """Return one of `count` shades, the last at full strength.

    Many shades look alike: lines differ in their dashes besides, points in their `symbol_of`.
    """
    return 1.0 if count < 2 else PALEST + (1 - PALEST) * rank / (count - 1)


def symbol_of(rank: int, count: int) -> Symbol:
    """Return the symbol of points in that shade, a dot for the last."""
    return POINTS[(count - 1 - rank) % len(POINTS)]


def row_chart(
    name: str,
    title: str,
    x: Axis,
    rows: Iterable[str],
    marks: Iterable[Mark],
    caption: str = "",
    *,
    pixels: int = 26,
    label: str = "",
    wide: bool = True,
) -> Chart:
    """Return a chart with a row of `pixels` height for each name."""
    y = Axis(label, names=tuple(rows))
    height = 110 + pixels * len(y.names)
    return Chart(name, title, x, y, tuple(marks), caption, height=height, wide=wide)


@dataclass(frozen=True)
class Part:
    """A part of every bar: a value and a text for each, and a colour; None leaves it blank."""

    series: str
    color: int | None
    values: Sequence[float]
    labels: Sequence[str]


def bar_chart(
    name: str,
    title: str,
    x: Axis,
    rows: Sequence[str],
    parts: Iterable[Part],
    caption: str = "",
    *,
    label: str = "",
    wide: bool = True,
) -> Chart:
    """Return a horizontal bar for each row, its parts one behind the other."""
    places, reached = np.arange(len(rows), dtype=np.float64), np.zeros(len(rows))
    marks = []
    for part in parts:
        end = reached + np.asarray(part.values)
        if part.color is not None:
            texts = tuple(part.labels)
            marks.append(Boxes(reached, end, places, texts, 0.7, part.color, part.series))
        reached = end
    x = replace(x, limits=(0.0, 1.01 * float(reached.max(initial=0.0)) or 1.0))
    return row_chart(name, title, x, rows, marks, caption, label=label, wide=wide)


PARTS: Mapping[str, tuple[str, int | None]] = {
    "compute": ("compute", 0),
    "copies": ("copies", 3),
    "exposed_communication": ("exposed communication", 1),
    "waiting": ("waiting for others", 4),
    "bubble": ("pipeline bubble", 2),
    "launch": ("launching", 5),
    "host": ("waiting for the host", 5),
    "idle": ("idle", None),
}
"""Name and colour of each part of an iteration; without a colour it is left blank."""


def breakdown_chart(
    name: str,
    title: str,
    breakdowns: Mapping[str, Mapping[str, float]],
    caption: str = "",
    label: str = "",
) -> Chart:
    """Return a bar for each breakdown by its name: seconds by part of `PARTS`."""
    wholes = [_whole(breakdown) for breakdown in breakdowns.values()]

    def part(key: str) -> Part:
        series, color = PARTS[key]
        times = [breakdown.get(key, 0.0) for breakdown in breakdowns.values()]
        labels = [
            f"{row}, {series}: {format_duration(time)}, {time / (whole or 1.0):.1%}"
            for row, time, whole in zip(breakdowns, times, wholes, strict=True)
        ]
        return Part(series, color, times, labels)

    parts = map(part, shown_parts(breakdowns.values()))
    rows = list(breakdowns)
    return bar_chart(name, title, Axis("time", unit="s"), rows, parts, caption, label=label)


def shown_parts(breakdowns: Iterable[Mapping[str, float]]) -> list[str]:
    """Return the parts that matter in at least one breakdown; computing is always included."""
    breakdowns = list(breakdowns)
    return [
        part
        for part in PARTS
        if part == "compute"
        or any(breakdown.get(part, 0.0) > LEAST * _whole(breakdown) for breakdown in breakdowns)
    ]


def _whole(breakdown: Mapping[str, float]) -> float:
    return sum(breakdown.get(part, 0.0) for part in PARTS)


def line(
    run: Run,
    x: ArrayLike,
    y: ArrayLike,
    series: str,
    labels: Iterable[str],
    symbol: Symbol = "dot",
    color: int | None = None,
    *,
    faint: bool = False,
) -> list[Mark]:
    """Return a line through points, each with a symbol and a text; nothing without points."""
    x, y = np.asarray(x, dtype=np.float64), np.asarray(y, dtype=np.float64)
    if not len(x):
        return []
    return [
        Curve(x, y, run.index, series, faint, color),
        Dots(x, y, tuple(labels), run.index, series, symbol, color),
    ]


def band(
    x: Floats,
    low: Floats,
    high: Floats,
    labels: Sequence[str],
    run: int,
    series: str,
    color: int | None = None,
    shade: float = 1.0,
) -> Area:
    """Return the area between two lines; `labels` describe its points."""
    outline = np.concatenate([x, x[::-1]]), np.concatenate([low, high[::-1]])
    return Area(*outline, (*labels, *labels[::-1]), run, series, color, shade)


def ranges(x: Floats, low: Floats, high: Floats) -> tuple[Floats, Floats]:
    """Return the points of a curve that is a vertical bar at each `x`, with gaps between."""
    gap = np.full(len(x), np.nan)
    return np.column_stack([x, x, gap]).ravel(), np.column_stack([low, high, gap]).ravel()


Histogram = tuple[Floats, Floats]
"""The edges (n + 1,) and the shares (n,) of bins."""


def histogram_chart(
    name: str,
    title: str,
    x: str,
    counted: str,
    rows: Sequence[tuple[str, int, Histogram]],
    row_noun: str = "",
    caption: str = "",
) -> Chart:
    """Return histograms in named rows, each to its own scale.

    Args:
        name: of the chart.
        title: of the chart.
        x: label of the axis, such as "staleness (updates)".
        counted: what has it, such as "gradients".
        rows: name, index of the run, and histogram of each row.
        row_noun: what a row stands for; empty for a single histogram with its own axis.
        caption: further remarks.
    """
    left_out, rows = len(rows) - HISTOGRAMS, rows[:HISTOGRAMS]
    names = tuple(name if len(name) <= 30 else f"{name[:29]}…" for name, _, _ in rows)
    quantity = x.split(" (")[0]
    marks = []
    highest = 5.5
    for row, (_, run, (edges, shares)) in enumerate(rows):
        highest = max(highest, float(edges[-1]))
        outline = np.repeat(edges, 2)
        heights = np.concatenate([[0.0], np.repeat(shares, 2), [0.0]])
        labels = tuple(
            f"{quantity} {np.ceil(edge) + 0.0:.0f}: {height:.2%}"
            for edge, height in zip(outline, heights, strict=True)
        )
        y: Floats = row + 0.4 - 0.8 * heights / shares.max() if row_noun else heights
        marks.append(Area(outline, y, labels, run, counted))
    scaled = f"Each {row_noun} is scaled to its own peak." if row_noun else ""
    more = f"{left_out:,} more {row_noun}s are not shown." if left_out > 0 else ""
    share = Axis(f"share of {counted}", percent=True, from_zero=True)
    return Chart(
        name=name,
        title=title,
        x=Axis(x, limits=(-0.5, highest), whole=True),
        y=Axis("", names=names) if row_noun else share,
        marks=tuple(marks),
        caption=" ".join(filter(None, [scaled, more, caption])),
        height=max(320, 110 + 30 * len(rows)),
    )


def histograms_by_run(
    runs: Sequence[Run], of_run: Callable[[Run], Histogram | None]
) -> tuple[list[tuple[str, int, Histogram]], str]:
    """Return the rows of a chart of histograms with one for each run that has one, and their
    noun.
    """
    rows = [(run.name, run.index, bins) for run in runs if (bins := of_run(run)) is not None]
    return rows, "run" if len(runs) > 1 else ""


def counted_histogram(staleness: Mapping[str, Any]) -> Histogram | None:
    """Return the histogram of a summary's counts: bins of `width` values (1)."""
    counts: Floats = np.array(staleness.get("counts") or [], dtype=np.float64)
    seen = np.flatnonzero(counts)
    if not len(seen):
        return None
    width = int(staleness.get("width") or 1)
    if width == 1:
        return histogram(seen.astype(np.float64), counts=counts[seen])
    first, last = seen[0], seen[-1]
    edges = width * np.arange(first, last + 2, dtype=np.float64) - 0.5
    return edges, counts[first : last + 1] / (counts.sum() * width)


def histogram(values: Floats, most: int = 100, counts: Floats | None = None) -> Histogram:
    """Return the edges and the shares of a histogram of whole numbers, each its own bin; other
    values count for the nearest one. Where they range over more than `most` numbers, a bin holds
    several; its share is then the mean over the numbers in it, so that histograms with different
    bins compare. `counts`, of the same shape, are the multiplicities of the values (default: 1).
    Values that are not finite are left out.
    """
    known = np.isfinite(values)
    values, counts = values[known], None if counts is None else counts[known]
    if not len(values):
        return np.array([-0.5, 0.5]), np.zeros(1)
    low, high = np.rint(values.min()), np.rint(values.max())
    width = np.ceil((high - low + 1) / most)
    bins = int(np.ceil((high - low + 1) / width))
    edges = low - 0.5 + width * np.arange(bins + 1)
    sums, _ = np.histogram(values, edges, weights=counts)
    return edges, sums / (sums.sum() * width)


def quantiles(values: Floats, most: int = 200) -> NDArray[np.intp]:
    """Return the indices of at most `most` values, evenly by rank, the lowest and highest kept."""
    order = np.argsort(values, kind="stable")
    if len(values) <= most:
        return order
    return order[np.linspace(0, len(values) - 1, most).round().astype(np.intp)]
