"""A typical iteration of an emulated job, span by span: computing, waits, collectives."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from operator import itemgetter

import numpy as np

from paracosm.report.chart import Axis, Boxes, Chart, time_unit
from paracosm.report.lanes import node_order
from paracosm.report.run import Run
from paracosm.units import format_duration

__all__ = ["iteration_timeline"]

Span = tuple[str, str, str, float, float, int]

ROWS = 20
SPANS = 2000
FIRST = 200  # spans that are shown of a run without iterations
LINES = 3  # for collectives of one comm worker that overlap
FILLED = 0.84  # of a row
COLORS = {"compute": 0, "wait": 3}
OTHERS = (1, 2, 4, 5)  # for the kinds of collectives


def iteration_timeline(run: Run, of_several: bool) -> Chart | None:
    """Return the iteration that took the median time; the first spans where there is none."""
    if run.timeline is None:
        return None
    spans = sorted(run.timeline.spans, key=itemgetter(3))
    number = run.numbers.get("typical_iteration")
    begin, end = _window(spans, number, run.numbers.get("slowest_rank"))
    inside = [
        (*span[:3], max(span[3], begin) - begin, min(span[4], end) - begin, span[5])
        for span in spans
        if span[3] < end and span[4] > begin
    ]
    rows = _rows(inside)
    shown = [span for span in inside if span[:2] in rows][:SPANS]
    if not shown:
        return None
    factor, unit = time_unit(end - begin)
    names = list(dict.fromkeys(rows.values()))
    what = "First collectives" if number is None else f"Iteration {number:,}"
    left_out = len({span[:2] for span in inside}) - len(rows)
    return Chart(
        name=f"timeline_{run.index + 1}" if of_several else "timeline",
        title=f"{what}: {run.name}" if of_several else what,
        x=Axis(f"time ({unit})", limits=(0.0, (end - begin) * factor)),
        y=Axis("", names=tuple(names)),
        marks=_marks(shown, rows, names, factor),
        caption=" ".join(
            [
                *(["It took the median time."] if number is not None else []),
                "A comm worker has a collective from when it takes it up until it is done.",
                *([f"{left_out:,} more rows are not shown."] if left_out > 0 else []),
            ]
        ),
        height=110 + 34 * len(names),
        wide=True,
    )


def _window(spans: Sequence[Span], number: int | None, rank: int | None) -> tuple[float, float]:
    """Return when the iteration began and ended, or from when to when the first spans are."""
    own = [
        span
        for span in spans
        if span[2] == f"iteration {number}" and rank in (None, int(span[0].removeprefix("rank")))
    ]
    if number is None or not own:
        return spans[0][3], max(span[4] for span in spans[:FIRST])
    return min(span[3] for span in own), max(span[4] for span in own)


def _rows(spans: Sequence[Span]) -> dict[tuple[str, str], str]:
    """Return the name of the row for each node and resource; the node's own comes first."""
    several = len({span[0] for span in spans}) > 1
    rows: dict[tuple[str, str], str] = {}
    for node in node_order({span[0] for span in spans}):
        resources = sorted({span[1] for span in spans if span[0] == node}, key=_order)
        for resource in resources:
            if resource in COLORS:
                rows[node, resource] = node
            else:
                rows[node, resource] = f"{node}, {resource}" if several else resource
    kept = list(dict.fromkeys(rows.values()))[:ROWS]
    return {key: row for key, row in rows.items() if row in kept}


def _order(resource: str) -> tuple[bool, int, str]:
    return resource not in COLORS, len(resource), resource


def _marks(
    spans: Sequence[Span], rows: dict[tuple[str, str], str], names: Sequence[str], factor: float
) -> tuple[Boxes, ...]:
    """Return boxes coloured by what they are: computing, waiting, or the kind of collective."""
    lines = _lines(spans)
    kinds: dict[str, list[int]] = {}
    for place, span in enumerate(spans):
        kinds.setdefault(_kind(span), []).append(place)
    by_number = sorted(kinds.keys() - COLORS.keys(), key=lambda kind: (-len(kinds[kind]), kind))
    collectives = zip(by_number, cycle(OTHERS), strict=False)
    colors = {kind: color for kind, color in COLORS.items() if kind in kinds} | dict(collectives)
    marks = []
    for kind in colors:
        own = kinds[kind]
        row = [names.index(rows[spans[place][:2]]) for place in own]
        line, count = np.array([lines[place] for place in own], dtype=np.float64).T
        # Boxes of one mark are of one height: that of the row with most lines.
        height = FILLED / count.max() * (0.35 if kind == "wait" else 1.0)
        marks.append(
            Boxes(
                begin=np.array([spans[place][3] for place in own]) * factor,
                end=np.array([spans[place][4] for place in own]) * factor,
                row=np.array(row) + (line - (count - 1) / 2) * FILLED / count,
                labels=tuple(_label(spans[place]) for place in own),
                height=float(height),
                color=colors[kind],
                series=kind,
            )
        )
    return tuple(marks)


def _lines(spans: Sequence[Span]) -> list[tuple[int, int]]:
    """Return for each span its line in its row, and how many lines that row has."""
    ends: dict[tuple[str, str], list[float]] = {}
    line_of = []
    for span in spans:  # by begin
        open_until = ends.setdefault(span[:2], [])
        free = [line for line, end in enumerate(open_until) if end <= span[3]]
        line = free[0] if free else min(len(open_until), LINES - 1)
        if line == len(open_until):
            open_until.append(span[4])
        else:
            open_until[line] = max(open_until[line], span[4])
        line_of.append(line)
    return [(line, len(ends[span[:2]])) for line, span in zip(line_of, spans, strict=True)]


def _kind(span: Span) -> str:
    return span[1] if span[1] in COLORS else span[2].split(" ")[0]


def _label(span: Span) -> str:
    node, resource, name, begin, end, _ = span
    what = name if resource == "wait" else f"{resource}: {name}"
    return f"{node}, {what}, {format_duration(float(f'{end - begin:.4g}'))}"
