"""Charts of several kinds of runs: utilisation of nodes, staleness of their reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from paracosm.report.chart import HISTOGRAMS, histogram, quantiles, row_chart
from paracosm.report.timeline_charts import LANES, layout_of, node_group, node_order
from paracosm.results.chart import Area, Axis, Boxes, Chart, Dots, Floats
from paracosm.results.view import Run

RECORDED = ("compute", "send", "receive")
RESOURCES = ("copy", "compute", "wait", "update", "send", "receive")
NAMED_NODES = 20  # more nodes are shown as a swarm of dots
SHARE = Axis("share of virtual time", percent=True, limits=(0, 1.02))


Shares = dict[tuple[str, str], float]
"""The utilisation of each (node, resource); a resource is one of `RESOURCES`."""


def recorded_shares(run: Run) -> Shares:
    """Return recorded utilisation and waiting, without resources unused by a group."""
    found: Shares = {}
    for resource in RECORDED:
        series = run.series(f"utilisation.{resource}")
        pairs = list(zip(series.node, series.value.tolist(), strict=True))
        used = {node_group(node) for node, share in pairs if share > 0}
        found |= {(node, resource): share for node, share in pairs if node_group(node) in used}
    end = run.numbers.get("virtual_time")
    if end and len(waiting := run.series("waiting")):
        nodes, places = np.unique(waiting.node.astype(str), return_inverse=True)
        seconds = np.bincount(places, waiting.value)
        found |= {(str(n), "wait"): float(s) / end for n, s in zip(nodes, seconds, strict=True)}
    return found


def utilisation_chart(
    runs: Sequence[Run],
    shares_of: Callable[[Run], Shares] = recorded_shares,
    title: str = "Utilisation of workers and ports",
) -> Chart:
    """Return bars for the nodes of one run, dots for many nodes, means for several runs."""
    shares = [shares_of(run) for run in runs]
    if len(runs) > 1:
        return _means(runs, shares, title)
    few = len({node for node, _ in shares[0]}) <= NAMED_NODES
    return _bars(shares[0], title) if few else _crowds(shares[0], title)


def _bars(shares: Shares, title: str) -> Chart:
    nodes = node_order({node for node, _ in shares})
    marks = []
    reached: dict[tuple[int, int], float] = {}
    used = {resource for _, resource in shares}
    places = layout_of(resource for resource in RESOURCES if resource in used)
    for resource, place in places.items():
        lane = LANES[resource].lane
        rows = [row for row, node in enumerate(nodes) if (node, resource) in shares]
        values = np.array([shares[nodes[row], resource] for row in rows])
        # Phases of the same lane are stacked.
        begin = np.array([reached.get((row, lane), 0.0) for row in rows])
        reached |= {(row, lane): end for row, end in zip(rows, begin + values, strict=True)}
        labels = (
            f"{nodes[row]}, {resource}: {value:.1%}"
            for row, value in zip(rows, values, strict=True)
        )
        where = begin, begin + values, np.array(rows) + place.offset
        marks.append(Boxes(*where, tuple(labels), place.height, place.color, resource))
    return row_chart("utilisation", title, SHARE, nodes, marks, pixels=30)


def _crowds(shares: Shares, title: str) -> Chart:
    """Return a dot for each of many nodes, in a row for each kind of them and resource."""
    groups = {(node_group(node), resource) for node, resource in shares}
    rows = sorted(groups, key=lambda row: (row[0], RESOURCES.index(row[1])))
    marks = []
    for row, (group, resource) in enumerate(rows):
        nodes = [node for node, of in shares if of == resource and node_group(node) == group]
        values: Floats = np.array([shares[node, resource] for node in nodes])
        chosen = quantiles(values)
        # Multiples of the golden ratio spread evenly: neighbours in rank do not cover each other.
        spread = (np.arange(len(chosen), dtype=np.float64) * 0.6180339887 + 0.5) % 1 - 0.5
        labels = tuple(f"{nodes[i]}, {resource}: {values[i]:.1%}" for i in chosen.tolist())
        marks.append(Dots(values[chosen], row + 0.5 * spread, labels, 0, "node"))
    names = [f"{group}s, {resource}" for group, resource in rows]
    caption = "Each dot is a node; of more than 200 in a group, 200 are shown, evenly by rank."
    return row_chart("utilisation", title, SHARE, names, marks, caption, pixels=36)


def _means(runs: Sequence[Run], shares: Sequence[Shares], title: str) -> Chart:
    """Return a row for each run, with the mean of each kind of nodes and resource."""
    groups = {(node_group(node), resource) for each in shares for node, resource in each}
    marks = []
    for color, (group, resource) in enumerate(sorted(groups)):
        for run, each in zip(runs, shares, strict=True):
            own = [s for (n, of), s in each.items() if of == resource and node_group(n) == group]
            if own:
                mean, series = sum(own) / len(own), f"{group}s, {resource}"
                label = f"{series}: {mean:.1%} on average ({min(own):.1%} to {max(own):.1%})"
                at = np.array([mean]), np.array([float(run.index)])
                marks.append(Dots(*at, (label,), run.index, series, "diamond", color))
    names = [run.name for run in runs]
    caption = "The mean over nodes of a kind."
    return row_chart("utilisation", title, SHARE, names, marks, caption, pixels=26)


Histogram = tuple[Floats, Floats]
"""The edges (n + 1,) and the shares (n,) of bins."""


@dataclass(frozen=True)
class Measure:
    """What a chart of histograms counts."""

    name: str  # of the chart
    title: str
    quantity: str  # such as "staleness"
    axis: str  # the same with its unit: "staleness (updates)"
    what: str  # what it belongs to: "gradients"


def staleness_of(what: str) -> Measure:
    """Return the staleness of gradients, or of updates."""
    title = f"Staleness of {what}"
    return Measure("staleness", title, "staleness", "staleness (updates)", what)


def histograms_by_run(
    runs: Sequence[Run],
    histograms: Mapping[int, Histogram],
    measure: Measure,
    height: int = 320,
    caption: str = "",
) -> Chart:
    """Return the histograms of runs by their index; see `histograms_chart`."""
    rows = [(run.name, run.index, histograms[run.index]) for run in runs if run.index in histograms]
    return histograms_chart(rows, measure, "run" if len(runs) > 1 else "", height, caption)


def histograms_chart(
    rows: Sequence[tuple[str, int, Histogram]],
    measure: Measure,
    noun: str,
    height: int = 320,
    caption: str = "",
) -> Chart:
    """Return histograms in named rows, each to its own scale.

    Args:
        rows: name, index of the run, and histogram of each row.
        measure: what is counted.
        noun: what a row stands for; empty for a single histogram with its own axis.
        height: of the plot.
        caption: further remarks.
    """
    left_out, rows = len(rows) - HISTOGRAMS, rows[:HISTOGRAMS]
    names = tuple(name if len(name) <= 30 else f"{name[:29]}…" for name, _, _ in rows)
    marks = []
    peak, highest = 0.0, 0.0
    for row, (_, run, (edges, shares)) in enumerate(rows):
        peak, highest = max(peak, float(shares.max())), max(highest, float(edges[-1]))
        x = np.repeat(edges, 2)
        heights = np.concatenate([[0.0], np.repeat(shares, 2), [0.0]])
        labels = tuple(
            f"{measure.quantity} {np.ceil(e) + 0.0:.0f}: {h:.2%}"
            for e, h in zip(x, heights, strict=True)
        )
        y: Floats = row + 0.4 - 0.8 * heights / shares.max() if noun else heights
        marks.append(Area(x, y, labels, run, measure.what))
    scaled = f"Each {noun} is scaled to its own peak." if noun else ""
    more = f"{left_out:,} more {noun}s are not shown." if left_out > 0 else ""
    share = Axis(f"share of {measure.what}", percent=True, limits=(0.0, 1.05 * peak))
    return Chart(
        name=measure.name,
        title=measure.title,
        x=Axis(measure.axis, limits=(-0.5, max(5.5, highest))),
        y=Axis("", names=names) if noun else share,
        marks=tuple(marks),
        caption=" ".join(filter(None, [scaled, more, caption])),
        height=height,
    )


def counted(staleness: Mapping[str, Any]) -> Histogram | None:
    """Return the histogram of a summary's counts: bins of `width` values (1)."""
    counts: Floats = np.array(staleness.get("counts") or [], dtype=np.float64)
    seen = np.flatnonzero(counts)
    if not len(seen):
        return None
    width = int(staleness.get("width") or 1)
    if width == 1:
        return histogram(seen.astype(np.float64), counts=counts[seen])
    first, last = seen[0], seen[-1]
    edges = width * np.arange(first, last + 2, dtype=np.float64) - 0.5
    return edges, counts[first : last + 1] / (counts.sum() * width)
