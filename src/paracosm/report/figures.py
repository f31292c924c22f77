"""Charts as Plotly figures: plain mappings, which the page's script draws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

import numpy as np

from paracosm.report.chart import GREY, X_FIELDS, Y_FIELDS, color_of, dash_of, largest_of
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
    Style,
)

FAINT = 0.4
FEW = 12  # whole numbers on an axis, up to which each has a tick
SYMBOLS = {
    "dot": "circle",
    "triangle": "triangle-up",
    "diamond": "diamond",
    "square": "square",
    "cross": "x",
}


def plotly_figure(chart: Chart, runs: Sequence[str]) -> dict[str, Any]:
    """Return the figure (`data` and `layout`) of a chart whose runs have the names `runs`.

    Each trace notes its run and its series in `meta`, by which the page switches it on and off.
    """
    names = [escape(name) for name in runs]  # Plotly reads text as markup
    return {
        "data": [
            _trace(mark, names, chart.styles) | {"visible": mark.series not in chart.hidden}
            for mark in chart.marks
        ],
        "layout": {
            "height": chart.height,
            "margin": {"l": 8, "r": 12, "t": 10, "b": 8},
            "xaxis": _axis(chart.x, largest_of(chart.marks, X_FIELDS)),
            "yaxis": _axis(chart.y, largest_of(chart.marks, Y_FIELDS)),
            "showlegend": False,
            "hovermode": "closest",
            "barmode": "overlay",
            "paper_bgcolor": "rgba(0,0,0,0)",
            "plot_bgcolor": "rgba(0,0,0,0)",
        },
    }


def _trace(mark: Mark, names: Sequence[str], styles: Sequence[Style]) -> dict[str, Any]:
    if isinstance(mark, Level):
        return _level(mark)
    color = color_of(mark, styles)
    name = "" if mark.run == NO_RUN else names[mark.run]
    base: dict[str, Any] = {
        "name": name or escape(mark.series),
        "meta": {"run": mark.run, "series": mark.series},
    }
    if not isinstance(mark, Boxes):
        base |= {"type": "scatter", "x": numbers(mark.x), "y": numbers(mark.y)}
    if not isinstance(mark, Curve):
        base |= {
            "text": [escape(text) for text in mark.labels],
            "hovertemplate": f"%{{text}}<extra>{name if len(names) > 1 else ''}</extra>",
        }
    match mark:
        case Curve():
            line = {"color": color, "width": 1 if mark.faint else 2, "dash": dash_of(mark, styles)}
            point = f"{escape(mark.series)} %{{y:.4g}} at %{{x:.4g}}<extra>{name}</extra>"
            return base | {
                # A single value would be no line at all.
                "mode": "lines" if len(mark.x) > 1 else "markers",
                "line": line,
                "marker": {"color": color},
                "opacity": FAINT if mark.faint else 1,
                "hoverinfo": "skip" if mark.faint else "all",
                "hovertemplate": None if mark.faint else point,
            }
        case Area():
            red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
            return base | {
                "mode": "lines",
                "line": {"color": color, "width": 1.5, "shape": "linear"},
                "fill": "toself",
                "fillcolor": f"rgba({red},{green},{blue},0.3)",
                "hoveron": "points",
            }
        case Dots():
            return base | {
                "mode": "markers",
                "marker": {
                    "color": color,
                    "size": 7 if mark.symbol == "dot" else 10,
                    "symbol": SYMBOLS[mark.symbol],
                    "opacity": 0.75 if mark.symbol == "dot" else 1,
                },
            }
        case Boxes():
            return base | {
                "type": "bar",
                "orientation": "h",
                "base": numbers(mark.begin),
                "x": numbers(mark.end - mark.begin),
                "y": numbers(mark.row),
                "width": mark.height,
                "marker": {"color": color, "line": {"width": 0}},
                "textposition": "none",
            }


def _level(mark: Level) -> dict[str, Any]:
    label = escape(mark.label)
    return {
        "name": label,
        "meta": {"run": mark.run, "series": mark.series},
        "type": "scatter",
        "mode": "lines",
        "x": [mark.begin, mark.end],
        "y": [mark.y, mark.y],
        "line": {"color": GREY, "width": 1.5, "dash": "dash"},
        "hovertemplate": f"{label}<extra></extra>",
    }


def _axis(axis: Axis, largest: float) -> dict[str, Any]:
    layout: dict[str, Any] = {
        "title": {"text": axis.label, "standoff": 10},
        "type": "log" if axis.log else "linear",
        "automargin": True,
        "zeroline": False,
        "exponentformat": "power",
        "minexponent": 6,  # up to millions, digits are easier to read
        "separatethousands": True,
    }
    if axis.percent:
        layout["tickformat"] = ".2~%"
    if axis.whole:
        layout["tickformat"] = ",d"  # by which the page's script knows the axis
        if largest <= FEW and not axis.log:
            layout["dtick"] = 1  # Plotly would put fractions between them
    if axis.limits:
        layout["range"] = [math.log10(end) if axis.log else end for end in axis.limits]
    if axis.names:
        layout |= {
            "tickvals": list(range(len(axis.names))),
            "ticktext": [escape(name) for name in axis.names],
            "range": [len(axis.names) - 0.5, -0.5],
            "showgrid": False,
            "ticks": "",
            "minor": {"tickvals": [row + 0.5 for row in range(len(axis.names) - 1)]},
        }
    return layout


def numbers(values: Floats) -> list[float | None]:
    """Return values for JSON: rounded to six digits, more than a screen shows; a gap is None."""
    return [float(f"{value:.6g}") if np.isfinite(value) else None for value in values.tolist()]
