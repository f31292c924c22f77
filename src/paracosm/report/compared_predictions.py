"""Charts that compare predictions: time with its interval, throughput and memory of each run."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from paracosm.report.chart import Axis, Boxes, Chart, Dots, Mark, size_unit, time_unit
from paracosm.report.run import Run
from paracosm.units import format_duration, format_size

__all__ = ["compared"]

WIDEST = 2.0  # times the longest time: an interval beyond is not to hide the others


def compared(runs: Sequence[Run]) -> list[Chart | None]:
    """Return the charts of several runs; none of a single one."""
    return [] if len(runs) == 1 else [_times(runs), _throughputs(runs), _peaks(runs)]


def _times(runs: Sequence[Run]) -> Chart | None:
    """Return a row for each run: predicted time, its interval, and the measured time."""
    shown = [run for run in runs if run.numbers.get("iteration_time") is not None]
    if not shown:
        return None
    longest = max(max(_times_of(run)) for run in shown)
    factor, unit = time_unit(longest)
    marks: list[Mark] = []
    highest = longest
    for row, run in enumerate(shown):
        interval = run.numbers.get("interval")
        if interval:
            low, high = interval["low"], interval["high"]
            highest = max(highest, high)
            label = f"interval {format_duration(low)} to {format_duration(high)}"
            ends = (np.array([low * factor]), np.array([high * factor]))
            color, place = run.index, np.array([float(row)])
            marks.append(Boxes(*ends, place, (label,), 0.08, color, "interval", run.index))
    for row, run in enumerate(shown):
        marks.append(_dot(run, row, run.numbers["iteration_time"], factor, "predicted"))
        if measured := run.numbers.get("measured"):
            marks.append(_dot(run, row, measured["iteration_time"], factor, "measured"))
    return Chart(
        name="iteration_time",
        title="Iteration time",
        x=Axis(f"time ({unit})", limits=(0.0, 1.03 * factor * min(highest, WIDEST * longest))),
        y=Axis("", names=tuple(run.name for run in shown)),
        marks=tuple(marks),
        caption="The bar is where the iteration is thought to lie, with 90 %.",
        height=110 + 30 * len(shown),
        wide=True,
    )


def _times_of(run: Run) -> list[float]:
    """Return the predicted time, and the measured one where it is known."""
    measured = run.numbers.get("measured") or {}
    return [run.numbers["iteration_time"], measured.get("iteration_time", 0.0)]


def _dot(run: Run, row: int, seconds: float, factor: float, series: str) -> Dots:
    return Dots(
        np.array([seconds * factor]),
        np.array([float(row)]),
        (f"{series} {format_duration(seconds)}",),
        run.index,
        series,
        "diamond" if series == "predicted" else "cross",
    )


def _throughputs(runs: Sequence[Run]) -> Chart | None:
    rates = {
        run: value for run in runs if (value := run.numbers.get("examples_per_second")) is not None
    }
    labels = {run: f"{value:,.1f} examples/s" for run, value in rates.items()}
    return _against_batch("throughput", "Throughput", "examples/s", rates, labels)


def _peaks(runs: Sequence[Run]) -> Chart | None:
    peaks = {run: value for run in runs if (value := run.numbers.get("peak_memory")) is not None}
    factor, unit = size_unit(max(peaks.values(), default=0))
    scaled = {run: value * factor for run, value in peaks.items()}
    labels = {run: format_size(value) for run, value in peaks.items()}
    return _against_batch("peak_memory", "Peak memory", f"peak memory ({unit})", scaled, labels)


def _against_batch(
    name: str, title: str, label: str, values: dict[Run, float], labels: dict[Run, str]
) -> Chart | None:
    """Return a dot for each run at its batch; None where the batch does not vary."""
    shown = [run for run in values if run.numbers.get("batch")]
    if len({run.numbers["batch"] for run in shown}) < 2:
        return None
    marks = tuple(
        Dots(
            np.array([float(run.numbers["batch"])]),
            np.array([values[run]]),
            (f"batch {run.numbers['batch']:,}: {labels[run]}",),
            run.index,
            name.replace("_", " "),
        )
        for run in shown
    )
    highest = max(values[run] for run in shown)
    return Chart(
        name=name,
        title=f"{title} against batch",
        x=Axis("batch (examples)", switch="batch"),
        y=Axis(label, limits=(0.0, 1.08 * highest or 1.0)),
        marks=marks,
    )
