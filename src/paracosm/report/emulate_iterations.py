"""The iterations of emulated jobs: their times over the run, where they go, how runs compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paracosm.report.chart import Axis, Boxes, Chart, Curve, Dots, Floats, Level, Mark, time_unit
from paracosm.report.part_bars import part_bars
from paracosm.report.run import Run
from paracosm.report.thinning import extremes
from paracosm.units import format_duration

__all__ = ["compared_iterations", "iteration_parts", "iteration_times"]

RANKS = 24  # bars of real ranks
CLOSE = 0.7  # of the longest time
EXPOSED = 1  # the colour of exposed communication, as in the bars


def iteration_times(runs: Sequence[Run]) -> Chart | None:
    """Return the time of every iteration after the first; of one run, with what is exposed."""
    known = {run.index: _after_first(run, "iteration_time") for run in runs}
    times = {index: found for index, found in known.items() if len(found[0])}
    if not times:
        return None
    restarted = any((np.diff(step) <= 0).any() for step, _ in times.values())
    highest = max(float(values.max()) for _, values in times.values())
    factor, unit = time_unit(highest)
    marks: list[Mark] = []
    for run in runs:
        if run.index in times:
            step, values = times[run.index]
            step, kept = _places(step, restarted), extremes(values)
            marks.append(Curve(step[kept], values[kept] * factor, run.index, "iteration"))
    if len(runs) == 1:
        step, exposed = _after_first(runs[0], "exposed")
        step, kept = _places(step, restarted), extremes(exposed)
        if len(step):
            at = step[kept], exposed[kept] * factor
            marks.append(Curve(*at, runs[0].index, "exposed communication", color=EXPOSED))
        marks += [] if restarted else _levels(runs[0], factor, times[runs[0].index][0])
    return Chart(
        name="iteration_times",
        title="Iteration times",
        x=Axis("iteration, of all runs of the script" if restarted else "iteration"),
        y=Axis(f"time ({unit})", limits=(0.0, 1.05 * highest * factor or 1.0)),
        marks=tuple(marks),
        caption=(
            "The script ran once for each delay; the first iteration of each holds its start-up "
            "and is left out."
            if restarted
            else "The first iteration holds the start-up and is left out."
        ),
        wide=True,
    )


def iteration_parts(runs: Sequence[Run]) -> Chart | None:
    """Return a bar in parts for each run, or for each real rank of a single run."""
    bars: dict[str, Mapping[str, Any]] = {}
    if len(runs) == 1 and (ranks := runs[0].numbers.get("ranks")):
        bars = {f"rank {each['rank']}": each["breakdown"] for each in ranks[:RANKS]}
    else:
        bars = {run.name: run.numbers.get("breakdown") or {} for run in runs}
    bars = {who: parts for who, parts in bars.items() if parts}
    if not bars:
        return None
    alone = len(bars) == 1
    return part_bars(
        *("iteration_parts", "Parts of an iteration", ""),
        ["iteration"] if alone else list(bars),
        [_drawn(parts) for parts in bars.values()],
        "The middle half of the iterations, in the mean. Waiting for others: until the last rank "
        "had come.",
    )


def compared_iterations(runs: Sequence[Run]) -> Chart | None:
    """Return median, p10 and p90 of several runs, or of one with a prediction beside."""
    shown = [run for run in runs if run.numbers.get("iteration_time")]
    if not shown or (len(runs) == 1 and _predicted(runs[0]) is None):
        return None
    times = [run.numbers["iteration_time"] for run in shown]
    predictions = [each for run in shown if (each := _predicted(run)) is not None]
    lowest = min(*(time["p10"] for time in times), *predictions, np.inf)
    highest = max(*(time["p90"] for time in times), *predictions, 0.0)
    # Times that are close together are looked at from close by.
    room = 0.25 * (highest - lowest) or 0.1 * highest
    limits = (lowest - room if lowest > CLOSE * highest else 0.0, highest + room)
    factor, unit = time_unit(highest)
    marks: list[Mark] = []
    for row, (run, time) in enumerate(zip(shown, times, strict=True)):
        ends = np.array([time["p10"] * factor]), np.array([time["p90"] * factor])
        label = f"{format_duration(time['p10'])} to {format_duration(time['p90'])}"
        place = np.array([float(row)])
        marks.append(Boxes(*ends, place, (label,), 0.06, run.index, "p10 to p90", run.index))
        marks.append(_dot(run, row, time["median"] * factor, "median", time["median"]))
        if (predicted := _predicted(run)) is not None:
            marks.append(_dot(run, row, predicted * factor, "predicted", predicted))
    return Chart(
        name="compared_iterations",
        title="Iteration time" + ("" if len(shown) > 1 else ", emulated and predicted"),
        x=Axis(f"time ({unit})", limits=(limits[0] * factor, limits[1] * factor)),
        y=Axis("", names=tuple(run.name if len(runs) > 1 else "iteration" for run in shown)),
        marks=tuple(sorted(marks, key=lambda mark: isinstance(mark, Dots))),
        height=110 + 30 * len(shown),
        wide=True,
    )


def _after_first(run: Run, metric: str) -> tuple[Floats, Floats]:
    """Return step and value of a metric of the rank that the summary's top is about."""
    series = run.series(metric)
    rank = run.numbers.get("slowest_rank")
    chosen = series.step > 0
    if rank is not None:
        chosen &= series.node == f"rank{rank}"
    elif len(series):
        chosen &= series.node == series.node[0]
    found = series.where(chosen)
    return found.step.astype(np.float64), found.value


def _places(step: Floats, restarted: bool) -> Floats:
    """Return where iterations stand on the axis: those of several runs one after the other."""
    return np.arange(1.0, len(step) + 1) if restarted else step


def _levels(run: Run, factor: float, step: Floats) -> list[Level]:
    time = run.numbers.get("iteration_time")
    if not time:
        return []
    ends = float(step.min()), float(step.max())
    return [
        Level(time[key] * factor, *ends, f"{key} {format_duration(time[key])}", series)
        for key, series in (("median", "median"), ("p10", "p10 and p90"), ("p90", "p10 and p90"))
    ]


def _drawn(breakdown: Mapping[str, float]) -> dict[str, float]:
    """Return the parts by the names that all jobs' bars have; waits with nothing to come, blank."""
    late = breakdown["late_peers"]
    return {
        "compute": breakdown["compute"],
        "exposed_communication": breakdown["exposed_communication"] - late,
        "waiting": late,
        "idle": breakdown["waiting"],
    }


def _predicted(run: Run) -> float | None:
    beside = run.numbers.get("beside") or {}
    found: float | None = beside.get("iteration_time")
    return found


def _dot(run: Run, row: int, x: float, series: str, seconds: float) -> Dots:
    return Dots(
        np.array([x]),
        np.array([float(row)]),
        (f"{series} {format_duration(seconds)}",),
        run.index,
        series,
        "diamond" if series == "median" else "cross",
    )
