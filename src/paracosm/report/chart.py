"""What charts have in common: colours, units, thinning, which of them say anything."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from paracosm.results.chart import (
    NO_RUN,
    Area,
    Axis,
    Boxes,
    Chart,
    Curve,
    Dots,
    Floats,
    Level,
    Mark,
    Section,
    Style,
)

# Okabe and Ito's palette, told apart by colour-blind readers, without black and yellow, which
# vanish on a dark and on a white page.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("solid", "dash", "dot")  # the palette once more, from the seventh run on
GREY = "#808080"  # of marks without a run; legible on dark and white pages
WIDE = 10.0  # times the lowest value, from which on an axis is logarithmic

PALEST = 0.45  # shade of the first of several


def style_of(run: int, styles: Sequence[Style] = ()) -> Style:
    """Return the style of a run; without any given, its place in the report selects it."""
    return styles[run] if styles else Style(run, dash=run // len(COLORS))


def shade_of(rank: int, count: int) -> float:
    """Return one of `count` distinguishable shades, the last at full strength."""
    return 1.0 if count < 2 else PALEST + (1 - PALEST) * rank / (count - 1)


def color_of(mark: Mark, styles: Sequence[Style] = ()) -> str:
    """Return the colour of a mark: its own, that of its run, or grey without a run."""
    if isinstance(mark, Level):
        return GREY
    if mark.color is None:
        color, shade, _ = style_of(mark.run, styles)
    else:
        color, shade = mark.color, 1.0 if isinstance(mark, Boxes) else mark.shade
    return _paler(COLORS[color % len(COLORS)], shade)


def _paler(color: str, shade: float) -> str:
    parts = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    return "#" + "".join(f"{round(255 - shade * (255 - part)):02X}" for part in parts)


def dash_of(curve: Curve, styles: Sequence[Style] = ()) -> str:
    """Return the dash style of a curve: that of its run, where the run selects its colour."""
    is_of_run = curve.run != NO_RUN and curve.color is None
    return DASHES[style_of(curve.run, styles).dash % len(DASHES) if is_of_run else 0]


def row_chart(
    name: str,
    title: str,
    x: Axis,
    rows: Iterable[str],
    marks: Iterable[Mark],
    caption: str = "",
    *,
    pixels: int,
    label: str = "",
    wide: bool = True,
) -> Chart:
    """Return a chart with a row of `pixels` height for each name."""
    y = Axis(label, names=tuple(rows))
    height = 110 + pixels * len(y.names)
    return Chart(name, title, x, y, tuple(marks), caption, height=height, wide=wide)


HISTOGRAMS = 20  # rows of a chart of histograms


def histogram_height(runs: int) -> int:
    """Return the height of the histograms, a row for each run, and of the figure beside them."""
    return max(320, 110 + 30 * min(runs, HISTOGRAMS))


def shown_sections(parts: Iterable[tuple[str, Iterable[Chart | None]]]) -> list[Section]:
    """Return the sections with an informative chart: not None, a single bar or dot."""
    found = (
        (title, tuple(chart for chart in charts if chart is not None and _is_informative(chart)))
        for title, charts in parts
    )
    return [Section(title, charts) for title, charts in found if charts]


def overview_of(charts: Iterable[Chart | None]) -> Section | None:
    """Return the section that comes first of several runs; None where it has no chart."""
    return next(iter(shown_sections([("What it depends on", charts)])), None)


def _is_informative(chart: Chart) -> bool:
    """Whether a chart has a line, or at least two bars or dots that differ."""
    places: set[tuple[float, ...]] = set()
    edges: set[float] = set()  # corners of outlines, two of which enclose a bar
    for mark in chart.marks:
        match mark:
            case Curve() | Dots():
                shown = np.isfinite(mark.x) & np.isfinite(mark.y)
                places |= set(zip(mark.x[shown].tolist(), mark.y[shown].tolist(), strict=True))
            case Area():
                edges |= set(mark.x.tolist())
            case Boxes():
                ends = (mark.begin.tolist(), mark.end.tolist(), mark.row.tolist())
                places |= set(zip(*ends, strict=True))
    return len(places) + max(0, len(edges) - 1) > 1


def time_unit(longest: float) -> tuple[float, str]:
    """Return the factor and the name of the unit that suits times up to `longest` seconds."""
    for factor, unit in ((1.0, "s"), (1e3, "ms"), (1e6, "µs")):
        if longest * factor >= 1:
            return factor, unit
    return (1.0, "s") if longest <= 0 else (1e9, "ns")


def size_unit(largest: float) -> tuple[float, str]:
    """Return the factor and the name of the unit that suits sizes up to `largest` bytes."""
    for power, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if largest >= 10**power:
            return 10.0**-power, unit
    return 1.0, "B"


def extremes(y: Floats, points: int = 2000) -> NDArray[np.intp]:
    """Return the indices, at most about `points`, of a thinned curve that keeps its outline.

    The curve is cut into equal runs of points, and the first, lowest, highest and last one of
    each are kept: a spike never disappears.
    """
    if len(y) <= points:
        return np.arange(len(y))
    kept = []
    for part in np.array_split(np.arange(len(y)), points // 4):
        values = y[part]
        # A stretch without any number keeps its ends, hence stays a gap.
        known = part[np.isfinite(values)] if np.isfinite(values).any() else part
        inside = y[known]
        kept += [part[0], known[inside.argmin()], known[inside.argmax()], part[-1]]
    return np.unique(kept)


def histogram(
    values: Floats, most: int = 100, counts: Floats | None = None
) -> tuple[Floats, Floats]:
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
