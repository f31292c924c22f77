"""The ranks of a predicted job: where the time of each goes, and what they do when."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from paracosm.report.chart import Axis, Boxes, Chart, Floats, time_unit
from paracosm.report.lanes import node_order
from paracosm.report.part_bars import part_bars
from paracosm.report.rank_parts import ranks_alike
from paracosm.report.run import Run
from paracosm.results import JobSummary
from paracosm.units import format_duration

__all__ = ["lane_timeline", "rank_bars", "rank_timeline"]

ROWS = 24  # of a chart of bars
RANKS = 16  # of a timeline
FILLED = 0.84  # of a row of a timeline
PIXELS = 1500  # of a screen's width: gaps below one are closed

Span = tuple[str, str, str, float, float, int]


def rank_bars(runs: Sequence[Run]) -> Chart | None:
    """Return a bar in parts for each kind of ranks of a run; None for several runs, or none."""
    alike = [each for run in runs for each in (run.numbers.get("breakdown") or {}).get("ranks", ())]
    if len(runs) > 1 or not alike:
        return None
    shown = alike[:ROWS]
    left_out = len(alike) - len(shown)
    more = f" {left_out:,} more kinds are not shown." if left_out else ""
    return part_bars(
        *("ranks", "An iteration, rank by rank", ""),
        [ranks_alike(each) for each in shown],
        shown,
        f"Ranks that spend their time alike share a bar.{more}",
    )


LANES: Mapping[str, tuple[int, int]] = {
    "compute": (0, 0),
    "host": (0, 5),
    "memory": (0, 3),
    "communication": (1, 1),
    "tensor": (1, 4),
    "send": (1, 2),
    "receive": (2, 3),
}
"""Lane -> which line of its rank's row it is drawn on, and its colour."""


def rank_timeline(run: Run, of_several: bool) -> Chart | None:
    """Return what each rank of the timeline does: what it computes above what it communicates."""
    if not isinstance(run.numbers, JobSummary):
        return None
    return lane_timeline(run, of_several, LANES, lambda lane: lane if lane in LANES else "compute")


def lane_timeline(
    run: Run,
    of_several: bool,
    lanes: Mapping[str, tuple[int, int]],
    lane_of: Callable[[str], str],
) -> Chart | None:
    """Return what each node of a run's timeline does, lane by lane; None without a timeline.

    Args:
        run: whose timeline it is.
        of_several: the report has other runs besides.
        lanes: lane -> which line of its node's row it is drawn on, and its colour.
        lane_of: returns one of them for the resource of a span.
    """
    if run.timeline is None:
        return None
    nodes = node_order({span[0] for span in run.timeline.spans})[:RANKS]
    shown = set(nodes)
    spans = [
        (span[0], lane_of(span[1]), *span[2:])
        for span in run.timeline.spans
        if span[0] in shown and not span[2].startswith("wait: ")
    ]
    if not spans:
        return None
    last = max(span[4] for span in spans)
    factor, unit = time_unit(last)
    shown_lanes = {lane: lanes[lane] for lane in lanes if any(span[1] == lane for span in spans)}
    lines = sorted({line for line, _ in shown_lanes.values()})
    return Chart(
        name=f"timeline_{run.index + 1}" if of_several else "timeline",
        title=f"Timeline: {run.name}" if of_several else "Timeline",
        x=Axis(f"time ({unit})", limits=(0.0, last * factor)),
        y=Axis("", names=tuple(nodes)),
        marks=tuple(
            _boxes(spans, lane, place, nodes, factor, last / PIXELS, lines)
            for lane, place in shown_lanes.items()
        ),
        caption="Spans that a screen cannot tell apart are drawn as one.",
        height=110 + 16 * (1 + len(lines)) * len(nodes),
        wide=True,
    )


def _boxes(
    spans: Sequence[Span],
    lane: str,
    place: tuple[int, int],
    nodes: Sequence[str],
    factor: float,
    gap: float,
    lines: Sequence[int],
) -> Boxes:
    line, color = place
    offset = (lines.index(line) - (len(lines) - 1) / 2) * FILLED / len(lines)
    begins, ends, rows, labels = list[Floats](), list[Floats](), list[Floats](), list[str]()
    for row, node in enumerate(nodes):
        times = np.array(
            [(span[3], span[4]) for span in spans if span[0] == node and span[1] == lane]
        ).reshape(-1, 2)
        begin, end, count = _joined(times[:, 0], times[:, 1], gap)
        begins.append(begin * factor)
        ends.append(end * factor)
        rows.append(np.full(len(begin), row + offset))
        labels += [
            f"{node}, {lane}: {number:,} span{'s' if number > 1 else ''}, "
            f"{format_duration(until - since)}"
            for since, until, number in zip(begin.tolist(), end.tolist(), count, strict=True)
        ]
    return Boxes(
        np.concatenate(begins),
        np.concatenate(ends),
        np.concatenate(rows),
        tuple(labels),
        0.9 * FILLED / len(lines),
        color,
        lane,
    )


def _joined(begin: Floats, end: Floats, gap: float) -> tuple[Floats, Floats, list[int]]:
    """Return spans without gaps below `gap`, and how many each is made of."""
    if not len(begin):
        return begin, end, []
    order = np.argsort(begin, kind="stable")
    begin, reached = begin[order], np.maximum.accumulate(end[order])
    first = np.flatnonzero(np.concatenate(([True], begin[1:] > reached[:-1] + gap)))
    last = np.append(first[1:], len(begin)) - 1
    return begin[first], reached[last], (last - first + 1).tolist()
