"""The first rounds of a run, span by span."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter

import numpy as np

from paracosm.report.chart import Axis, Boxes, Chart
from paracosm.report.lanes import LANES, lane_offset, node_order
from paracosm.report.run import Run
from paracosm.report.time_axis import time_unit
from paracosm.units import format_duration

__all__ = ["timeline_chart"]

NODES = 20
SPANS = 600

Span = tuple[str, str, str, float, float, int]


def timeline_chart(run: Run, of_several: bool = False) -> Chart | None:
    """Return the beginning of the timeline: up to 20 nodes and 600 spans; None without one."""
    timeline = run.folder.timeline()
    if timeline is None or not timeline.spans:
        return None
    all_nodes = node_order({span[0] for span in timeline.spans})
    nodes = all_nodes[:NODES]
    chosen = set(nodes)
    known = [span for span in timeline.spans if span[0] in chosen and span[1] in LANES]
    known.sort(key=itemgetter(3))
    spans = known[:SPANS]
    left_out = len(all_nodes) - len(nodes)
    # From the first span left out on, the picture would be incomplete.
    until = known[SPANS][3] if len(known) > SPANS else max(span[4] for span in spans)
    factor, unit = time_unit(until)
    return Chart(
        name=f"timeline_{run.index + 1}" if of_several else "timeline",
        title=f"Timeline: {run.name}" if of_several else "Timeline",
        x=Axis(f"virtual time ({unit})", limits=(0, until * factor)),
        y=Axis("", names=tuple(nodes)),
        marks=tuple(
            _boxes(part, resource, nodes, factor)
            for resource in LANES
            if (part := [span for span in spans if span[1] == resource])
        ),
        caption=(
            f"The first {len(spans):,} of {len(timeline.spans):,} spans"
            + (f"; {left_out:,} more nodes are not shown." if left_out else ".")
        ),
        height=110 + 30 * len(nodes),
        wide=True,
    )


def _boxes(spans: Sequence[Span], resource: str, nodes: Sequence[str], factor: float) -> Boxes:
    place = {node: row for row, node in enumerate(nodes)}
    lane = LANES[resource]
    return Boxes(
        begin=np.array([span[3] for span in spans]) * factor,
        end=np.array([span[4] for span in spans]) * factor,
        row=np.array([place[span[0]] + lane_offset(lane) for span in spans]),
        labels=tuple(
            f"{node}, {resource}: {name}, {format_duration(end - begin)}"
            for node, _, name, begin, end, _ in spans
        ),
        height=lane.height,
        color=lane.color,
        series=resource,
    )
