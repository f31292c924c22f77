"""How old what was read had become, as a histogram of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paracosm.report.chart import Area, Axis, Chart, Floats
from paracosm.report.run import Run

__all__ = ["Histogram", "staleness_chart"]

Histogram = tuple[Floats, Floats]
"""The edges (n + 1,) and the shares (n,) of bins."""


def staleness_chart(
    runs: Sequence[Run],
    histograms: Mapping[int, Histogram],
    what: str,
    height: int = 320,
    caption: str = "",
) -> Chart | None:
    """Return one histogram on an axis of its own, or several in rows, each to its own scale.

    Args:
        runs: the runs of the report.
        histograms: by the index of the run; those without data are missing.
        what: what it is the staleness of ("gradients").
        height: of the plot, CSS pixels.
        caption: what else to say of it.
    """
    known = [run for run in runs if run.index in histograms]
    if not known:
        return None
    rows = tuple(_short(run.name) for run in known) if len(runs) > 1 else ()
    marks = []
    peak, highest = 0.0, 0.0
    for row, run in enumerate(known):
        edges, shares = histograms[run.index]
        peak, highest = max(peak, float(shares.max())), max(highest, float(edges[-1]))
        x = np.repeat(edges, 2)
        heights = np.concatenate([[0.0], np.repeat(shares, 2), [0.0]])
        labels = tuple(f"staleness {_whole(e)}: {h:.2%}" for e, h in zip(x, heights, strict=True))
        y: Floats = row + 0.4 - 0.8 * heights / shares.max() if rows else heights
        marks.append(Area(x, y, labels, run.index, what))
    scaled = "Each run is scaled to its own peak." if rows else ""
    return Chart(
        name="staleness",
        title=f"Staleness of {what}",
        x=Axis("staleness (updates)", limits=(-0.5, max(5.5, highest))),
        y=(
            Axis("", names=rows)
            if rows
            else Axis(f"share of {what}", percent=True, limits=(0.0, 1.05 * peak))
        ),
        marks=tuple(marks),
        caption=" ".join(filter(None, [scaled, caption])),
        height=height,
    )


def _short(name: str) -> str:
    return name if len(name) <= 30 else f"{name[:29]}…"


def _whole(edge: float) -> str:
    return f"{np.ceil(edge):.0f}"
