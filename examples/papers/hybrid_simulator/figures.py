"""Figures 8 to 14 of the paper: medians over the seeds, and where eight of ten seeds lie."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from curves import Curve, select
from matplotlib.axes import Axes

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#d55e00")
LATENCIES = (0.0, 0.001, 0.01, 0.1)
MANY = (8, 16, 32, 64)
FIGURES_8_TO_11 = ((8, 2, "time"), (9, 4, "time"), (10, 2, "updates"), (11, 4, "updates"))
AXES = {"time": "Virtual time (s)", "updates": "Updates"}


def draw_figures(curves: Sequence[Curve], folder: Path) -> list[tuple[str, str, Path]]:
    """Draw every figure; return number, caption and file of each."""
    figures = []
    for number, workers, against in FIGURES_8_TO_11:
        caption = (
            f"Synchronous and asynchronous, {workers} workers, against "
            f"{AXES[against].lower()}; a gradient takes 200 ms"
        )
        figures.append((str(number), caption, _latencies(curves, workers, against, folder, number)))
    many = select(curves, algorithm="asgd", lr=0.01)
    for number, against in ((12, "time"), (13, "updates")):
        caption = f"8 to 64 asynchronous workers, small step, against {AXES[against].lower()}"
        path = _many(many, "learning rate 0.01", against, folder / f"figure{number}.png")
        figures.append((str(number), caption, path))
    broken = select(curves, algorithm="asgd", lr=0.2)
    path = _many(broken, "learning rate 0.2", "updates", folder / "figure14.png")
    figures.append(("14", "8 to 64 asynchronous workers, the step that worked for 8", path))
    repaired = select(curves, algorithm="staleness-aware")
    path = _many(repaired, "0.2 / staleness", "updates", folder / "staleness_aware.png")
    figures.append(("beyond 14", "The same, each step divided by its gradient's staleness", path))
    return figures


def _latencies(
    curves: Sequence[Curve], workers: int, against: str, folder: Path, number: int
) -> Path:
    figure, axes = plt.subplots(1, 3, figsize=(12, 3.8), sharey=True, layout="constrained")
    modes = (
        ("ssgd", "Synchronous, mean"),
        ("ssgd(reduce=sum)", "Synchronous, sum"),
        ("asgd", "Asynchronous"),
    )
    for plot, (algorithm, title) in zip(axes, modes, strict=True):
        for colour, latency in zip(COLOURS, LATENCIES, strict=True):
            group = select(
                curves, algorithm=algorithm, workers=workers, latency=latency, compute="slow"
            )
            _lines(plot, group, against, colour, f"latency {latency:g} s")
        _finish(plot, f"{title}, {workers} workers", against)
    return _save(figure, folder / f"figure{number}.png")


def _many(curves: Sequence[Curve], title: str, against: str, path: Path) -> Path:
    figure, plot = plt.subplots(figsize=(6.5, 4), layout="constrained")
    for colour, workers in zip(COLOURS, MANY, strict=True):
        group = [curve for curve in curves if curve.workers == workers]
        _lines(plot, group, against, colour, f"{workers} workers")
    _finish(plot, f"{title}, latency 0.001 s", against)
    return _save(figure, path)


def _lines(plot: Axes, group: Sequence[Curve], against: str, colour: str, label: str) -> None:
    axis = np.median([c.virtual_time if against == "time" else c.updates for c in group], axis=0)
    losses = [curve.loss for curve in group]  # some infinite, of runs that exploded
    low, middle, high = np.percentile(losses, (10, 50, 90), axis=0, method="nearest")
    plot.plot(axis, middle, color=colour, lw=1.2, label=label)
    plot.fill_between(axis, low, high, color=colour, alpha=0.2, lw=0)


def _finish(plot: Axes, title: str, against: str) -> None:
    plot.set(title=title, xlabel=AXES[against], ylabel="Training loss", yscale="log")
    plot.grid(alpha=0.25)
    plot.legend(frameon=False, fontsize="small")


def _save(figure: plt.Figure, path: Path) -> Path:
    figure.savefig(path, dpi=110)
    plt.close(figure)
    return path
