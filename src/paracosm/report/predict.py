"""The charts of predictions: where the time goes, where durations come from, how runs compare."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from paracosm.report.chart import extremes, row_chart, shown_sections, size_unit, time_unit
from paracosm.report.timeline_charts import first_timelines, rank_bars, rank_timeline
from paracosm.report.workers_charts import (
    first_steps_chart,
    scaling_charts,
    throughput_charts,
)
from paracosm.results import JobSummary
from paracosm.results.chart import Axis, Boxes, Chart, Curve, Dots, Floats, Section
from paracosm.results.view import Run
from paracosm.timeline import Spans
from paracosm.units import format_duration

ROWS = 15  # of a chart of bars
SPANS = 3000  # of a timeline; only the longest are drawn
LANES = ("host", "compute", "memory", "communication")
PHASES = ("forward", "backward", "optimizer", "other")


def sections(runs: Sequence[Run]) -> list[Section]:
    """Return every section that the runs have data for."""
    parts: list[tuple[str, list[Chart | None]]] = [
        ("Scaling", scaling_charts(runs)),
        ("Throughput", throughput_charts(runs)),
        ("Ranks", [rank_bars(runs)]),
        ("Where the time goes", [_bars(runs, "phase"), _bars(runs, "op"), _bars(runs, "place")]),
        (
            "The iteration",
            [
                *first_timelines(runs, lambda *each: _timeline(*each) or rank_timeline(*each)),
                _memory(runs),
            ],
        ),
        ("The first steps", first_timelines(runs, first_steps_chart)),
    ]
    return shown_sections(parts)


def _bars(runs: Sequence[Run], what: str) -> Chart | None:
    """Return the seconds by phase, op type or place, as bars of one run or dots of several."""
    breakdowns = {run.index: run.numbers.get("breakdown") or {} for run in runs}
    times = {run: dict(found) for run, each in breakdowns.items() if (found := each.get(what))}
    if not times:
        return None
    sums: dict[str, float] = {}
    for each in times.values():
        for name, seconds in each.items():
            sums[name] = sums.get(name, 0.0) + seconds
    order = list(sums) if what == "phase" else sorted(sums, key=lambda name: -sums[name])
    names = tuple(order[:ROWS])
    factor, unit = time_unit(max(max(each.values()) for each in times.values()))
    marks = [
        _marks(run, names, times[run.index], factor, alone=len(runs) == 1)
        for run in runs
        if run.index in times
    ]
    left_out = len(order) - len(names)
    caption = (
        ["One replica, each op counted once."] if isinstance(runs[0].numbers, JobSummary) else []
    )
    caption += [f"{left_out} more are not shown."] if left_out else []
    by = {"phase": "phase", "op": "op type", "place": "place in the model"}[what]
    return row_chart(
        *(f"time_by_{what}", f"Time by {by}", Axis(f"time ({unit})")),
        *(names, marks, " ".join(caption)),
        pixels=26,
        wide=what != "phase",
    )


def _marks(
    run: Run, names: Sequence[str], times: Mapping[str, float], factor: float, alone: bool
) -> Boxes | Dots:
    shown = [(row, times[name]) for row, name in enumerate(names) if name in times]
    rows = np.array([row for row, _ in shown], dtype=np.float64)
    values = np.array([seconds for _, seconds in shown])
    total = sum(times.values()) or 1.0
    labels = tuple(
        f"{names[row]}: {format_duration(seconds)}, {seconds / total:.1%}" for row, seconds in shown
    )
    if alone:
        return Boxes(np.zeros(len(rows)), values * factor, rows, labels, 0.6, 0, "time")
    return Dots(values * factor, rows, labels, run.index, "time")


def _timeline(run: Run, of_several: bool) -> Chart | None:
    if run.timeline is None or not run.numbers.get("phases"):
        return None
    spans = run.timeline.spans
    spans = spans[spans.resource.isin(*LANES) & (spans.end > spans.begin)]
    if not len(spans):
        return None
    left_out = len(spans) - SPANS
    spans = spans[np.argsort(spans.begin - spans.end, kind="stable")[:SPANS]]
    lanes = [lane for lane in LANES if lane in spans.resource.distinct()]
    factor, unit = time_unit(float(spans.end.max()))
    phases = np.array(_phases_of(spans, run.numbers["phases"]))
    marks = [
        _boxes(spans[phases == phase], phase, color, lanes, factor)
        for color, phase in enumerate(PHASES)
        if phase in phases
    ]
    return Chart(
        name=f"iteration_{run.index + 1}" if of_several else "iteration",
        title=f"Iteration: {run.name}" if of_several else "Iteration",
        x=Axis(f"time ({unit})"),
        y=Axis("", names=tuple(lanes)),
        marks=tuple(marks),
        caption=f"The longest {SPANS:,} spans; {left_out:,} are not shown." if left_out > 0 else "",
        height=120 + 40 * len(lanes),
        wide=True,
    )


def _phases_of(spans: Spans, phases: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return each span's phase: the last one that begins before it does."""
    order = sorted(phases, key=lambda phase: phases[phase]["begin"])
    begins = [phases[phase]["begin"] for phase in order]
    places = np.searchsorted(begins, spans.begin, side="right") - 1
    return [order[max(place, 0)] for place in places.tolist()]


def _boxes(spans: Spans, phase: str, color: int, lanes: Sequence[str], factor: float) -> Boxes:
    row = np.array([float(lanes.index(resource)) for resource in spans.resource.tolist()])
    labels = tuple(f"{span.name}: {format_duration(span.end - span.begin)}" for span in spans)
    return Boxes(spans.begin * factor, spans.end * factor, row, labels, 0.6, color, phase)


def _memory(runs: Sequence[Run]) -> Chart | None:
    curves = {run.index: found for run in runs if len((found := _held(run))[0])}
    if not curves:
        return None
    factor, unit = time_unit(max(float(times[-1]) for times, _ in curves.values()))
    share, size = size_unit(max(float(held.max()) for _, held in curves.values()))
    marks = []
    for run, (times, held) in curves.items():
        kept = extremes(held)
        marks.append(Curve(times[kept] * factor, held[kept] * share, run, "memory"))
    return Chart(
        name="memory",
        title="Memory over the iteration",
        x=Axis(f"time ({unit})"),
        y=Axis(f"memory ({size})"),
        marks=tuple(marks),
        caption="The rank with the highest peak."
        if isinstance(runs[0].numbers, JobSummary)
        else "",
        wide=True,
    )


def _held(run: Run) -> tuple[Floats, Floats]:
    """Return times and bytes of the rank with the highest peak; empty where memory is not known."""
    if run.timeline is None or run.numbers.get("peak_memory") is None:
        return np.empty(0), np.empty(0)
    counters = run.timeline.counters
    held = counters[counters.name.isin("memory")]
    if len(held):
        held = held[held.node.codes == held.node.codes[held.value.argmax()]]
    return held.time, held.value
