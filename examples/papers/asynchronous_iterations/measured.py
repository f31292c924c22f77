"""Tables 1 and 3, and figures 7, 8 and 9: measured times, and histograms with fitted densities."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from paracosm.relaxation.threads.measurement import Measurement, counted, phases

_FAMILIES = ("kernel_density", "log_kernel_density", "lognormal", "gamma")
_COLORS = {
    "kernel_density": "#d55e00",
    "log_kernel_density": "#d55e00",
    "lognormal": "#0072b2",
    "gamma": "#009e73",
}
_BINS, _POINTS = 60, 400
_MOST_SAMPLES = 2000  # fitted: judging a kernel density costs the square of them
_SHOWN = (0.001, 0.99)  # quantiles: a single lost core would squeeze all else into one bin

Array = NDArray[np.float64]


def draw_figures(measurement: Measurement, folder: str | Path) -> list[Path]:
    """Draw figures 7 (safe), 8 (race) and 9 (stencil), as far as measured; return the files.

    Each panel is a normalised histogram with the densities of a kernel density (on a log scale
    where the tail is long), a lognormal and a gamma fit; the best by likelihood is drawn thick. The
    horizontal axis ends at the 99 % quantile.
    """
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for variant, name in (("safe", "figure7_safe"), ("race", "figure8_race")):
        if counts := _threads(measurement, variant):
            rows = []
            for count in counts:
                measured = phases(measurement, variant, count)
                rows.append([measured.copy, measured.compute, measured.update])
            titles = [
                [f"{phase}, {counted(count)}" for phase in ("copy", "compute", "update")]
                for count in counts
            ]
            files.append(_draw(rows, titles, f"{variant}: phases of an iteration", folder / name))
    if counts := _threads(measurement, "stencil"):
        panels = [phases(measurement, "stencil", count).pooled.sum(axis=1) for count in counts]
        title = "stencil: iteration times"
        files.append(
            _draw([panels], [list(map(counted, counts))], title, folder / "figure9_stencil")
        )
    return files


def _threads(measurement: Measurement, variant: str) -> list[int]:
    return sorted(case.threads for case in measurement.cases if case.variant == variant)


def _draw(
    rows: Sequence[Sequence[Array]], titles: Sequence[Sequence[str]], title: str, path: Path
) -> Path:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    columns = max(map(len, rows))
    figure = Figure(figsize=(3.6 * columns, 2.6 * len(rows) + 0.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.subplots(len(rows), columns, squeeze=False)
    for line, samples_of_line in enumerate(rows):
        for column, samples in enumerate(samples_of_line):
            _panel(axes[line][column], samples, titles[line][column])
    figure.suptitle(f"{title} (histogram and fitted densities)")
    file = path.with_suffix(".png")
    figure.savefig(file, dpi=110)
    return file


def _panel(axis: Any, samples: Array, title: str) -> None:
    from paracosm.timing.density import density

    low, high = np.quantile(samples, _SHOWN)
    margin = 0.05 * (high - low) or 0.05 * high
    low, high = max(0.0, low - margin), high + margin
    factor, unit = (1e3, "ms") if high > 2e-3 else (1e6, "us") if high > 2e-6 else (1e9, "ns")
    edges = np.linspace(low, high, _BINS + 1)
    share = np.histogram(samples, edges)[0] / len(samples)
    heights = share / np.diff(edges) / factor
    axis.stairs(heights, factor * edges, fill=True, color="0.8", label="measured")
    points = np.linspace(max(low, 1e-3 * high), high, _POINTS)
    for order, (family, distribution) in enumerate(_fits(samples)):
        axis.plot(
            factor * points,
            density(distribution, points) / factor,
            color=_COLORS[family],
            linewidth=2.0 if order == 0 else 1.0,
            label=family.replace("_", " ") + (" (best)" if order == 0 else ""),
        )
    # A narrow kernel beside a histogram must not decide the scale.
    axis.set_ylim(0, 1.6 * heights.max())
    axis.set_title(title, fontsize="medium")
    axis.set_xlabel(f"time ({unit})")
    axis.set_ylabel(f"density (1/{unit})")
    axis.legend(fontsize="x-small")


def _fits(samples: Array) -> list[tuple[str, Any]]:
    """Return the fitted distributions with their families, the best first; none without spread."""
    from paracosm.timing.fit import compare_fits

    if samples.min() == samples.max():
        return []
    if len(samples) > _MOST_SAMPLES:
        samples = np.random.default_rng(0).choice(samples, _MOST_SAMPLES, replace=False)
    fits = [(fit.family, fit.distribution) for fit in compare_fits(samples, _FAMILIES)]
    kernels = [family for family, _ in fits if family.endswith("kernel_density")]
    return [(family, fitted) for family, fitted in fits if family not in kernels[1:]]


@dataclass(frozen=True)
class PhaseRow:
    """Mean seconds of copy, compute and update, over all relaxation threads and iterations."""

    variant: str
    threads: int
    copy: float
    compute: float
    update: float


@dataclass(frozen=True)
class IterationRow:
    """Mean and standard deviation of an iteration, over all relaxation threads, in seconds."""

    threads: int
    mean: float
    sd: float


def table1(measurement: Measurement) -> tuple[PhaseRow, ...]:
    """Return the rows of table 1: safe and race, as far as they were measured."""
    rows = []
    for case in measurement.cases:
        if case.variant != "stencil":
            copy, compute, update, _ = case.pooled()[0]
            rows.append(PhaseRow(case.variant, case.threads, copy, compute, update))
    return tuple(sorted(rows, key=lambda row: (row.variant != "safe", row.threads)))


def table3(measurement: Measurement) -> tuple[IterationRow, ...]:
    """Return the rows of table 3: the stencil variant, as far as it was measured."""
    rows = []
    for case in measurement.cases:
        if case.variant == "stencil":
            mean, sd = case.pooled()
            rows.append(IterationRow(case.threads, mean[-1], sd[-1]))
    return tuple(sorted(rows, key=lambda row: row.threads))
