"""How charts look on a page: colours, units, thinning, which of them say anything."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

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
    Sections,
    Style,
)

# Okabe and Ito's palette, told apart by colour-blind readers, without black and yellow, which
# vanish on a dark and on a white page.
COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash")  # the palette once more, from 7 runs on
GREY = "#808080"  # of marks without a run; legible on dark and white pages


def style_of(run: int, styles: Sequence[Style] = ()) -> Style:
    """Return the style of a run; without any given, its place in the report selects it."""
    return styles[run] if styles else Style(run, dash=run // len(COLORS))


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


def drawn_sections(sections: Sections, styles: Sequence[Style]) -> list[Section]:
    """Return the sections with an informative chart (not None, a single bar or dot), as drawn:
    lines thinned, values in units that suit them.
    """
    parts = []
    for title, charts in sections.items():
        known = [chart for chart in charts if chart is not None and _is_informative(chart)]
        drawn = [_in_units(replace(chart, styles=tuple(styles))) for chart in _evened(known)]
        parts += [Section(title, tuple(drawn))] if drawn else []
    return parts


def _evened(charts: Sequence[Chart]) -> list[Chart]:
    """Return charts, the narrow ones that stand side by side with the same height."""
    evened: list[Chart] = []
    beside = False  # whether the last one leaves room for a second
    for chart in charts:
        if beside and not chart.wide:
            height = max(evened[-1].height, chart.height)
            evened[-1], chart = replace(evened[-1], height=height), replace(chart, height=height)
        evened.append(chart)
        beside = not beside and not chart.wide
    return evened


def _is_informative(chart: Chart) -> bool:
    """Whether a chart has a line, or at least two bars or dots side by side."""
    has_names = chart.x.names or chart.y.names
    places: set[tuple[float, ...]] = set()
    edges: set[float] = set()  # corners of outlines, two of which enclose a bar
    for mark in chart.marks:
        match mark:
            case Curve() | Dots():
                shown = np.isfinite(mark.x) & np.isfinite(mark.y)
                ends = [mark.x, mark.y] if has_names else [mark.x]
                places |= set(zip(*(values[shown].tolist() for values in ends), strict=True))
            case Area():
                edges |= set(mark.x.tolist())
            case Boxes():
                ends = [mark.begin, mark.end, mark.row]
                places |= set(zip(*(values.tolist() for values in ends), strict=True))
    return len(places) + max(0, len(edges) - 1) > 1


X_FIELDS, Y_FIELDS = ("x", "begin", "end"), ("y",)
"""The fields of marks that hold horizontal and vertical values."""


def _in_units(chart: Chart) -> Chart:
    """Return a chart with its lines thinned and its values in the units that suit them."""
    marks = [_thinned(mark) if isinstance(mark, Curve) else mark for mark in chart.marks]
    axes = []
    for axis, fields in ((chart.x, X_FIELDS), (chart.y, Y_FIELDS)):
        shown = [mark for mark in marks if mark.series not in chart.hidden]
        largest = largest_of(shown or marks, fields)
        if axis.from_zero:
            axis = replace(axis, limits=(0.0, 1.05 * largest or 1.0))
        if axis.unit:
            factor, axis = _scaled(axis, largest)
            marks = [_times(mark, fields, factor) for mark in marks]
        elif not (axis.percent or axis.names):
            axis = replace(axis, whole=axis.whole or _are_whole(marks, fields))
        axes.append(axis)
    return replace(chart, x=axes[0], y=axes[1], marks=tuple(marks))


def _scaled(axis: Axis, largest: float) -> tuple[float, Axis]:
    factor, unit = UNITS[axis.unit](largest)
    limits = None if axis.limits is None else (axis.limits[0] * factor, axis.limits[1] * factor)
    return factor, replace(axis, label=f"{axis.label} ({unit})", unit="", limits=limits)


def _values(mark: Mark, fields: Sequence[str]) -> dict[str, Any]:
    return {name: getattr(mark, name) for name in fields if hasattr(mark, name)}


def _finite(marks: Sequence[Mark], fields: Sequence[str]) -> Floats:
    values = [np.ravel(array) for mark in marks for array in _values(mark, fields).values()]
    known: Floats = np.concatenate(values) if values else np.zeros(0)
    return known[np.isfinite(known)]


def largest_of(marks: Sequence[Mark], fields: Sequence[str]) -> float:
    """Return the largest value in the fields of marks, and 0 where none is positive."""
    return float(_finite(marks, fields).max(initial=0.0))


def _are_whole(marks: Sequence[Mark], fields: Sequence[str]) -> bool:
    """Whether an axis counts something: every value on it is a whole number."""
    values = _finite(marks, fields)
    return bool(np.all(values == np.rint(values)))


def _times(mark: Mark, fields: Sequence[str], factor: float) -> Mark:
    values = {name: value * factor for name, value in _values(mark, fields).items()}
    return replace(mark, **values)


def _thinned(curve: Curve) -> Curve:
    kept = extremes(curve.y)
    return replace(curve, x=curve.x[kept], y=curve.y[kept])


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


def rate_unit(largest: float) -> tuple[float, str]:
    """Return the factor and the name of the unit that suits up to `largest` bytes a second."""
    for power, unit in ((9, "Gbit/s"), (6, "Mbit/s"), (3, "kbit/s")):
        if 8 * largest >= 10**power:
            return 8 * 10.0**-power, unit
    return 8.0, "bit/s"


UNITS = {"s": time_unit, "B": size_unit, "B/s": rate_unit}
"""Unit of an axis -> the one that suits its largest value."""


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
