"""Table 1 and table 3 as pictures, and figure 4."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from table1 import AIM_APART, AIM_RATIO, HOPS, KINDS, LARGE, PAPER, Cell, cells_of
from table3 import AIMS, FIXED, REAL, ratios_of
from tables import middle, quartiles, size_of

__all__ = ["draw_figure4", "draw_table1", "draw_table3"]

BLUE, ORANGE, GREEN, GREY = "#0072b2", "#e69f00", "#009e73", "0.55"
LOOKS = {"all_reduce": (BLUE, "o"), "all_gather": (ORANGE, "s")}


def draw_table1(measured: Mapping[str, Any], path: Path) -> Path:
    """Draw E/B by size, a panel for each number of ranks, with what is aimed at in grey."""
    settings = [(each, name) for each in measured["settings"] for name in each["emulated"]]
    drawing, panels = plt.subplots(
        1,
        len(settings),
        figsize=(4.6 * len(settings) + 0.6, 3.8),
        layout="constrained",
        squeeze=False,
    )
    for (setting, name), axes in zip(settings, panels[0], strict=True):
        cells = cells_of(setting["rows"], name)
        options = setting["emulated"][name]
        sizes = sorted({cell.size for cell in cells})
        _draw_aims(axes, cells, sizes)
        for place, kind in enumerate(KINDS):
            colour, marker = LOOKS[kind]
            shift = 0.12 * (2 * place - 1)
            here = [cell for cell in cells if cell.kind == kind]
            _draw_ratios(
                axes,
                [sizes.index(cell.size) + shift for cell in here],
                [cell.ratios for cell in here],
                {"color": colour, "marker": marker, "label": kind.replace("_", "-")},
            )
            if setting["world"] == 2:
                given = [(size, pair) for size, pair in PAPER[kind].items() if size in sizes]
                axes.plot(
                    [sizes.index(size) + shift for size, _ in given],
                    [100 * (emulated / base - 1) for _, (base, emulated) in given],
                    ls="",
                    marker="x",
                    color=colour,
                    alpha=0.6,
                    label=f"{kind.replace('_', '-')}, paper",
                )
        axes.set_xticks(range(len(sizes)), [size_of(size) for size in sizes])
        axes.set(
            title=f"{setting['world']} ranks{HOPS[options.get('communication', 'given')]}",
            ylabel="Emulated over real, - 1 (%)" if axes is panels[0][0] else "",
        )
        _finish(axes)
    return _save(drawing, path)


def draw_table3(measured: Mapping[str, Any], path: Path) -> Path:
    """Draw iterations over the wire and modelled, over real ones."""
    rows = measured["rows"]
    drawing, axes = plt.subplots(figsize=(7.5, 3.8), layout="constrained")
    jobs = (*FIXED, *REAL)
    for place, job in enumerate(FIXED):
        aim = 100 * AIMS[job]
        axes.fill_between([place - 0.4, place + 0.4], -aim, aim, color="0.9", lw=0)
    looks = {"wire": (BLUE, "o", -0.12), "backend": (GREEN, "s", 0.12)}
    for way, (colour, marker, shift) in looks.items():
        found = [(place, ratios_of(rows, job, way)) for place, job in enumerate(jobs)]
        shown = [(place + shift, ratios) for place, ratios in found if ratios]
        _draw_ratios(
            axes,
            [place for place, _ in shown],
            [ratios for _, ratios in shown],
            {"color": colour, "marker": marker, "label": way},
        )
    axes.axhline(0, color=GREY, lw=0.8)
    axes.axvline(len(FIXED) - 0.5, color=GREY, lw=0.8, ls=":")
    axes.set_xticks(range(len(jobs)), [job.replace("-", "-\n") for job in jobs])
    axes.set(title="Iterations of DDP, two ranks", ylabel="Over the real job's, - 1 (%)")
    _finish(axes)
    return _save(drawing, path)


def draw_figure4(measured: Mapping[str, Any], path: Path) -> Path:
    """Draw iteration time against delay, and the knee."""
    drawing, axes = plt.subplots(figsize=(6, 3.8), layout="constrained")
    rows = [row for row in measured["delays"] if row["iteration_time"]]
    delays = [1e3 * row["delay"] for row in rows]
    times = [1e3 * row["iteration_time"]["median"] for row in rows]
    axes.plot(delays, times, "o", color=BLUE, label="median iteration")
    knee = measured["knee"]
    if knee["knee"] is not None:
        at, last = 1e3 * knee["knee"], delays[-1]
        base = 1e3 * knee["base"]
        level = base + knee["flat_slope"] * at
        ends = [base, level, level + knee["slope"] * (last - at)]
        axes.plot([0, at, last], ends, color=ORANGE, label="fitted")
    axes.set(
        title="A delay added to every all-reduce",
        xlabel="Delay (ms)",
        ylabel="Iteration (ms)",
    )
    _finish(axes)
    return _save(drawing, path)


def _draw_aims(axes: Axes, cells: Sequence[Cell], sizes: Sequence[int]) -> None:
    """Shade how far apart all-reduces may be."""
    for cell in cells:
        if cell.kind == "all_reduce":
            aim = 100 * (AIM_RATIO if cell.size >= LARGE else AIM_APART / cell.mean[0])
            place = sizes.index(cell.size)
            axes.fill_between([place - 0.4, place + 0.4], -aim, aim, color="0.9", lw=0)
    axes.axhline(0, color=GREY, lw=0.8)


def _draw_ratios(
    axes: Axes, places: Sequence[float], ratios: Sequence[Sequence[float]], look: dict[str, Any]
) -> None:
    """Draw medians of ratios with their quartiles as percentages above 1."""
    middles = [100 * (middle(ratio) - 1) for ratio in ratios]
    ends = [[100 * (end - 1) for end in quartiles(ratio)] for ratio in ratios]
    below = [center - low for center, (low, _) in zip(middles, ends, strict=True)]
    above = [high - center for center, (_, high) in zip(middles, ends, strict=True)]
    axes.errorbar(places, middles, [below, above], ls="", capsize=3, ms=5, **look)


def _finish(axes: Axes) -> None:
    axes.grid(alpha=0.25)
    axes.legend(frameon=False, fontsize="small")


def _save(drawing: Figure, path: Path) -> Path:
    drawing.savefig(path, dpi=84)
    plt.close(drawing)
    return path
