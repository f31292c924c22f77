"""Timelines: the first rounds of a run, the ranks of a job, an emulated iteration."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Any

import numpy as np

from paracosm.report.chart import row_chart, time_unit
from paracosm.results import JobSummary
from paracosm.results.chart import Axis, Boxes, Chart, Floats
from paracosm.results.view import Run
from paracosm.timeline import Span, Spans, union
from paracosm.units import format_duration

NODES, SPANS = 20, 600  # of the first rounds
RANKS, RANK_BARS = 16, 24  # of a job
PIXELS = 1500  # pixels across a screen: narrower gaps are closed
FILLED = 0.84  # of a row

RANK_LANES: Mapping[str, tuple[int, int]] = {
    "compute": (0, 0),
    "host": (0, 5),
    "memory": (0, 3),
    "communication": (1, 1),
    "tensor": (1, 4),
    "send": (1, 2),
    "receive": (2, 3),
}
"""Lane -> which line of its rank's row it is drawn on, and its colour."""

# Of an emulated iteration:
ITERATION_ROWS, ITERATION_SPANS = 20, 2000
FIRST = 200  # spans that are shown of a run without iterations
LINES = 3  # lines for overlapping collectives of one comm worker
COLORS = {"compute": 0, "wait": 3}
OTHERS = (1, 2, 4, 5)  # for the kinds of collectives


def timeline_chart(
    run: Run, of_several: bool = False, phases: Collection[str] = ()
) -> Chart | None:
    """Return the begin of the timeline, computing split by `phases`; None without a timeline."""
    if run.timeline is None:
        return None
    spans = run.timeline.spans
    all_nodes = node_order(spans.node.distinct())
    nodes = all_nodes[:NODES]
    known = spans[spans.node.isin(*nodes) & spans.resource.isin(*LANES)]
    known = known[np.argsort(known.begin, kind="stable")]
    # After the first span left out, the picture would be incomplete.
    until = float(known.begin[SPANS] if len(known) > SPANS else known.end.max())
    factor, unit = time_unit(until)
    lanes: dict[str, list[Span]] = {}
    for span in known[:SPANS]:
        lanes.setdefault(lane_of(span.resource, span.name, phases), []).append(span)
    places = layout_of(lane for lane in LANES if lane in lanes)
    left_out = len(all_nodes) - len(nodes)
    return _chart(
        *(run, of_several, "Timeline", Axis(f"virtual time ({unit})", limits=(0, until * factor))),
        *(nodes, 30),
        [
            Boxes(
                *_times(lanes[lane], factor),
                row=np.array([nodes.index(span.node) + place.offset for span in lanes[lane]]),
                labels=tuple(
                    f"{span.node}, {span.resource}: {span.name}, "
                    f"{format_duration(span.end - span.begin)}"
                    for span in lanes[lane]
                ),
                height=place.height,
                color=place.color,
                series=lane,
            )
            for lane, place in places.items()
        ],
        f"The first {min(len(known), SPANS):,} of {len(spans):,} spans"
        + (f"; {left_out:,} more nodes are not shown." if left_out else "."),
    )


def _chart(
    run: Run,
    of_several: bool,
    title: str,
    time: Axis,
    rows: Sequence[str],
    pixels: int,
    marks: Sequence[Boxes],
    caption: str,
) -> Chart:
    return row_chart(
        f"timeline_{run.index + 1}" if of_several else "timeline",
        f"{title}: {run.name}" if of_several else title,
        *(time, rows, marks, caption),
        pixels=pixels,
    )


def _times(spans: Sequence[Span], factor: float) -> tuple[Floats, Floats]:
    return (
        np.array([span.begin for span in spans]) * factor,
        np.array([span.end for span in spans]) * factor,
    )


def rank_bars(runs: Sequence[Run]) -> Chart | None:
    """Return a stacked bar for each kind of ranks; None unless there is one run with ranks."""
    alike = [each for run in runs for each in (run.numbers.get("breakdown") or {}).get("ranks", ())]
    if len(runs) > 1 or not alike:
        return None
    shown = alike[:RANK_BARS]
    left_out = len(alike) - len(shown)
    more = f" {left_out:,} more kinds are not shown." if left_out else ""
    return part_bars(
        *("ranks", "An iteration, rank by rank", ""),
        [group_label(each) for each in shown],
        shown,
        f"Ranks with equal breakdowns share a bar.{more}",
    )


def rank_timeline(run: Run, of_several: bool) -> Chart | None:
    """Return the timeline of each rank, computing above communication."""
    if not isinstance(run.numbers, JobSummary):
        return None
    return lane_timeline(
        *(run, of_several, RANK_LANES), lambda lane: lane if lane in RANK_LANES else "compute"
    )


def lane_timeline(
    run: Run,
    of_several: bool,
    lanes: Mapping[str, tuple[int, int]],
    lane_of: Callable[[str], str],
) -> Chart | None:
    """Return the timeline of each node; `lanes` maps a lane to its line in the row and its colour.
    Resources of other lanes are left out.
    """
    if run.timeline is None:
        return None
    spans = run.timeline.spans
    nodes = node_order(spans.node.distinct())[:RANKS]
    waits = spans.name.isin(*(name for name in spans.name.words if name.startswith("wait: ")))
    spans = spans[spans.node.isin(*nodes) & ~waits & (spans.end > spans.begin)]
    if not len(spans):
        return None
    last = float(spans.end.max())
    factor, unit = time_unit(last)
    resources: dict[str, list[str]] = {lane: [] for lane in lanes}
    for resource in spans.resource.distinct():
        if (lane := lane_of(resource)) in resources:
            resources[lane].append(resource)
    used = {lane: own for lane, own in resources.items() if own}
    lines = sorted({lanes[lane][0] for lane in used})
    marks = []
    for lane, own in used.items():
        line, color = lanes[lane]
        offset = (lines.index(line) - (len(lines) - 1) / 2) * FILLED / len(lines)
        drawn = spans[spans.resource.isin(*own)]
        boxes = [_joined(drawn, node, last / PIXELS) for node in nodes]
        marks.append(
            Boxes(
                begin=np.concatenate([begin for begin, _, _ in boxes]) * factor,
                end=np.concatenate([end for _, end, _ in boxes]) * factor,
                row=np.repeat(np.arange(len(nodes)) + offset, [len(each[0]) for each in boxes]),
                labels=tuple(
                    f"{node}, {lane}: {number:,} span{'s' if number > 1 else ''}, "
                    f"{format_duration(until - since)}"
                    for node, box in zip(nodes, boxes, strict=True)
                    for since, until, number in zip(*(each.tolist() for each in box), strict=True)
                ),
                height=0.9 * FILLED / len(lines),
                color=color,
                series=lane,
            )
        )
    return _chart(
        *(run, of_several, "Timeline", Axis(f"time ({unit})", limits=(0.0, last * factor))),
        *(nodes, 16 * (1 + len(lines)), marks),
        "Spans closer than a pixel are drawn as one.",
    )


def _joined(spans: Spans, node: str, gap: float) -> tuple[Floats, Floats, Any]:
    own = spans[spans.node.isin(node)]
    begin, end = union(own.begin, own.end, gap)
    first = np.searchsorted(np.sort(own.begin), begin)
    return begin, end, np.diff(first, append=len(own))


def iteration_timeline(run: Run, of_several: bool) -> Chart | None:
    """Return the iteration of median time of an emulated job, or its first spans; or None."""
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
    shown = [span for span in inside if span[:2] in rows][:ITERATION_SPANS]
    if not shown:
        return None
    factor, unit = time_unit(end - begin)
    names = list(dict.fromkeys(rows.values()))
    left_out = len({span[:2] for span in inside}) - len(rows)
    return _chart(
        *(run, of_several, "First collectives" if number is None else f"Iteration {number:,}"),
        Axis(f"time ({unit})", limits=(0.0, (end - begin) * factor)),
        *(names, 34, _marks(shown, rows, names, factor)),
        " ".join(
            [
                *(["The iteration with the median time."] if number is not None else []),
                "A comm worker's bar covers a collective from its begin to its end.",
                *([f"{left_out:,} more rows are not shown."] if left_out > 0 else []),
            ]
        ),
    )


def _window(spans: Spans, number: int | None, rank: int | None) -> tuple[float, float]:
    own = spans[spans.name.isin(f"iteration {number}")]
    if rank is not None:
        own = own[own.node.isin(f"rank{rank}")]
    if number is None or not len(own):
        return float(spans.begin[0]), float(spans.end[:FIRST].max())
    return float(own.begin.min()), float(own.end.max())


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
    kept = list(dict.fromkeys(rows.values()))[:ITERATION_ROWS]
    return {key: row for key, row in rows.items() if row in kept}


def _order(resource: str) -> tuple[bool, int, str]:
    return resource not in COLORS, len(resource), resource


def _marks(
    spans: Sequence[Span], rows: dict[tuple[str, str], str], names: Sequence[str], factor: float
) -> list[Boxes]:
    kinds: dict[str, list[tuple[Span, int, int]]] = {}
    for span, line, count in _lines(spans):
        kind = span.resource if span.resource in COLORS else span.name.split(" ")[0]
        kinds.setdefault(kind, []).append((span, line, count))
    by_number = sorted(kinds.keys() - COLORS.keys(), key=lambda kind: (-len(kinds[kind]), kind))
    collectives = zip(by_number, cycle(OTHERS), strict=False)
    colors = {kind: color for kind, color in COLORS.items() if kind in kinds} | dict(collectives)
    marks = []
    for kind, color in colors.items():
        own = [span for span, _, _ in kinds[kind]]
        row = np.array([names.index(rows[span[:2]]) for span in own])
        line, count = np.array([each[1:] for each in kinds[kind]], dtype=np.float64).T
        # Boxes of a mark have the same height, that of the row with most lines.
        height = FILLED / count.max() * (0.35 if kind == "wait" else 1.0)
        marks.append(
            Boxes(
                *_times(own, factor),
                row=row + (line - (count - 1) / 2) * FILLED / count,
                labels=tuple(_label(span) for span in own),
                height=float(height),
                color=color,
                series=kind,
            )
        )
    return marks


def _lines(spans: Sequence[Span]) -> list[tuple[Span, int, int]]:
    """Return each span with its line in its row, and the number of lines of the row."""
    ends: dict[tuple[str, str], list[float]] = {}
    line_of = []
    for span in spans:  # by begin
        open_until = ends.setdefault(span[:2], [])
        free = [line for line, end in enumerate(open_until) if end <= span.begin]
        line = free[0] if free else min(len(open_until), LINES - 1)
        if line == len(open_until):
            open_until.append(span.end)
        else:
            open_until[line] = max(open_until[line], span.end)
        line_of.append(line)
    return [(span, line, len(ends[span[:2]])) for span, line in zip(spans, line_of, strict=True)]


def _label(span: Span) -> str:
    what = span.name if span.resource == "wait" else f"{span.resource}: {span.name}"
    return f"{span.node}, {what}, {format_duration(float(f'{span.end - span.begin:.4g}'))}"


TIMELINES = 3


def first_timelines(
    runs: Sequence[Run], timeline: Callable[[Run, bool], Chart | None]
) -> list[Chart | None]:
    """Return the first runs' timelines; the last caption mentions the others."""
    found = (timeline(run, len(runs) > 1) for run in runs)
    charts = list(islice(filter(None, found), TIMELINES))
    if len(charts) == TIMELINES < len(runs):
        caption = f"{charts[-1].caption} The reports of the other runs show theirs.".strip()
        charts[-1] = replace(charts[-1], caption=caption)
    return [*charts]


LEAST = 5e-4  # share of the time: parts below it in all bars are not named

PARTS: Mapping[str, tuple[str, int | None]] = {
    "compute": ("compute", 0),
    "copies": ("copies", 3),
    "exposed_communication": ("exposed communication", 1),
    "waiting": ("waiting for others", 4),
    "bubble": ("pipeline bubble", 2),
    "launch": ("launching", 5),
    "host": ("waiting for the host", 5),
    "idle": ("idle", None),
}
"""Name and colour of each part; without a colour it is left blank."""


def part_bars(
    name: str,
    title: str,
    rows: str,
    names: Sequence[str],
    breakdowns: Sequence[Mapping[str, float]],
    caption: str = "",
) -> Chart:
    """Return a chart with a bar for each breakdown: seconds by part of `PARTS`."""
    whole = np.array([_whole(each) for each in breakdowns])
    factor, unit = time_unit(float(whole.max()))
    places, reached = np.arange(len(names), dtype=np.float64), np.zeros(len(names))
    marks = []
    for part in shown_parts(breakdowns):
        series, color = PARTS[part]
        times = np.array([each.get(part, 0.0) for each in breakdowns])
        labels = tuple(
            f"{who}, {series}: {format_duration(time)}, {time / (total or 1.0):.1%}"
            for who, time, total in zip(names, times.tolist(), whole.tolist(), strict=True)
        )
        if color is not None:
            ends = reached * factor, (reached + times) * factor
            marks.append(Boxes(*ends, places, labels, 0.7, color, series))
        reached = reached + times
    x = Axis(f"time ({unit})", limits=(0.0, 1.01 * factor * float(whole.max()) or 1.0))
    return row_chart(name, title, x, names, marks, caption, pixels=26, label=rows)


def shown_parts(breakdowns: Iterable[Mapping[str, float]]) -> list[str]:
    """Return the parts that matter in at least one breakdown; computing is always included."""
    breakdowns = list(breakdowns)
    return [
        part
        for part in PARTS
        if part == "compute"
        or any(each.get(part, 0.0) > LEAST * _whole(each) for each in breakdowns)
    ]


def _whole(breakdown: Mapping[str, float]) -> float:
    return sum(breakdown.get(part, 0.0) for part in PARTS)


def group_label(alike: Mapping[str, Any]) -> str:
    """Name a group of ranks with equal breakdowns."""
    others = alike["ranks"] - 1
    return f"{alike['first']} and {others:,} alike" if others else str(alike["first"])


PHASES = ("copy", "compute", "update")
"""Consecutive phases of a processor of a relaxation, where its times distinguish them."""


@dataclass(frozen=True)
class Lane:
    """The place of a resource in its node's row: one of three lanes, height, colour."""

    lane: int
    height: float
    color: int


@dataclass(frozen=True)
class Place:
    """The place of a resource in its row: offset of its middle, height, colour."""

    offset: float
    height: float
    color: int


# A waiting node does not compute, so both share a lane.
LANES = {
    "copy": Lane(0, 0.27, 4),
    "compute": Lane(0, 0.27, 0),
    "update": Lane(0, 0.27, 5),
    "wait": Lane(0, 0.08, 3),
    "send": Lane(1, 0.27, 1),
    "receive": Lane(2, 0.27, 2),
}


def lane_of(resource: str, name: str, phases: Collection[str] = ()) -> str:
    """Return the lane of a span: its resource, or its name where computing is split by `phases`."""
    return name if resource == "compute" and name in phases else resource


def layout_of(resources: Iterable[str]) -> dict[str, Place]:
    """Return the places of resources in a row; a single lane takes the whole row."""
    lanes = {resource: LANES[resource] for resource in resources}
    alone = len({lane.lane for lane in lanes.values()}) == 1
    return {
        resource: Place(
            offset=0.0 if alone else (lane.lane - 1) * 0.29,
            height=2 * lane.height if alone else lane.height,
            color=lane.color,
        )
        for resource, lane in lanes.items()
    }


def node_group(node: str) -> str:
    """Return a node's name without its number: "worker12" is one of the "worker"s."""
    return re.sub(r"[\W_]*\d+$", "", node) or node


def node_order(nodes: Iterable[str]) -> list[str]:
    """Sort nodes, the smaller group (the servers) first, worker2 before worker10."""
    group = {node: node_group(node) for node in nodes}
    sizes = Counter(group.values())
    return sorted(group, key=lambda node: (sizes[group[node]], group[node], len(node), node))
