"""Charts of nodes: their utilisation, and timelines of what they do."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from paracosm.results.chart import Axis, Boxes, Chart, Dots, Floats
from paracosm.results.charts import quantiles, row_chart
from paracosm.results.view import Run, counted
from paracosm.timeline import Spans, union
from paracosm.units import format_duration

NAMED_NODES = 20  # of a timeline; the utilisation of more nodes is a swarm of dots
SPANS = 600  # of the first rounds
RANKS = 16  # of a job
PIXELS = 1500  # pixels across a screen: narrower gaps are closed
FILLED = 0.84  # of a row
TIMELINES = 4  # runs of a comparison that show theirs; of more runs they are folded
SHARE = Axis("share of virtual time", percent=True, limits=(0, 1.02))


class Lane(NamedTuple):
    """The place of a resource in its node's row: one of three lines, height, colour."""

    line: int
    height: float
    color: int


# A waiting node does not compute, so both share a line.
LANES = {
    "copy": Lane(0, 0.27, 4),
    "compute": Lane(0, 0.27, 0),
    "wait": Lane(0, 0.08, 3),
    "update": Lane(0, 0.27, 5),
    "send": Lane(1, 0.27, 1),
    "receive": Lane(2, 0.27, 2),
}
PHASES = ("copy", "compute", "update")
"""Consecutive phases of computing, where its times distinguish them."""

Shares = Mapping[tuple[str, str], float]
"""The utilisation of each (node, resource of `LANES`)."""


def utilisation_chart(runs: Sequence[Run], of_run: Callable[[Run], Shares], title: str) -> Chart:
    """Return bars for the nodes of one run, dots for many nodes, means for several runs."""
    shares = [of_run(run) for run in runs]
    groups = sorted(
        {(node_group(node), resource) for run_shares in shares for node, resource in run_shares},
        key=lambda row: (row[0], list(LANES).index(row[1])),
    )
    if len(runs) > 1:
        return _mean_shares(runs, shares, groups, title)
    nodes = node_order({node for node, _ in shares[0]})
    if len(nodes) <= NAMED_NODES:
        return _shares_of_nodes(shares[0], nodes, title)
    return _shares_of_crowds(shares[0], groups, title)


def _shares_of_nodes(shares: Shares, nodes: Sequence[str], title: str) -> Chart:
    marks = []
    reached: dict[tuple[int, int], float] = {}
    for resource, (line, offset, height) in _places({resource for _, resource in shares}).items():
        rows = [row for row, node in enumerate(nodes) if (node, resource) in shares]
        values = np.array([shares[nodes[row], resource] for row in rows])
        # Phases of the same line are stacked.
        begin = np.array([reached.get((row, line), 0.0) for row in rows])
        reached |= {(row, line): end for row, end in zip(rows, begin + values, strict=True)}
        labels = tuple(
            f"{nodes[row]}, {resource}: {shares[nodes[row], resource]:.1%}" for row in rows
        )
        where = begin, begin + values, np.array(rows) + offset
        marks.append(Boxes(*where, labels, height, LANES[resource].color, resource))
    return row_chart("utilisation", title, SHARE, nodes, marks, pixels=30)


def _shares_of_crowds(shares: Shares, groups: Sequence[tuple[str, str]], title: str) -> Chart:
    """Return a dot for each of many nodes, in a row for each kind of them and resource."""
    marks = []
    for row, (group, resource) in enumerate(groups):
        nodes = [node for node, of in shares if of == resource and node_group(node) == group]
        values: Floats = np.array([shares[node, resource] for node in nodes])
        chosen = quantiles(values)
        # Multiples of the golden ratio spread evenly: neighbours in rank do not cover each other.
        spread = (np.arange(len(chosen), dtype=np.float64) * 0.6180339887 + 0.5) % 1 - 0.5
        labels = tuple(f"{nodes[i]}, {resource}: {values[i]:.1%}" for i in chosen.tolist())
        marks.append(Dots(values[chosen], row + 0.5 * spread, labels, 0, "node"))
    names = [f"{group}s, {resource}" for group, resource in groups]
    caption = "Each dot is a node; of more than 200 in a group, 200 are shown, evenly by rank."
    return row_chart("utilisation", title, SHARE, names, marks, caption, pixels=36)


def _mean_shares(
    runs: Sequence[Run], shares: Sequence[Shares], groups: Sequence[tuple[str, str]], title: str
) -> Chart:
    """Return a row for each run, with the mean of each kind of nodes and resource."""
    marks = []
    for color, (group, resource) in enumerate(groups):
        for run, run_shares in zip(runs, shares, strict=True):
            values = [
                s for (n, of), s in run_shares.items() if of == resource and node_group(n) == group
            ]
            if values:
                mean, series = sum(values) / len(values), f"{group}s, {resource}"
                label = f"{series}: {mean:.1%} on average ({min(values):.1%} to {max(values):.1%})"
                at = np.array([mean]), np.array([float(run.index)])
                marks.append(Dots(*at, (label,), run.index, series, "diamond", color))
    names = [run.name for run in runs]
    return row_chart("utilisation", title, SHARE, names, marks, "The mean over nodes of a kind.")


def first_timelines(
    runs: Sequence[Run], timeline: Callable[[Run], Chart | None]
) -> list[Chart | None]:
    """Return the first runs' timelines, named by their runs; where there are others, the last
    caption says so, and all are folded.
    """
    drawn = ((run, chart) for run in runs if (chart := timeline(run)) is not None)
    charts = [
        replace(chart, name=f"{chart.name}_{run.index + 1}", title=f"{chart.title}: {run.name}")
        if len(runs) > 1
        else chart
        for run, chart in islice(drawn, TIMELINES)
    ]
    if len(charts) == TIMELINES < len(runs):
        caption = f"{charts[-1].caption} The reports of the other runs show theirs.".strip()
        charts[-1] = replace(charts[-1], caption=caption)
    return [replace(chart, folded=len(runs) > TIMELINES) for chart in charts]


def boxes_by_series(
    run: Run,
    begin: ArrayLike,
    end: ArrayLike,
    row: ArrayLike,
    series: Sequence[str],
    labels: Sequence[str],
    looks: Mapping[str, tuple[float, int]],
) -> list[Boxes]:
    """Return boxes, those of each series as one mark with its height and colour of `looks`."""
    begin, end, row = (np.asarray(values, dtype=np.float64) for values in (begin, end, row))
    marks = []
    for name, (height, color) in looks.items():
        chosen = [place for place, other in enumerate(series) if other == name]
        if chosen:
            texts = tuple(labels[place] for place in chosen)
            where = begin[chosen], end[chosen], row[chosen]
            marks.append(Boxes(*where, texts, height, color, name, run.index))
    return marks


def first_spans(run: Run, phases: Collection[str] = ()) -> Chart | None:
    """Return the begin of a timeline, computing split by `phases`; None without a timeline."""
    if run.timeline is None:
        return None
    spans = run.timeline.spans
    all_nodes = node_order(spans.node.distinct())
    nodes = all_nodes[:NAMED_NODES]
    known = spans[spans.node.isin(*nodes) & spans.resource.isin(*LANES)]
    known = known[np.argsort(known.begin, kind="stable")]
    # After the first span left out, the picture would be incomplete.
    until = float(known.begin[SPANS] if len(known) > SPANS else known.end.max())
    shown = list(known[:SPANS])
    lanes = [lane_of(span.resource, span.name, phases) for span in shown]
    places = _places(set(lanes))
    marks = boxes_by_series(
        run,
        [span.begin for span in shown],
        [span.end for span in shown],
        [nodes.index(s.node) + places[lane].offset for s, lane in zip(shown, lanes, strict=True)],
        lanes,
        [f"{s.node}, {s.resource}: {s.name}, {format_duration(s.end - s.begin)}" for s in shown],
        {lane: (place.height, LANES[lane].color) for lane, place in places.items()},
    )
    caption = f"The first {len(shown):,} of {len(spans):,} spans"
    left_out = len(all_nodes) - len(nodes)
    caption += f"; {left_out:,} more nodes are not shown." if left_out else "."
    time = Axis("virtual time", unit="s", limits=(0.0, until))
    return row_chart("timeline", "Timeline", time, nodes, marks, caption, pixels=30)


def lane_timeline(
    run: Run, lanes: Mapping[str, tuple[int, int]], lane_of: Callable[[str], str]
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
    resources: dict[str, list[str]] = {lane: [] for lane in lanes}
    for resource in spans.resource.distinct():
        if (lane := lane_of(resource)) in resources:
            resources[lane].append(resource)
    used = {lane: names for lane, names in resources.items() if names}
    lines = sorted({lanes[lane][0] for lane in used})
    marks = []
    for lane, names in used.items():
        line, color = lanes[lane]
        offset = (lines.index(line) - (len(lines) - 1) / 2) * FILLED / len(lines)
        drawn = spans[spans.resource.isin(*names)]
        boxes = [_joined(drawn, node, last / PIXELS) for node in nodes]
        labels = tuple(
            f"{node}, {lane}: {counted(number, 'span')}, {format_duration(until - since)}"
            for node, box in zip(nodes, boxes, strict=True)
            for since, until, number in zip(*(column.tolist() for column in box), strict=True)
        )
        begin, end = (np.concatenate([box[place] for box in boxes]) for place in (0, 1))
        row = np.repeat(np.arange(len(nodes)) + offset, [len(box[0]) for box in boxes])
        height = 0.9 * FILLED / len(lines)
        marks.append(Boxes(begin, end, row, labels, height, color, lane, run.index))
    caption = "Spans closer than a pixel are drawn as one."
    time = Axis("time", unit="s", limits=(0.0, last))
    pixels = 16 * (1 + len(lines))
    return row_chart("timeline", "Timeline", time, nodes, marks, caption, pixels=pixels)


def _joined(spans: Spans, node: str, gap: float) -> tuple[Floats, Floats, Any]:
    spans = spans[spans.node.isin(node)]
    begin, end = union(spans.begin, spans.end, gap)
    first = np.searchsorted(np.sort(spans.begin), begin)
    return begin, end, np.diff(first, append=len(spans))


def lane_of(resource: str, name: str, phases: Collection[str] = ()) -> str:
    """Return the lane of a span: its resource, or its name where computing is split by `phases`."""
    return name if resource == "compute" and name in phases else resource


class _Place(NamedTuple):
    line: int
    offset: float  # of its middle from that of its row
    height: float


def _places(resources: Collection[str]) -> dict[str, _Place]:
    """Return the places of resources in a row; a single line takes the whole row."""
    lanes = {resource: lane for resource, lane in LANES.items() if resource in resources}
    alone = len({lane.line for lane in lanes.values()}) == 1
    return {
        resource: _Place(line, 0.0, 2 * height)
        if alone
        else _Place(line, (line - 1) * 0.29, height)
        for resource, (line, height, _) in lanes.items()
    }


def node_group(node: str) -> str:
    """Return a node's name without its number: "worker12" is one of the "worker"s."""
    return re.sub(r"[\W_]*\d+$", "", node) or node


def node_order(nodes: Iterable[str]) -> list[str]:
    """Sort nodes, the smaller group (the servers) first, worker2 before worker10."""
    group = {node: node_group(node) for node in nodes}
    sizes = Counter(group.values())
    return sorted(group, key=lambda node: (sizes[group[node]], group[node], len(node), node))
