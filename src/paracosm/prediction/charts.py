"""The charts of predictions: where the time goes, ranks, an iteration, memory over it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from paracosm.prediction.worker_charts import scaling_charts, throughput_charts
from paracosm.results import JobSummary, ThroughputSummary
from paracosm.results.chart import Axis, Chart, Curve, Dots, Floats, Sections
from paracosm.results.charts import Part, bar_chart, breakdown_chart, row_chart
from paracosm.results.node_charts import boxes_by_series, first_timelines, lane_timeline
from paracosm.results.view import Run
from paracosm.timeline import Spans
from paracosm.units import format_duration

ROWS = 15  # of a chart of bars
RANK_BARS = 24
SPANS = 3000  # of a timeline; only the longest are drawn
LANES = ("host", "compute", "memory", "communication")
PHASES = ("forward", "backward", "optimizer", "other")
RANK_LANES: Mapping[str, tuple[int, int]] = {
    "compute": (0, 0),
    "host": (0, 5),
    "memory": (0, 3),
    "communication": (1, 1),
    "tensor": (1, 4),
    "send": (1, 2),
    "receive": (2, 3),
}
"""Lane of a rank -> which line of its row it is drawn on, and its colour."""

WORKER_LANES: Mapping[str, tuple[int, int]] = {
    "downlink": (0, 0),
    "compute": (1, 1),
    "uplink": (2, 2),
    "server": (3, 4),
}
"""The same of a worker with parameter servers."""


def sections(runs: Sequence[Run]) -> Sections:
    """Return the charts of predictions of all kinds."""
    return {
        "Scaling": scaling_charts(runs),
        "Throughput": throughput_charts(runs),
        "Ranks": [_ranks(runs)],
        "Where the time goes": [_times(runs, key, noun) for key, noun in TIMES.items()],
        "The iteration": [*first_timelines(runs, _iteration), _memory(runs)],
        "The first steps": first_timelines(runs, _first_steps),
    }


TIMES = {"phase": "phase", "op": "op type", "place": "place in the model"}


def _times(runs: Sequence[Run], key: str, noun: str) -> Chart | None:
    """Return the seconds by phase, op type or place, as bars of one run or dots of several."""
    times: dict[Run, Mapping[str, float]] = {}
    sums: dict[str, float] = {}
    for run in runs:
        if seconds_by_name := (run.numbers.get("breakdown") or {}).get(key):
            times[run] = seconds_by_name
            for name, seconds in seconds_by_name.items():
                sums[name] = sums.get(name, 0.0) + seconds
    if not times:
        return None
    order = list(sums) if key == "phase" else sorted(sums, key=lambda name: -sums[name])
    names = order[:ROWS]
    remarks = [
        "One replica, each op counted once." if isinstance(runs[0].numbers, JobSummary) else "",
        f"{len(order) - ROWS} more are not shown." if len(order) > ROWS else "",
    ]
    title, caption = f"Time by {noun}", " ".join(filter(None, remarks))
    x, wide = Axis("time", "s"), key != "phase"
    if len(runs) == 1:
        (seconds_by_name,) = times.values()
        seconds = [seconds_by_name[name] for name in names]
        bar = Part("time", 0, seconds, [_share(name, seconds_by_name) for name in names])
        return bar_chart(f"time_by_{key}", title, x, names, [bar], caption, wide=wide)
    marks = []
    for run, seconds_by_name in times.items():
        shown = [name for name in names if name in seconds_by_name]
        rows = np.array([names.index(name) for name in shown], dtype=np.float64)
        values = np.array([seconds_by_name[name] for name in shown])
        labels = tuple(_share(name, seconds_by_name) for name in shown)
        marks.append(Dots(values, rows, labels, run.index, "time"))
    return row_chart(f"time_by_{key}", title, x, names, marks, caption, wide=wide)


def _share(name: str, times: Mapping[str, float]) -> str:
    total = sum(times.values()) or 1.0
    return f"{name}: {format_duration(times[name])}, {times[name] / total:.1%}"


def _ranks(runs: Sequence[Run]) -> Chart | None:
    """Return a stacked bar for each kind of ranks; None unless there is one run with ranks."""
    ranks = (runs[0].numbers.get("breakdown") or {}).get("ranks", ())
    if len(runs) > 1 or not ranks:
        return None
    bars = {ranks_name(group): group for group in ranks[:RANK_BARS]}
    left_out = len(ranks) - len(bars)
    more = f" {left_out:,} more kinds are not shown." if left_out else ""
    caption = f"Ranks with equal breakdowns share a bar.{more}"
    return breakdown_chart("ranks", "An iteration, rank by rank", bars, caption)


def ranks_name(equal_ranks: Mapping[str, Any]) -> str:
    """Name a group of ranks with equal breakdowns."""
    first, others = str(equal_ranks["first"]), equal_ranks["ranks"] - 1
    return f"{first} and {others:,} alike" if others else first


def _iteration(run: Run) -> Chart | None:
    if run.timeline is None:
        return None
    if not run.numbers.get("phases"):
        if not isinstance(run.numbers, JobSummary):
            return None
        return lane_timeline(
            run, RANK_LANES, lambda lane: lane if lane in RANK_LANES else "compute"
        )
    spans = run.timeline.spans
    spans = spans[spans.resource.isin(*LANES) & (spans.end > spans.begin)]
    if not len(spans):
        return None
    left_out = len(spans) - SPANS
    spans = spans[np.argsort(spans.begin - spans.end, kind="stable")[:SPANS]]
    lanes = [lane for lane in LANES if lane in spans.resource.distinct()]
    marks = boxes_by_series(
        run,
        spans.begin,
        spans.end,
        [lanes.index(resource) for resource in spans.resource.tolist()],
        _phases_of(spans, run.numbers["phases"]),
        [f"{span.name}: {format_duration(span.end - span.begin)}" for span in spans],
        {phase: (0.6, color) for color, phase in enumerate(PHASES)},
    )
    caption = f"The longest {SPANS:,} spans; {left_out:,} are not shown." if left_out > 0 else ""
    return row_chart("iteration", "Iteration", Axis("time", "s"), lanes, marks, caption, pixels=40)


def _phases_of(spans: Spans, phases: Mapping[str, Mapping[str, float]]) -> list[str]:
    """Return each span's phase: the last one that begins before it does."""
    order = sorted(phases, key=lambda phase: phases[phase]["begin"])
    begins = [phases[phase]["begin"] for phase in order]
    places = np.searchsorted(begins, spans.begin, side="right") - 1
    return [order[max(place, 0)] for place in places.tolist()]


def _first_steps(run: Run) -> Chart | None:
    """Return the first steps of each worker with parameter servers, one line per resource."""
    if not isinstance(run.numbers, ThroughputSummary):
        return None
    return lane_timeline(run, WORKER_LANES, lambda lane: lane.split()[0])


def _memory(runs: Sequence[Run]) -> Chart:
    curves = []
    for run in runs:
        times, held = _held(run)
        if len(times):
            curves.append(Curve(times, held, run.index, "memory"))
    caption = "The rank with the highest peak." if isinstance(runs[0].numbers, JobSummary) else ""
    return Chart(
        name="memory",
        title="Memory over the iteration",
        x=Axis("time", "s"),
        y=Axis("memory", "B"),
        marks=tuple(curves),
        caption=caption,
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
