"""The first rounds of a run, span by span."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from operator import itemgetter

import numpy as np

from paracosm.report.chart import Axis, Boxes, Chart, time_unit
from paracosm.report.lanes import LANES, Place, laid_out, lane_of, node_order
from paracosm.report.run import Run
from paracosm.units import format_duration

__all__ = ["timeline_chart"]

NODES = 20
SPANS = 600

Span = tuple[str, str, str, float, float, int]


def timeline_chart(
    run: Run, of_several: bool = False, phases: Collection[str] = ()
) -> Chart | None:
    """Return the beginning of the timeline: up to 20 nodes and 600 spans; None without one.

    Args:
        run: whose timeline it is.
        of_several: the report has other runs besides.
        phases: names of spans of computing that are told apart by colour.
    """
    timeline = run.timeline
    if timeline is None:
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
    lanes: dict[str, list[Span]] = {}
    for span in spans:
        lanes.setdefault(lane_of(span[1], span[2], phases), []).append(span)
    places = laid_out(lane for lane in LANES if lane in lanes)
    return Chart(
        name=f"timeline_{run.index + 1}" if of_several else "timeline",
        title=f"Timeline: {run.name}" if of_several else "Timeline",
        x=Axis(f"virtual time ({unit})", limits=(0, until * factor)),
        y=Axis("", names=tuple(nodes)),
        marks=tuple(_boxes(lanes[lane], lane, places[lane], nodes, factor) for lane in places),
        caption=(
            f"The first {len(spans):,} of {len(timeline.spans):,} spans"
            + (f"; {left_out:,} more nodes are not shown." if left_out else ".")
        ),
        height=110 + 30 * len(nodes),
        wide=True,
    )


def _boxes(
    spans: Sequence[Span], name: str, place: Place, nodes: Sequence[str], factor: float
) -> Boxes:
    rows = {node: row for row, node in enumerate(nodes)}
    return Boxes(
        begin=np.array([span[3] for span in spans]) * factor,
        end=np.array([span[4] for span in spans]) * factor,
        row=np.array([rows[span[0]] + place.offset for span in spans]),
        labels=tuple(
            f"{node}, {resource}: {what}, {format_duration(end - begin)}"
            for node, resource, what, begin, end, _ in spans
        ),
        height=place.height,
        color=place.color,
        series=name,
    )
