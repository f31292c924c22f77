"""Charts as image files, drawn by Matplotlib."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.errors import require, unknown
from paracosm.files import replacing
from paracosm.report.chart import GREY, color_of, dash_of
from paracosm.report.runs import all_charts, described
from paracosm.results.chart import NO_RUN, Area, Axis, Boxes, Chart, Curve, Dots, Level, Mark, Style

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.typing import RcKeyType

    from paracosm.studies import RunFolder


FORMATS = ("png", "svg")
CLOSE = 1000.0  # times the lowest value, up to which a logarithmic axis has 1, 2, 5, 10, ...
PLAIN = (0.001, 1e6)  # between them a logarithmic axis shows 1,000 instead of a power of ten
SYMBOLS = {"dot": "o", "triangle": "^", "diamond": "D", "square": "s", "cross": "x"}
LINE_STYLES: dict[str, Any] = {
    "solid": "-",
    "dash": "--",
    "dot": ":",
    "dashdot": "-.",
    "longdash": (0, (9, 3)),  # line widths drawn, and left out
}
STYLE: dict[RcKeyType, Any] = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#e4e4e4",
    "axes.axisbelow": True,
    "legend.frameon": False,
    "svg.hashsalt": "paracosm",  # the same chart gives the same file
}


def write_images(
    runs: Sequence[RunFolder], folder: str | Path, image_format: str = "png"
) -> list[Path]:
    """Draw every figure of the runs' report into `folder`, one file each: loss_updates.png, ...

    Args:
        runs: one run, or several to overlay.
        folder: created if missing; files of the same names are replaced.
        image_format: "png", of 200 dots per inch, which is twice as many as a screen shows; or
            "svg", which has no dots: it is as sharp at any size, so that nothing is doubled.

    Returns:
        the files, in the order of the report.

    Raises:
        InputError: the format is unknown, or the runs cannot be compared.
    """
    if image_format not in FORMATS:
        raise unknown("image format", image_format, FORMATS)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    shown = described(runs)
    written = []
    for chart in all_charts(shown):
        path = folder / f"{chart.name}.{image_format}"
        with replacing(path) as temporary:
            temporary.write_bytes(picture(chart, [run.name for run in shown], image_format))
        written.append(path)
    return written


def picture(chart: Chart, names: Sequence[str], image_format: str = "png") -> bytes:
    """Return one chart of the runs with these names as the content of an image file."""
    mpl = require("matplotlib", "report", "drawing images")

    stream = io.BytesIO()
    with mpl.rc_context(STYLE):
        metadata = {"Date": None} if image_format == "svg" else None
        drawn(chart, names).savefig(stream, format=image_format, dpi=200, metadata=metadata)
    return stream.getvalue()


def drawn(chart: Chart, names: Sequence[str]) -> Figure:
    """Return one chart of the runs with these names as a figure of Matplotlib."""
    mpl = require("matplotlib", "report", "drawing images")
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(
            figsize=(9.6 if chart.wide else 6.4, max(3.6, chart.height / 90)), layout="constrained"
        )
        FigureCanvasAgg(figure)
        draw(chart, names, figure)
    return figure


def draw(chart: Chart, names: Sequence[str], figure: Figure) -> None:
    """Draw one chart, without the series that are initially switched off."""
    axes = figure.add_subplot()
    axes.set_title(chart.title, loc="left", fontweight="bold")
    marks = [mark for mark in chart.marks if mark.series not in chart.hidden]
    labelled: set[str] = set()
    for mark in marks:
        label = _label(mark, names, marks)
        _draw_mark(mark, None if label in labelled else label, axes, chart.styles)
        labelled.add(label)
    _set_axis(chart.x, axes, "x")
    _set_axis(chart.y, axes, "y")
    rows_have_names = any(isinstance(mark, Area) for mark in marks) and chart.y.names
    if labelled and not rows_have_names:
        columns = 2 if len(names) > 1 else min(4, len(labelled))
        figure.set_figheight(figure.get_figheight() + 0.2 * math.ceil(len(labelled) / columns))
        figure.legend(fontsize=8, loc="outside lower left", ncols=columns)


def _label(mark: Mark, names: Sequence[str], marks: Sequence[Mark]) -> str:
    """Return the legend text of a mark: its run, and its series unless that is the main one."""
    if isinstance(mark, Level):
        return mark.label
    if isinstance(mark, Boxes) or mark.run == NO_RUN or len(names) == 1:
        return mark.series
    main = next((m.series for m in marks if not (isinstance(m, Curve) and m.faint)), None)
    return names[mark.run] if mark.series == main else f"{names[mark.run]}: {mark.series}"


def _draw_mark(mark: Mark, label: str | None, axes: Axes, styles: Sequence[Style]) -> None:
    color = color_of(mark, styles)
    match mark:
        case Level():
            ends = [mark.begin, mark.end]
            axes.plot(ends, [mark.y] * 2, color=GREY, linestyle="--", linewidth=1, label=label)
        case Curve():
            axes.plot(
                mark.x,
                np.where(np.isfinite(mark.y), mark.y, np.nan),
                color=color,
                linestyle=LINE_STYLES[dash_of(mark, styles)],
                linewidth=1 if mark.faint else 1.5,
                alpha=0.5 if mark.faint else 1,
                marker="o" if len(mark.x) == 1 else None,
                label=label,
            )
        case Area():
            axes.fill(mark.x, mark.y, facecolor=f"{color}4d", edgecolor=color, label=label)
        case Dots():
            axes.scatter(
                mark.x,
                mark.y,
                color=color,
                s=12 if mark.symbol == "dot" else 40,
                marker=SYMBOLS[mark.symbol],
                alpha=0.6 if mark.symbol == "dot" else 1,
                linewidths=1.5 if mark.symbol == "cross" else 0,
                label=label,
            )
        case Boxes():
            axes.barh(
                mark.row,
                mark.end - mark.begin,
                left=mark.begin,
                height=mark.height,
                color=color,
                label=label,
            )


def _set_axis(axis: Axis, axes: Axes, which: str) -> None:
    from matplotlib.ticker import LogLocator, MaxNLocator, NullFormatter

    side = axes.xaxis if which == "x" else axes.yaxis
    side.set_label_text(axis.label)
    limits = axis.limits
    if axis.log:
        axes.set(**{f"{which}scale": "log"})
        low, high = limits or side.get_view_interval()
        if high < CLOSE * low:
            side.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
            side.set_minor_formatter(NullFormatter())
        if low > PLAIN[0] and high < PLAIN[1]:
            side.set_major_formatter(lambda value, _: f"{value:,g}")
    elif axis.whole:
        side.set_major_locator(MaxNLocator("auto", integer=True))
    if axis.percent:
        side.set_major_formatter(lambda value, _: f"{100 * value:.3g}%")
    if axis.names:
        side.set_ticks(range(len(axis.names)), axis.names)
        side.grid(False)
        limits = (len(axis.names) - 0.5, -0.5)
    if limits:
        axes.set(**{f"{which}lim": limits})
