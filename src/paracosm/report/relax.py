"""The charts of relaxations: convergence, processors, utilisation, timeline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from paracosm.report.chart import Axis, Chart, Curve, Dots, Floats, Section, shown_sections
from paracosm.report.residual_chart import residual_chart
from paracosm.report.run import Run
from paracosm.report.staleness_chart import Histogram, staleness_chart
from paracosm.report.thinning import extremes, histogram
from paracosm.report.timeline_charts import PHASES, lane_of, node_group, timeline_chart
from paracosm.report.utilisation_chart import Shares, utilisation_chart
from paracosm.timeline import Labels, Timeline, utilisation

__all__ = ["sections"]

TIMELINES = 3  # of several runs, the first ones show their timeline
MARKED = 200  # a run of more processors is drawn as a line


def sections(runs: Sequence[Run]) -> list[Section]:
    """Return every section that the runs have data for."""
    timelines = (timeline_chart(run, len(runs) > 1, PHASES) for run in runs)
    busy = utilisation_chart(runs, _shares, "Utilisation of processors")
    parts: list[tuple[str, list[Chart | None]]] = [
        ("Convergence", [residual_chart(runs, "time"), residual_chart(runs, "sweeps")]),
        ("Processors", [_updates(runs), _staleness(runs)]),
        ("Where the time went", [busy]),
        ("First updates", list(islice(filter(None, timelines), TIMELINES))),
    ]
    return shown_sections(parts)


def _updates(runs: Sequence[Run]) -> Chart | None:
    """Return how many updates each processor made, by its number."""
    marks: list[Curve | Dots] = []
    highest = 0.0
    for run in runs:
        series = run.series("updates")
        if not len(series):
            continue
        numbers = np.array([_number(node) for node in series.node.tolist()])
        order = np.argsort(numbers, kind="stable")
        x, y = numbers[order], series.value[order]
        highest = max(highest, float(y.max()))
        if len(x) <= MARKED:
            labels = tuple(
                f"processor {int(number)}: {int(value):,} updates"
                for number, value in zip(x.tolist(), y.tolist(), strict=True)
            )
            marks.append(Dots(x, y, labels, run.index, "updates"))
        else:
            kept = extremes(y)
            marks.append(Curve(x[kept], y[kept], run.index, "updates"))
    if not marks:
        return None
    return Chart(
        name="updates",
        title="Updates of each processor",
        x=Axis("processor"),
        y=Axis("updates", limits=(0.0, 1.05 * highest or 1.0)),
        marks=tuple(marks),
        height=_height(runs),
    )


def _number(node: str) -> float:
    """Return the number in a processor's name."""
    digits = node.removeprefix(node_group(node)).strip("_- ")
    return float(digits) if digits.isdigit() else 0.0


def _staleness(runs: Sequence[Run]) -> Chart | None:
    histograms = {run.index: found for run in runs if (found := _histogram(run)) is not None}
    beyond = any(
        (run.numbers.get("staleness") or {}).get("max", 0) > histograms[run.index][0][-1]
        for run in runs
        if run.index in histograms
    )
    caption = "The last bin holds everything beyond it." if beyond else ""
    return staleness_chart(runs, histograms, "updates", _height(runs), caption)


def _histogram(run: Run) -> Histogram | None:
    """Return the histogram of the summary's counts: of `width` staleness values each (1)."""
    known = run.numbers.get("staleness") or {}
    counts: Floats = np.array(known.get("counts") or [], dtype=np.float64)
    seen = np.flatnonzero(counts)
    if not len(seen):
        return None
    width = int(known.get("width") or 1)
    if width == 1:
        return histogram(seen.astype(np.float64), counts=counts[seen])
    first, last = seen[0], seen[-1]
    edges = width * np.arange(first, last + 2, dtype=np.float64) - 0.5
    return edges, counts[first : last + 1] / (counts.sum() * width)


def _shares(run: Run) -> Shares:
    """Return the share of its time that each processor spent in each phase, from the timeline."""
    if run.timeline is None:
        return {}
    spans, phased = run.timeline.spans, Timeline()
    lanes = [
        lane_of(resource, name, PHASES)
        for resource, name in zip(spans.resource.tolist(), spans.name.tolist(), strict=True)
    ]
    words = list(dict.fromkeys(lanes))
    resource = Labels(np.array([words.index(lane) for lane in lanes]), words)
    phased.extend(spans.node, resource, spans.name, spans.begin, spans.end)
    # A timeline may stop before the run does. What began before its last span began is all there.
    begin, end = float(spans.begin.max()), float(spans.end.max())
    until = min(float(run.numbers.get("virtual_time") or end), begin or end)
    return utilisation(phased, until) if until > 0 else {}


def _height(runs: Sequence[Run]) -> int:
    """Return the height of the histograms, a row for each run, and of the figure beside them."""
    return max(320, 110 + 30 * len(runs))
