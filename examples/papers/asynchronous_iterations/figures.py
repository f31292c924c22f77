"""Figures 3, 4, 5 and 11 of the paper, drawn from our runs, and what can be read from them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from checks import EDGE, LATENCIES, MIDDLE, TIMES, UNREPAIRED, VARIANCES
from further import Further
from grid import READS, UPDATE
from matplotlib.axes import Axes
from speeds import PLACES, Curve, Nominal, Slowed, Varied
from struck import COSTS, MULTIPLES, PATIENCE, POLICIES, Intervals, Struck

# One colour a reading everywhere; a shade where a quantity grows; crosses for known numbers.
COLOURS = {"start": "#0072b2", "completion": "#e69f00"}
OTHERS = ("#009e73", "#d55e00", "#cc79a7", "#56b4e9")
GREY = "0.55"
KNOWN = {"color": "black", "marker": "x", "ls": "", "ms": 7, "label": "known number", "zorder": 5}
TIME, RESIDUAL = "Virtual time (units)", "Residual norm"
SHADES = matplotlib.colormaps["viridis"]


def draw_figure3(figure: Nominal, path: Path) -> Path:
    """Draw the nominal residual and the rate that theory gives."""
    drawing, axes = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
    time, residual = figure.curve
    axes.plot(time, residual, color=COLOURS["start"], label="synchronous Jacobi")
    rate = np.cos(np.pi / 11)
    line = residual[-1] * rate ** ((time - time[-1]) / UPDATE)
    axes.plot(time, line, color=GREY, ls="--", label=f"cos(π/11) = {rate:.6f} a sweep")
    _finish(axes, "Ten equal processors, 10 x 10 grid")
    return _save(drawing, path)


def draw_figure4(figure: Slowed, path: Path) -> Path:
    """Draw the residuals with one slow processor: by place and by read."""
    drawing, panels = plt.subplots(
        2, 2, figsize=(9.5, 6.2), sharex=True, sharey=True, layout="constrained"
    )
    for row, place in zip(panels, PLACES, strict=True):
        for axes, read in zip(row, READS, strict=True):
            _shaded(axes, figure.curves[read, place], figure.slowdowns)
            _finish(axes, f"Slow at the {place}, read at {read}", legend=False)
            axes.label_outer()
    _scale(drawing, panels, figure.slowdowns, "Slow-down (durations of an update)")
    return _save(drawing, path)


def draw_figure4_costs(figure: Slowed, path: Path) -> Path:
    """Draw what a slow processor costs, over the nominal run time."""
    drawing, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
    x = np.array(figure.slowdowns)
    axes.plot(x, 1 + x, color=GREY, ls="--", label="if all waited for it")
    for read in READS:
        for place, style in zip(PLACES, ("-", ":"), strict=True):
            ratios = figure.ratios[read, place]
            axes.errorbar(
                x,
                ratios.mean(axis=1),
                ratios.std(axis=1),
                color=COLOURS[read],
                ls=style,
                marker="o",
                ms=3,
                capsize=2,
                label=f"{place}, read at {read}",
            )
    known = [MIDDLE["start"][0], MIDDLE["completion"][0], EDGE]
    axes.plot([11] * len(known), known, **KNOWN)
    axes.set(
        title="What one slow processor of ten costs",
        xlabel="Slow-down (durations of an update)",
        ylabel="Run time over nominal",
        ylim=(0.5, 7),
    )
    axes.grid(alpha=0.25)
    _legend(axes, loc="upper right")
    return _save(drawing, path)


def draw_figure5(figure: Varied, path: Path) -> Path:
    """Draw the residuals by the variance of durations, and the run times."""
    drawing, panels = plt.subplots(1, 3, figsize=(12.5, 3.8), layout="constrained")
    drawing.get_layout_engine().set(w_pad=0.12)
    for axes, read in zip(panels, READS, strict=False):
        _shaded(axes, figure.curves[read], figure.variances)
        _finish(axes, f"Read at {read}", legend=False)
    _scale(drawing, panels[:2], figure.variances, "Variance (units²)")
    axes = panels[2]
    for read in READS:
        times = figure.times[read]
        axes.errorbar(
            figure.variances,
            times.mean(axis=1),
            times.std(axis=1) / np.sqrt(times.shape[1]),
            color=COLOURS[read],
            marker="o",
            ms=3,
            capsize=2,
            label=f"read at {read}",
        )
    for read in READS:
        axes.plot(VARIANCES, TIMES[read], **{**KNOWN, "label": None})
    axes.plot([], [], **KNOWN)
    axes.set(
        title=f"Mean of {figure.times['start'].shape[1]} right-hand sides",
        xlabel="Variance (units²)",
        ylabel="Time to residual 1e-6 (units)",
        ylim=(0, None),
    )
    axes.grid(alpha=0.25)
    _legend(axes)
    return _save(drawing, path)


def draw_figure11(figure: Struck, path: Path) -> Path:
    """Draw panels (a) to (d): the residual of one run by policy."""
    drawing, panels = plt.subplots(
        2, 2, figsize=(9.5, 6.2), sharex=True, sharey=True, layout="constrained"
    )
    longest = max(run.virtual_time for run in figure.free.values())
    for axes, policy, letter in zip(panels.flat, POLICIES, "abcd", strict=True):
        for read in READS:
            free, run = figure.free[read], figure.runs[read, policy]
            axes.plot(free.times, free.residuals, color=COLOURS[read], lw=1, ls=":")
            axes.plot(
                run.times, run.residuals, color=COLOURS[read], lw=1.2, label=f"read at {read}"
            )
            (fault,) = (mark for mark in run.marks if mark.what == "fault")
            axes.plot(fault.time, fault.residual, "x", color=COLOURS[read], mew=1.5)
        name = "no checkpoints" if policy == "none" else f"{policy}, omega = 10"
        if letter == "a":
            axes.plot([], [], "x", color=GREY, mew=1.5, label="after the fault")
            axes.plot([], [], color=GREY, lw=1, ls=":", label="without the fault")
        _finish(axes, f"({letter}) {name}", legend=letter == "a")
        axes.set_xlim(0, 2.05 * longest)
        axes.label_outer()
    return _save(drawing, path)


def draw_figure11_costs(figure: Struck, path: Path) -> Path:
    """Draw the run times of all seeds over the fault-free ones."""
    drawing, axes = plt.subplots(figsize=(6.5, 4), layout="constrained")
    rng = np.random.default_rng(0)
    for place, policy in enumerate(POLICIES):
        for read, shift in zip(READS, (-0.17, 0.17), strict=True):
            ratios = figure.ratios[read, policy]
            axes.plot(
                place + shift + rng.uniform(-0.1, 0.1, ratios.size),
                ratios,
                ".",
                color=COLOURS[read],
                alpha=0.6,
                label=f"read at {read}" if place == 0 else None,
            )
    shifts = (-0.17, 0.17)
    axes.plot(shifts, [UNREPAIRED[read] for read in READS], **{**KNOWN, "ms": 9, "mew": 2})
    axes.axhline(PATIENCE, color=GREY, ls="--", lw=1)
    axes.text(2.5, PATIENCE * 0.93, "stopped here", color=GREY, va="top", ha="center")
    axes.set(
        title="A fault uniform(-100, 100) in all of x",
        ylabel="Run time over fault-free",
        yscale="log",
        ylim=(0.9, 26),
        xticks=range(len(POLICIES)),
        xticklabels=["no checkpoints" if name == "none" else name for name in POLICIES],
    )
    ticks = (1, 2, 5, 10, 20)
    axes.set_yticks(ticks, [str(tick) for tick in ticks])
    axes.minorticks_off()
    axes.grid(alpha=0.25, axis="y")
    _legend(axes, loc="upper right", bbox_to_anchor=(1, 0.88))
    return _save(drawing, path)


def draw_intervals(found: Intervals, path: Path) -> Path:
    """Draw run times by the interval between checkpoints."""
    drawing, panels = plt.subplots(1, 2, figsize=(9.5, 3.8), sharey=True, layout="constrained")
    multiples = np.array(MULTIPLES)
    for axes, read in zip(panels, READS[::-1], strict=True):
        for case, (cost, mtbf) in enumerate(COSTS):
            times = found.times[read][case] / found.times[read][case].min()
            label = f"cost {cost}, a fault every {mtbf}: Young's is {found.young[case]:.0f}"
            axes.plot(multiples, times, color=OTHERS[case], marker="o", ms=3, label=label)
        axes.axvline(1, color=GREY, ls="--", lw=1)
        axes.set(
            title=f"Read at {read}",
            xlabel="Interval between checkpoints over Young's",
            xscale="log",
            ylim=(0.98, 1.3),
        )
        ticks = (0.25, 0.5, 1, 2, 4)
        axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
        axes.minorticks_off()
        axes.grid(alpha=0.25)
    panels[0].set_ylabel("Mean run time over the best")
    panels[0].legend(fontsize="small", framealpha=1, edgecolor="none")
    return _save(drawing, path)


def draw_latencies(found: Further, path: Path) -> Path:
    """Draw sweeps by latency in distributed memory."""
    drawing, axes = plt.subplots(figsize=(6.5, 3.8), layout="constrained")
    x = list(found.by_latency)
    y = list(found.by_latency.values())
    axes.plot(x, y, color=COLOURS["start"], marker="o", ms=4, label="read at start")
    axes.plot(list(LATENCIES), list(LATENCIES.values()), **KNOWN)
    axes.set(
        title="Distributed memory, 20 x 20 grid, 20 processors",
        xlabel="Latency of a halo message (durations of an update)",
        ylabel="Sweeps to residual 1e-6",
        ylim=(0, None),
    )
    axes.grid(alpha=0.25)
    _legend(axes)
    return _save(drawing, path)


def _shaded(axes: Axes, curves: Sequence[Curve], values: Sequence[int]) -> None:
    for (time, residual), value in zip(curves, values, strict=True):
        axes.plot(time, residual, color=_shade(value, values), lw=1)


def _shade(value: float, values: Sequence[int]) -> Any:
    return SHADES(0.92 * (value - min(values)) / (max(values) - min(values)))


def _scale(drawing: plt.Figure, panels: Any, values: Sequence[int], label: str) -> None:
    """Add a bar that says which shade is which value."""
    low, high = min(values), max(values)
    whole = low + (high - low) / 0.92
    shades = plt.cm.ScalarMappable(plt.Normalize(low, whole), SHADES)
    bar = drawing.colorbar(shades, ax=list(np.ravel(panels)), label=label, ticks=list(values))
    bar.ax.set_ylim(low, high)


def _legend(axes: Axes, **where: Any) -> None:
    """Add a legend, the known numbers last."""
    entries = list(zip(*axes.get_legend_handles_labels(), strict=True))
    entries.sort(key=lambda entry: entry[1] == KNOWN["label"])
    axes.legend(*zip(*entries, strict=True), frameon=False, fontsize="small", **where)


def _finish(axes: Axes, title: str, legend: bool = True) -> None:
    axes.set(title=title, xlabel=TIME, ylabel=RESIDUAL, yscale="log", xlim=(0, None))
    axes.grid(alpha=0.25)
    if legend:
        axes.legend(frameon=False, fontsize="small")


def _save(drawing: plt.Figure, path: Path) -> Path:
    drawing.savefig(path, dpi=110)
    plt.close(drawing)
    return path
