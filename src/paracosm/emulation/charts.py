"""The charts of emulated jobs: iteration times, where they go, collectives, delays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from typing import Any

import numpy as np

from paracosm.results.chart import Axis, Chart, Curve, Dots, Floats, Level, Mark, Sections
from paracosm.results.charts import Part, bar_chart, breakdown_chart, ranges, row_chart
from paracosm.results.node_charts import FILLED, boxes_by_series, first_timelines, node_order
from paracosm.results.view import Run, short_duration
from paracosm.timeline import Span, Spans
from paracosm.units import format_between, format_duration

EXPOSED, HIDDEN = 1, 2  # colours
RANKS = 24  # bars of real ranks

# Of a timeline:
ROWS, SPANS = 20, 2000
FIRST = 200  # spans that are shown of a run without iterations
LINES = 3  # lines for overlapping collectives of one comm worker
COLORS = {"compute": 0, "wait": 3}
OTHERS = (1, 2, 4, 5)  # for the kinds of collectives


def sections(runs: Sequence[Run]) -> Sections:
    """Return the charts of emulations."""
    return {
        "Iterations": [_iteration_times(runs)],
        "Where an iteration goes": [_iteration_parts(runs), _collectives(runs)],
        "Added delay": [_delays(runs)],
        "A typical iteration": first_timelines(runs, _timeline),
    }


def _collectives(runs: Sequence[Run]) -> Chart | None:
    """Return exposed and hidden time by kind of collective, of a single run."""
    kinds = runs[0].numbers.get("collectives") or {}
    if len(runs) > 1:
        return None
    per_iteration = any(seconds["per_iteration"] for seconds in kinds.values())
    times = {k: times["per_iteration"] if per_iteration else times for k, times in kinds.items()}
    times = {kind: seconds for kind, seconds in times.items() if seconds["time"] > 0}
    if not times:
        return None

    def part(name: str, color: int) -> Part:
        labels = [
            f"{kind}, {name}: {format_duration(spent[name])} of {format_duration(spent['time'])}"
            for kind, spent in times.items()
        ]
        return Part(name, color, [seconds[name] for seconds in times.values()], labels)

    return bar_chart(
        "collectives",
        "Collectives of an iteration" if per_iteration else "Collectives",
        Axis("time", "s"),
        list(times),
        [part("exposed", EXPOSED), part("hidden", HIDDEN)],
        "Hidden: in progress while the rank computes. Exposed: while it waits. Overlapping "
        "collectives of a kind count once.",
    )


def _iteration_times(runs: Sequence[Run]) -> Chart | None:
    """Return the time of each iteration after the first; of a single run, with its exposed time."""
    known = {run: _after_first(run, "iteration_time") for run in runs}
    times = {run: series for run, series in known.items() if len(series[0])}
    if not times:
        return None
    restarted = any((np.diff(step) <= 0).any() for step, _ in times.values())

    def curve(
        run: Run, name: str, values: tuple[Floats, Floats], color: int | None = None
    ) -> Curve:
        step, y = values
        # Several runs of the script are drawn in sequence.
        x = np.arange(1.0, len(step) + 1) if restarted else step
        return Curve(x, y, run.index, name, color=color)

    marks: list[Mark] = [curve(run, "iteration", values) for run, values in times.items()]
    if len(runs) == 1:
        (run,) = times
        exposed = _after_first(run, "exposed")
        if len(exposed[0]):
            marks.append(curve(run, "exposed communication", exposed, EXPOSED))
        marks += [] if restarted else _levels(run, times[run][0])
    return Chart(
        name="iteration_times",
        title="Iteration times",
        x=Axis("iteration, of all runs of the script" if restarted else "iteration"),
        y=Axis("time", "s", from_zero=True),
        marks=tuple(marks),
        caption=(
            "The script ran once for each delay; the first iteration of each holds its start-up "
            "and is left out."
            if restarted
            else "The first iteration holds the start-up and is left out."
        ),
        wide=True,
    )


def _after_first(run: Run, metric: str) -> tuple[Floats, Floats]:
    """Return steps and values of a metric of the rank that the summary describes."""
    series = run.series(metric)
    rank = run.numbers.get("slowest_rank")
    chosen = series.step > 0
    if rank is not None:
        chosen &= series.node == f"rank{rank}"
    elif len(series):
        chosen &= series.node == series.node[0]
    values = series.where(chosen)
    return values.step.astype(np.float64), values.value


def _levels(run: Run, step: Floats) -> list[Level]:
    time = run.numbers.get("iteration_time")
    if not time:
        return []
    ends = float(step.min()), float(step.max())
    return [
        Level(time[key], *ends, f"{key} {format_duration(time[key])}", series)
        for key, series in (("median", "median"), ("p10", "p10 and p90"), ("p90", "p10 and p90"))
    ]


def _iteration_parts(runs: Sequence[Run]) -> Chart | None:
    """Return a bar in parts for each run; of one run, with and without changes, or a real rank."""
    numbers = runs[0].numbers
    bars: dict[str, Mapping[str, float] | None]
    if len(runs) == 1 and (before := numbers.get("unchanged")):
        change = "; ".join(numbers.get("what_if") or ())
        bars = {"unchanged": before["breakdown"], change: numbers.get("breakdown")}
    elif len(runs) == 1 and (ranks := numbers.get("ranks")):
        bars = {f"rank {rank['rank']}": rank["breakdown"] for rank in ranks[:RANKS]}
    elif len(runs) == 1:
        bars = {"iteration": numbers.get("breakdown")}
    else:
        bars = {run.name: run.numbers.get("breakdown") for run in runs}
    parts = {name: _named_parts(breakdown) for name, breakdown in bars.items() if breakdown}
    caption = (
        "Mean of the middle half of the iterations. Waiting for others: until the last rank "
        "arrived."
    )
    return breakdown_chart("iteration_parts", "Parts of an iteration", parts, caption)


def _named_parts(breakdown: Mapping[str, float]) -> dict[str, float]:
    """Return the parts under the names common to all jobs; waits without a cause stay blank."""
    late = breakdown["late_peers"]
    return {
        "compute": breakdown["compute"],
        "exposed_communication": breakdown["exposed_communication"] - late,
        "waiting": late,
        "idle": breakdown["waiting"],
    }


FIT, KNEE = 1, 2  # colours, in a chart of one run


def _delays(runs: Sequence[Run]) -> Chart | None:
    """Return medians with p10 to p90, the fitted line and its knee; None where no delay varied."""
    known = {run: points for run in runs if (points := _points(run))}
    if not known:
        return None
    times = [point["iteration_time"] for points in known.values() for point in points]
    low, high = min(time["p10"] for time in times), max(time["p90"] for time in times)
    room = 0.08 * (high - low) or 0.1 * high
    limits = max(0.0, low - room), high + room
    marks: list[Mark] = []
    for run, points in known.items():
        fit = _fit(run, points, limits[0], alone=len(runs) == 1)
        marks += [*fit[:1], *_measured_delays(run, points), *fit[1:]]
    knees = [knee for run in known if (knee := run.numbers.get("knee"))]
    kinds = {str(knee["kind"]) for knee in knees}
    of = f" of each {kinds.pop()}" if len(kinds) == 1 else ""
    text = knees[0].get("sentence") if len(runs) == len(knees) == 1 else None
    return Chart(
        name="iteration_time_by_delay",
        title=f"Iteration time against added delay{of}",
        x=Axis("added delay", "s"),
        y=Axis("iteration time", "s", limits=limits),
        marks=tuple(marks),
        caption=" ".join(filter(None, [text, "Bars reach from p10 to p90."])),
        height=400,
        wide=True,
    )


def _points(run: Run) -> list[Mapping[str, Any]]:
    return [delay for delay in run.numbers.get("delays") or () if delay["iteration_time"]]


def _measured_delays(run: Run, points: Sequence[Mapping[str, Any]]) -> list[Mark]:
    """Return a dot at each median, and a bar from p10 to p90 through it."""
    delays = np.array([point["delay"] for point in points])
    times = [point["iteration_time"] for point in points]
    medians, p10, p90 = (
        np.array([time[key] for time in times]) for key in ("median", "p10", "p90")
    )
    labels = []
    for delay, time in zip(delays.tolist(), times, strict=True):
        ends = time["p10"], time["median"], time["p90"]
        median, spread = format_between(*ends, format_duration)
        labels.append(f"{format_duration(delay)} added: {median} ({spread})")
    return [
        Curve(*ranges(delays, p10, p90), run.index, "p10 to p90", faint=True),
        Dots(delays, medians, tuple(labels), run.index, "median"),
    ]


def _fit(
    run: Run, points: Sequence[Mapping[str, Any]], bottom: float, *, alone: bool
) -> list[Mark]:
    """Return the fitted line; at its knee a diamond, and a line up to it."""
    fit = run.numbers.get("knee") or {}
    if fit.get("base") is None:
        return []
    knee = None if fit.get("knee") is None else float(fit["knee"])
    ends = [point["delay"] for point in points]
    x = np.array(sorted({min(ends), max(ends), *([] if knee is None else [knee])}))
    colors = (FIT, KNEE) if alone else (None, None)
    marks: list[Mark] = [Curve(x, _fitted(fit, x), run.index, "fit", color=colors[0])]
    if knee is None:
        return marks
    y = float(_fitted(fit, np.array([knee]))[0])
    label = f"knee: {format_duration(float(f'{knee:.3g}'))}"
    edge = np.array([knee, knee]), np.array([bottom, y])
    at = np.array([knee]), np.array([y])
    return [
        *marks,
        Curve(*edge, run.index, "knee", color=colors[1]),
        Dots(*at, (label,), run.index, "knee", "diamond", colors[1]),
    ]


def _fitted(fit: Mapping[str, Any], delays: Floats) -> Any:
    if fit["knee"] is None:
        return fit["base"] + fit["slope"] * delays
    flat = fit["flat_slope"] * np.minimum(delays, fit["knee"])
    steep = fit["slope"] * np.maximum(delays - fit["knee"], 0.0)
    return fit["base"] + flat + steep


def _timeline(run: Run) -> Chart | None:
    """Return the iteration of median time, or the first spans; None without a timeline."""
    if run.timeline is None:
        return None
    spans = run.timeline.spans
    spans = spans[np.argsort(spans.begin, kind="stable")]
    number = run.numbers.get("typical_iteration")
    begin, end = _window(spans, number, run.numbers.get("slowest_rank"))
    inside = [
        span._replace(begin=max(span.begin, begin) - begin, end=min(span.end, end) - begin)
        for span in spans[(spans.begin < end) & (spans.end > begin)]
    ]
    rows = _rows(inside)
    shown = [span for span in inside if span[:2] in rows][:SPANS]
    if not shown:
        return None
    names = list(dict.fromkeys(rows.values()))
    kinds = [s.resource if s.resource in COLORS else s.name.split(" ")[0] for s in shown]
    lines, counts = _lines(shown)
    marks = boxes_by_series(
        run,
        [span.begin for span in shown],
        [span.end for span in shown],
        [
            names.index(rows[span[:2]]) + (line - (count - 1) / 2) * FILLED / count
            for span, line, count in zip(shown, lines, counts, strict=True)
        ],
        kinds,
        [_label(span) for span in shown],
        _looks(kinds, counts),
    )
    left_out = len({span[:2] for span in inside}) - len(rows)
    remarks = [
        None if number is None else "The iteration with the median time.",
        "A comm worker's bar covers a collective from its beginning to its end.",
        f"{left_out:,} more rows are not shown." if left_out > 0 else None,
    ]
    title = "First collectives" if number is None else f"Iteration {number:,}"
    time = Axis("time", "s", limits=(0.0, end - begin))
    caption = " ".join(filter(None, remarks))
    return row_chart("timeline", title, time, names, marks, caption, pixels=34)


def _window(spans: Spans, number: int | None, rank: int | None) -> tuple[float, float]:
    iteration = spans[spans.name.isin(f"iteration {number}")]
    if rank is not None:
        iteration = iteration[iteration.node.isin(f"rank{rank}")]
    if number is None or not len(iteration):
        return float(spans.begin[0]), float(spans.end[:FIRST].max())
    return float(iteration.begin.min()), float(iteration.end.max())


def _rows(spans: Sequence[Span]) -> dict[tuple[str, str], str]:
    """Return the name of the row for each node and resource; the node's own comes first."""
    nodes = node_order({span.node for span in spans})
    rows: dict[tuple[str, str], str] = {}
    for node in nodes:
        for resource in sorted({span.resource for span in spans if span.node == node}, key=_order):
            if resource in COLORS:
                rows[node, resource] = node
            else:
                rows[node, resource] = f"{node}, {resource}" if len(nodes) > 1 else resource
    kept = list(dict.fromkeys(rows.values()))[:ROWS]
    return {key: row for key, row in rows.items() if row in kept}


def _order(resource: str) -> tuple[bool, int, str]:
    return resource not in COLORS, len(resource), resource


def _lines(spans: Sequence[Span]) -> tuple[list[int], list[int]]:
    """Return the line of each span in its row, and the number of lines of the row."""
    ends: dict[tuple[str, str], list[float]] = {}
    lines = []
    for span in spans:  # by begin
        open_until = ends.setdefault(span[:2], [])
        free = [line for line, end in enumerate(open_until) if end <= span.begin]
        line = free[0] if free else min(len(open_until), LINES - 1)
        if line == len(open_until):
            open_until.append(span.end)
        else:
            open_until[line] = max(open_until[line], span.end)
        lines.append(line)
    return lines, [len(ends[span[:2]]) for span in spans]


def _looks(kinds: Sequence[str], counts: Sequence[int]) -> dict[str, tuple[float, int]]:
    """Return height and colour of each kind: the height is that of its row with most lines."""
    most: dict[str, int] = {}
    for kind, count in zip(kinds, counts, strict=True):
        most[kind] = max(count, most.get(kind, 0))
    collectives = sorted(most.keys() - COLORS.keys(), key=lambda kind: (-kinds.count(kind), kind))
    colors = COLORS | dict(zip(collectives, cycle(OTHERS), strict=False))
    return {
        kind: (FILLED / most[kind] * (0.35 if kind == "wait" else 1.0), color)
        for kind, color in colors.items()
        if kind in most
    }


def _label(span: Span) -> str:
    name = span.name if span.resource == "wait" else f"{span.resource}: {span.name}"
    return f"{span.node}, {name}, {short_duration(span.end - span.begin)}"
