"""What a tuning leaves behind.

tuning.json      what was asked, the best, its validation; environment
trials.csv       every trial: its values, median and quartiles, failures
landscape.png    time to tolerance over what was varied
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from paracosm.data_files import read_json
from paracosm.errors import InputError
from paracosm.files import replacing
from paracosm.results import to_json
from paracosm.studies.run_folder import describe_environment
from paracosm.studies.tuning import Trial, Tuning
from paracosm.studies.tuning_runs import Array, Parameter

_BEST, _INTERVALS = "#d55e00", {"young": "#cc79a7", "daly": "#009e73"}
_LABELS: Mapping[str, str] = {
    "alpha": "alpha: growth of the residual put down to a fault",
    "omega": "omega: time between checkpoints (s)",
    "relaxation": "relaxation factor",
    "processors": "processors",
    "blocks": "blocks",
}
_TIME = "time to tolerance / without faults"
_WIDE = 2.0  # factor between times from which on their scale is logarithmic
_LEAST = 0.1  # per cent: what is closer to the best than that is as good


def draw_landscape(tuning: Tuning, file: Path) -> None:
    """Draw the trials: a map of the first two parameters, linear between trials, and each alone."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    mapped = len(tuning.space) > 1
    columns = len(tuning.space) + mapped
    figure = Figure(figsize=(4.6 * columns + 0.8 * mapped, 4.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = list(figure.subplots(1, columns, squeeze=False)[0])
    if mapped:
        _map(figure, axes.pop(0), tuning)
    for axis, parameter in zip(axes, tuning.space, strict=True):
        _slice(axis, tuning, parameter)
    best = ", ".join(f"{name} = {value:g}" for name, value in tuning.best.values.items())
    ratio = tuning.best.measured.ratio.median
    figure.suptitle(
        f"{len(tuning.trials)} trials of {len(tuning.seeds)} seeds; best: {best} ({ratio:.3f} "
        "times the time without faults)"
    )
    legend: dict[str, Any] = {}
    for axis in figure.axes:
        handles, labels = axis.get_legend_handles_labels()
        legend.update(zip(labels, handles, strict=True))
    figure.legend(
        legend.values(), legend.keys(), loc="outside lower center", ncols=len(legend), fontsize=9
    )
    figure.savefig(file, format="png", dpi=120)


def _map(figure: Any, axis: Any, tuning: Tuning) -> None:
    from matplotlib.colors import LogNorm

    first, second = tuning.space[:2]
    ended = [trial for trial in tuning.trials if not _failed(trial)]
    failed = [trial for trial in tuning.trials if _failed(trial)]
    x, y = _column(ended, first), _column(ended, second)
    _scale(axis, first, "x")
    _scale(axis, second, "y")
    if ended:
        longer = np.maximum(100 * (_medians(ended) / tuning.best.measured.ratio.median - 1), _LEAST)
        high = max(longer.max(), 100 * _LEAST)
        norm = LogNorm(_LEAST, high)
        if (triangles := _triangulation(first, second, x, y)) is not None:
            levels = np.geomspace(_LEAST, high, 25)
            axis.tricontourf(triangles, longer, levels=levels, norm=norm, cmap="viridis")
        points = axis.scatter(
            x, y, c=longer, norm=norm, cmap="viridis", s=22, edgecolor="white", linewidth=0.6
        )
        bar = figure.colorbar(points, ax=axis, label="longer than the best (%)")
        _plain_ticks(bar.ax.yaxis)
    axis.scatter(
        _column(failed, first), _column(failed, second), marker="x", color="black", s=28,
        label="most runs did not converge" if failed else None,
    )  # fmt: skip
    axis.scatter(
        *([tuning.best.values[each.name]] for each in (first, second)),
        marker="*", s=260, color=_BEST, edgecolor="white", linewidth=1, label="best", zorder=3,
    )  # fmt: skip
    for each, draw in ((first, axis.axvline), (second, axis.axhline)):
        _intervals(draw, tuning, each)


def _slice(axis: Any, tuning: Tuning, parameter: Parameter) -> None:
    ended = [trial for trial in tuning.trials if not _failed(trial)]
    failed = [trial for trial in tuning.trials if _failed(trial)]
    found = [trial.measured.ratio for trial in ended]
    axis.vlines(
        _column(ended, parameter), [each.lower for each in found], [each.upper for each in found],
        color="#0072b2", alpha=0.35, linewidth=1.2,
    )  # fmt: skip
    axis.scatter(
        _column(ended, parameter), _medians(ended), s=16, color="#0072b2",
        label="median, quartiles",
    )  # fmt: skip
    if failed:  # at the upper edge: their times say no more than that
        axis.scatter(
            _column(failed, parameter), [0.97] * len(failed), marker="x", color="black", s=28,
            transform=axis.get_xaxis_transform(), label="most runs did not converge",
        )  # fmt: skip
    best = tuning.best
    axis.scatter(
        [best.values[parameter.name]], [best.measured.ratio.median],
        marker="*", s=220, color=_BEST, edgecolor="white", linewidth=1, label="best", zorder=3,
    )  # fmt: skip
    _intervals(axis.axvline, tuning, parameter)
    _scale(axis, parameter, "x")
    if ended and _medians(ended).max() > _WIDE * _medians(ended).min():
        axis.set_yscale("log")
        _plain_ticks(axis.yaxis)
    axis.set_ylabel(_TIME)


def _intervals(draw: Any, tuning: Tuning, parameter: Parameter) -> None:
    if parameter.name != "omega":
        return
    for (name, omega), style in zip(tuning.suggestions.items(), ("--", ":"), strict=False):
        if parameter.low <= omega <= parameter.high:
            draw(
                omega,
                color=_INTERVALS[name],
                linestyle=style,
                linewidth=1.8,
                label=f"{name.capitalize()}: {omega:g} s",
            )


def _scale(axis: Any, parameter: Parameter, which: str) -> None:
    if parameter.is_log:
        getattr(axis, f"set_{which}scale")("log")
        _plain_ticks(getattr(axis, f"{which}axis"))
    getattr(axis, f"set_{which}lim")(*_margins(parameter))
    getattr(axis, f"set_{which}label")(_LABELS[parameter.name])


def _margins(parameter: Parameter) -> tuple[float, float]:
    if parameter.is_log:
        step = (parameter.high / parameter.low) ** 0.03
        return parameter.low / step, parameter.high * step
    width = parameter.high - parameter.low
    return parameter.low - 0.03 * width, parameter.high + 0.03 * width


def _plain_ticks(axis: Any) -> None:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axis.set_minor_formatter(NullFormatter())


def _triangulation(first: Parameter, second: Parameter, x: Array, y: Array) -> Any:
    """Return triangles between trials, near ones on the figure's scales; None if there are none."""
    from matplotlib.tri import Triangulation

    across = np.array([first.share(value) for value in x.tolist()])
    up = np.array([second.share(value) for value in y.tolist()])
    try:
        triangles = Triangulation(across, up).triangles
    except (RuntimeError, ValueError):  # fewer than three points, or all on a line
        return None
    return Triangulation(x, y, triangles)


def _failed(trial: Trial) -> bool:
    return trial.measured.failures > 0.5


def _column(trials: Sequence[Trial], parameter: Parameter) -> Array:
    return np.array([trial.values[parameter.name] for trial in trials], dtype=np.float64)


def _medians(trials: Sequence[Trial]) -> Array:
    return np.array([trial.measured.ratio.median for trial in trials], dtype=np.float64)


FILES = ("tuning.json", "trials.csv", "landscape.png")


def write_tuning(tuning: Tuning, folder: Path, asked: dict[str, Any]) -> None:
    """Write the files; `asked` is the configuration, for the record."""
    record = {
        **tuning.summary(),
        "relax": asked,
        "environment": describe_environment(tuning.seeds.start),
    }
    with replacing(folder / "trials.csv") as beside:
        _write_trials(tuning, beside)
    with replacing(folder / "landscape.png") as beside:
        draw_landscape(tuning, beside)
    with replacing(folder / "tuning.json") as beside:  # last: it says that the others are there
        beside.write_text(to_json(record), encoding="utf-8")


def was_interrupted(folder: Path, asked: dict[str, Any]) -> bool:
    """Return whether a folder holds a tuning of a configuration that did not come to its end."""
    with suppress(InputError, AttributeError):
        record = read_json(folder / "tuning.json", "tuning")
        return bool(record.get("status") == "interrupted" and record.get("relax") == asked)
    return False


def _write_trials(tuning: Tuning, file: Path) -> None:
    names = [parameter.name for parameter in tuning.space]
    with file.open("w", encoding="utf-8", newline="") as stream:
        rows = csv.writer(stream)
        rows.writerow(
            ["trial", *names, "time_over_fault_free", "lower_quartile", "upper_quartile", "mean",
             "time", "failures", "runs"]
        )  # fmt: skip
        for trial in tuning.trials:
            found = trial.measured
            ratio = found.ratio
            rows.writerow(
                [trial.number, *(trial.values[name] for name in names), ratio.median, ratio.lower,
                 ratio.upper, float(found.ratios.mean()), found.time.median, found.failures,
                 found.ratios.size]
            )  # fmt: skip
