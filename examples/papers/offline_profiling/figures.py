"""Figure 2; errors of iterations, of ops and of designs as pictures."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from conv import Series
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from page import Picture

if TYPE_CHECKING:
    from results import Results

__all__ = ["draw_figures"]

COLOURS = {"warm": "#0072b2", "cold": "#e69f00"}
GREEN, GREY = "#009e73", "0.55"
NAMES = {"warm": "in a row (the paper's way)", "cold": "cold data"}


def draw_figures(results: Results, folder: Path) -> list[Picture]:
    """Draw every figure; return its name, caption and file."""
    pictures = [
        Picture(
            "Figure 2",
            "Conv2D against input channels: times with straight lines through them, bars from the "
            "fastest to the slowest tenth; and the FLOP/s, which show what the times hide",
            draw_figure2(results.figure2, folder / "figure2.png"),
        ),
        Picture(
            "Table 2",
            "Error of a predicted iteration; grey: the slowest and fastest tenth of measured ones",
            draw_table2(results, folder / "table2.png"),
        ),
        Picture(
            "Standard errors",
            "Of the mean, of every op of the models: how many are below",
            draw_steady(results, folder / "steady.png"),
        ),
    ]
    if results.designs:
        pictures.append(
            Picture(
                "Designs",
                "Error of estimates for the models' ops, weighted by time, by op type",
                draw_designs(results, folder / "designs.png"),
            )
        )
    return pictures


def draw_figure2(figure: list[Series], path: Path) -> Path:
    """Draw times and FLOP/s by input channels."""
    names = list(dict.fromkeys(series.name for series in figure))
    drawing, (times, rates) = plt.subplots(1, 2, figsize=(10, 3.9), layout="constrained")
    for series in figure:
        first = series.name == names[0]
        look = {"color": COLOURS[series.cache], "marker": "o" if first else "x", "ms": 4}
        label = f"{series.name}, {NAMES[series.cache]}"
        x = np.array(series.channels)
        rates.plot(x, np.array(series.rates) / 1e9, ls="-" if first else ":", lw=1, **look)
        seconds = 1e3 * np.array(series.seconds)
        # Samples above three times the median are dropped, but a mean may still leave its tenths.
        bars = np.maximum(
            0, [seconds - 1e3 * np.array(series.low), 1e3 * np.array(series.high) - seconds]
        )
        times.errorbar(x, seconds, bars, ls="", elinewidth=0.8, label=label, **look)
        ends = np.array([0, x[-1]])
        line = 1e3 * (series.line.intercept + series.line.slope * ends)
        times.plot(ends, line, color=COLOURS[series.cache], lw=0.8, ls="-" if first else ":")
    _finish(times, "Conv2D, 3 x 3", "Input channels", "Time (ms)")
    _finish(rates, "The same as a rate", "Input channels", "GFLOP/s")
    times.legend(frameon=False, fontsize="small")
    return _save(drawing, path)


def draw_table2(results: Results, path: Path) -> Path:
    """Draw the errors of every model's predictions."""
    drawing, axes = plt.subplots(figsize=(7.5, 3.9), layout="constrained")
    ways = (
        ("in a row (the paper's way)", COLOURS["warm"], "warm"),
        ("cold data", COLOURS["cold"], "own"),
        ("its own shapes held out", GREEN, "held_out"),
    )
    for place, found in enumerate(results.table2.values()):
        low, high = (100 * found.error(each) for each in (found.low, found.high))
        spread = None if place else "tenth to nine tenths of the iterations"
        axes.fill_between([place - 0.45, place + 0.45], low, high, color="0.87", lw=0, label=spread)
        for shift, (label, colour, way) in zip((-0.25, 0, 0.25), ways, strict=True):
            if (predicted := getattr(found, way)) is not None:
                height = 100 * found.error(predicted)
                name = None if place else label
                axes.bar(place + shift, height, 0.22, color=colour, label=name)
    axes.axhline(0, color="black", lw=0.8)
    for limit in (-2, 2):
        axes.axhline(
            limit, color=GREY, lw=0.8, ls="--", label="the paper's 2 %" if limit > 0 else None
        )
    axes.set_xticks(range(len(results.table2)), list(results.table2))
    axes.set(ylabel="Error of the iteration (%)")
    axes.grid(alpha=0.25, axis="y")
    drawing.legend(frameon=False, fontsize="small", ncols=3, loc="outside upper center")
    return _save(drawing, path)


def draw_steady(results: Results, path: Path) -> Path:
    """Draw the distribution of the standard errors, by op type and in all."""
    drawing, axes = plt.subplots(figsize=(7.5, 3.9), layout="constrained")
    types = list(dict.fromkeys(each.what for each in results.steady.by_type))[:14]
    for cache, shift in (("warm", -0.12), ("cold", 0.12)):
        found = {each.what: each for each in results.steady.by_type if each.cache == cache}
        middle = np.array([100 * found[name].median for name in types])
        upper = np.array([100 * found[name].p90 for name in types]) - middle
        axes.errorbar(
            np.arange(len(types)) + shift,
            middle,
            [np.zeros_like(upper), np.maximum(0, upper)],
            color=COLOURS[cache],
            marker="o",
            ms=4,
            ls="",
            elinewidth=0.8,
            capsize=2,
            label=f"{NAMES[cache]}: median, p90",
        )
    axes.axhline(1, color=GREY, lw=0.8, ls="--", label="the paper's 1 %")
    names = [name.split(".")[1] for name in types]
    axes.set_xticks(range(len(types)), names, rotation=40, ha="right", fontsize="small")
    axes.set(ylabel="Standard error (% of the mean)", ylim=(0, None))
    axes.grid(alpha=0.25, axis="y")
    axes.legend(frameon=False, fontsize="small")
    return _save(drawing, path)


def draw_designs(results: Results, path: Path) -> Path:
    """Draw the weighted errors of both designs."""
    cells = {(design.design, design.op): design for design in results.designs}
    ops = list(dict.fromkeys(design.op for design in results.designs))
    drawing, axes = plt.subplots(figsize=(7.5, 3.9), layout="constrained")
    for design, colour, shift in (
        ("paper", COLOURS["warm"], -0.2),
        ("model-like", COLOURS["cold"], 0.2),
    ):
        heights = [100 * cells[design, op].weighted for op in ops]
        label = "one argument at a time (the paper)" if design == "paper" else "model-like"
        axes.bar(np.arange(len(ops)) + shift, heights, 0.38, color=colour, label=label)
    names = [op if op == "all" else op.split(".")[1] for op in ops]
    axes.set_xticks(range(len(ops)), names, rotation=40, ha="right", fontsize="small")
    axes.set(ylabel="Error of an op's time (%)")
    axes.grid(alpha=0.25, axis="y")
    axes.legend(frameon=False, fontsize="small")
    return _save(drawing, path)


def _finish(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set(title=title, xlabel=x, ylabel=y, xlim=(0, None), ylim=(0, None))
    axes.grid(alpha=0.25)


def _save(drawing: Figure, path: Path) -> Path:
    drawing.savefig(path, dpi=110)
    plt.close(drawing)
    return path
