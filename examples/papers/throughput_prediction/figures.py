"""Throughput against workers as pictures: figures 2, 3(c), 13-14, 17-19, 22, 23 and 25."""

from __future__ import annotations

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import numpy as np
from cost import Cost
from curves import MODELS, Batches, Curve
from division import Divided, Gains
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image
from sending import Sending

__all__ = [
    "BLUE",
    "GREY",
    "draw_batches",
    "draw_cost",
    "draw_curves",
    "draw_division",
    "draw_gains",
    "draw_one_curve",
    "draw_sending",
    "finish",
    "save",
]

BLUE, ORANGE, RED, PINK, GREEN, SKY = (
    "#0072b2",
    "#e69f00",
    "#d55e00",
    "#cc79a7",
    "#009e73",
    "#56b4e9",
)
GREY = "0.55"
LOOKS: dict[str, dict[str, Any]] = {
    "ours": {"color": BLUE, "label": "ours, steady state"},
    "lin": {"color": ORANGE, "ls": "--", "label": "Lin et al."},
    "cynthia": {"color": RED, "ls": ":", "label": "Cynthia"},
    "half": {"color": PINK, "ls": "-.", "label": "Cynthia, half $T_C$"},
}
WORKERS, RATE = "Workers", "Steps/s"
COLOURS = 64


def draw_batches(found: Batches, path: Path) -> Path:
    """Draw figure 2."""
    drawing, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    shades = matplotlib.colormaps["viridis"](np.linspace(0, 0.85, len(found.rates)))
    for (factor, rates), shade in zip(found.rates.items(), shades, strict=True):
        axes.plot(range(1, len(rates) + 1), rates, color=shade, marker="o", ms=3)
        axes.annotate(
            f"{factor:g} x",
            (len(rates), rates[-1]),
            (6, 0),
            textcoords="offset points",
            va="center",
        )
        if (at := found.saturated[factor]) is not None:
            axes.plot(at, rates[at - 1], "o", ms=11, mfc="none", color=shade)
    axes.plot([], [], "o", ms=10, mfc="none", color=GREY, label="saturated")
    axes.set_xlim(0.5, 1.09 * len(rates))
    finish(axes, "Batch sizes, over the profile's", "Batches of the profile's size/s")
    return save(drawing, path)


def draw_one_curve(curve: Curve, path: Path) -> Path:
    """Draw figure 3(c)."""
    drawing, axes = plt.subplots(figsize=(6, 3.6), layout="constrained")
    _curve(axes, curve)
    finish(axes, f"{curve.job.name}: {curve.job.about}", RATE)
    axes.title.set_fontsize("small")
    return save(drawing, path)


def draw_curves(curves: Sequence[Curve], path: Path) -> Path:
    """Draw figures 13 and 14: steady states above, same windows below."""
    drawing, panels = plt.subplots(
        2,
        len(curves),
        figsize=(3.6 * len(curves) + 0.6, 6),
        layout="constrained",
        squeeze=False,
        sharey="col",
    )
    for curve, (above, below) in zip(curves, panels.T, strict=True):
        _curve(above, curve)
        finish(above, f"{curve.job.name}: steady state", RATE, legend=False)
        _windows(below, curve)
        finish(below, f"{curve.job.name}: same windows", RATE, legend=False)
        for axes in (above, below):
            axes.title.set_fontsize("medium")
            if curve is not curves[0]:
                axes.set_ylabel("")
    entries: dict[str, Any] = {}
    for axes in panels.flat:
        handles, labels = axes.get_legend_handles_labels()
        entries |= dict(zip(labels, handles, strict=True))
    drawing.legend(
        entries.values(), entries, loc="outside lower center", ncols=4, frameon=False, fontsize=9
    )
    return save(drawing, path)


def draw_sending(found: Sequence[Sending], path: Path) -> Path:
    """Draw figures 17 to 19: above by flow-control window, below by order."""
    drawing, panels = plt.subplots(
        2,
        len(found),
        figsize=(3.6 * len(found) + 0.6, 6),
        layout="constrained",
        squeeze=False,
        sharey="row",
    )
    for each, (above, below) in zip(found, panels.T, strict=True):
        for axes, curves, reference, title in (
            (above, each.windows, "off", "flow control"),
            (below, each.orders, "scheduled", "no flow control, orders"),
        ):
            base = np.array(curves[reference])
            workers = np.arange(1, len(base) + 1)
            colours = (GREY, BLUE, GREEN, RED, ORANGE)
            others = [name for name in curves if name != reference]
            wide = 0.8 / len(others)
            for place, name in enumerate(others):
                change = 100 * (np.array(curves[name]) / base - 1)
                shift = (place - (len(others) - 1) / 2) * wide
                axes.bar(workers + shift, change, wide, color=colours[place + 1], label=name)
            axes.axhline(0, color=GREY, lw=0.8)
            first = each is found[0]
            finish(
                axes,
                f"{each.job.name}: {title}",
                f"Steps/s over those {reference} (%)" if first else "",
                legend=first,
                zero=False,
            )
            axes.set_xticks(workers)
            axes.title.set_fontsize("small")
    return save(drawing, path)


def draw_cost(costs: Sequence[Cost], path: Path) -> Path:
    """Draw figure 22."""
    drawing, axes = plt.subplots(figsize=(6.5, 1 + 0.75 * len(costs)), layout="constrained")
    for place, cost in enumerate(costs):
        first = place == 0
        axes.barh(
            place - 0.2, cost.measured, 0.36, color=GREY, label="measuring" if first else None
        )
        axes.barh(
            place + 0.2, cost.profiling, 0.36, color=BLUE, label="profiling" if first else None
        )
        simulating = sum(cost.simulating.values())
        axes.barh(
            place + 0.2,
            simulating,
            0.36,
            left=cost.profiling,
            color=RED,
            label="simulating" if first else None,
        )
        for height, text, x in (
            (-0.2, f"{cost.measured:,.0f} s", cost.measured),
            (0.2, f"{cost.profiling:,.0f} s + {simulating:.1f} s", cost.predicted),
        ):
            axes.text(x, place + height, f" {text}", va="center", fontsize="small")
    axes.set(
        yticks=range(len(costs)),
        yticklabels=[cost.name for cost in costs],
        xlabel="Seconds for 1 to 10 workers",
        xlim=(0, 1.25 * max(cost.measured for cost in costs)),
    )
    axes.invert_yaxis()
    axes.legend(frameon=False, fontsize="small", loc="lower right")
    axes.grid(alpha=0.25, axis="x")
    return save(drawing, path)


def draw_division(divided: Sequence[Divided], path: Path) -> Path:
    """Draw figure 23: each server's parameters, stacked."""
    drawing, panels = plt.subplots(
        1, len(divided), figsize=(3.2 * len(divided), 3.6), layout="constrained", squeeze=False
    )
    for each, axes in zip(divided, panels[0], strict=True):
        heights = [0.0, 0.0]
        shades = matplotlib.colormaps["viridis"](np.linspace(0.1, 0.95, len(each.sizes)))
        largest = max(each.sizes)
        for name, size, server, shade in zip(
            each.names, each.sizes, each.server, shades, strict=True
        ):
            height = size / 2**20
            axes.bar(server, height, 0.7, heights[server], color=shade, edgecolor="white", lw=0.4)
            if size > 0.12 * sum(each.sizes) or size == largest:
                axes.text(
                    server,
                    heights[server] + height / 2,
                    _short(name),
                    ha="center",
                    va="center",
                    fontsize="x-small",
                    color="white" if shade[:3].mean() < 0.5 else "black",
                )
            heights[server] += height
        for server, height in enumerate(heights):
            axes.text(server, height, f"{height:.1f}", ha="center", va="bottom", fontsize="small")
        axes.set(
            title=each.name,
            xticks=(0, 1),
            xticklabels=("server 1", "server 2"),
            ylim=(0, 1.12 * max(heights)),
        )
    panels[0][0].set_ylabel("Parameters (MB of $2^{20}$ bytes)")
    return save(drawing, path)


def draw_gains(gains: Sequence[Gains], path: Path) -> Path:
    """Draw figure 25."""
    drawing, panels = plt.subplots(
        1, len(gains), figsize=(3.4 * len(gains) + 0.4, 3.4), layout="constrained", squeeze=False
    )
    looks = ({"color": PINK}, {"color": BLUE}, {"color": GREY, "ls": "--"})
    for gain, axes in zip(gains, panels[0], strict=True):
        for (name, rates), look in zip(gain.rates.items(), looks, strict=True):
            axes.plot(range(1, len(rates) + 1), rates, marker="o", ms=3, label=name, **look)
        finish(axes, f"{gain.name}: {gain.share:.0%} on one", RATE, legend=gain is gains[0])
        if gain is not gains[0]:
            axes.set_ylabel("")
    return save(drawing, path)


def finish(axes: Axes, title: str, ylabel: str, legend: bool = True, zero: bool = True) -> None:
    """Give axes of workers what they all have."""
    axes.set(title=title, xlabel=WORKERS, ylabel=ylabel)
    if zero:
        axes.set_ylim(0, None)
    axes.xaxis.set_major_locator(matplotlib.ticker.MaxNLocator(integer=True))
    axes.grid(alpha=0.25)
    if legend:
        axes.legend(frameon=False, fontsize="small")


def save(drawing: Figure, path: Path) -> Path:
    """Write a picture, with few colours as files that are kept must be small, and forget it."""
    whole = BytesIO()
    drawing.savefig(whole, dpi=84)
    plt.close(drawing)
    few = Image.open(whole).convert("RGB").quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=0)
    few.save(path, optimize=True)
    return path


def _curve(axes: Axes, curve: Curve) -> None:
    for model in reversed(MODELS):
        rates = curve.predicted[model]
        axes.plot(range(1, len(rates) + 1), rates, **LOOKS[model])
    _measured(axes, curve)


def _windows(axes: Axes, curve: Curve) -> None:
    for together, shift, colour in ((True, -0.12, BLUE), (False, 0.12, GREEN)):
        chosen = [window for window in curve.windows if window.run.together is together]
        if not chosen:
            continue
        axes.errorbar(
            [window.run.workers + shift for window in chosen],
            [window.expected for window in chosen],
            [window.spread for window in chosen],
            color=colour,
            ls="",
            marker="_",
            capsize=3,
            label=f"simulated, {'together' if together else 'staggered'} (± 1 s.d.)",
        )
    _measured(axes, curve)


def _measured(axes: Axes, curve: Curve) -> None:
    for together, shift, marker, word in (
        (True, -0.12, "o", "together"),
        (False, 0.12, "^", "staggered"),
    ):
        chosen = [window.run for window in curve.windows if window.run.together is together]
        if chosen:
            axes.plot(
                [run.workers + shift for run in chosen],
                [run.rate for run in chosen],
                marker,
                color="black",
                ms=4.5,
                label=f"measured, {word}",
            )


def _short(name: str) -> str:
    """Return the part of an op's name that says which parameter it is."""
    return name if len(name) <= 16 else "…" + name[-15:]
