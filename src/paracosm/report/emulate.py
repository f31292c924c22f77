"""The charts of emulated jobs: iteration times, where they go, collectives, delays, timeline."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np

from paracosm.report.chart import Axis, Boxes, Chart, Section, shown_sections, time_unit
from paracosm.report.emulate_delays import delay_chart
from paracosm.report.emulate_iterations import (
    compared_iterations,
    iteration_parts,
    iteration_times,
)
from paracosm.report.run import Run
from paracosm.report.timeline_charts import iteration_timeline
from paracosm.units import format_duration

__all__ = ["sections"]

TIMELINES = 3  # of several runs, the first ones show their timeline
EXPOSED, HIDDEN = 1, 2  # colours


def sections(runs: Sequence[Run]) -> list[Section]:
    """Return every section that the runs have data for."""
    timelines = (iteration_timeline(run, len(runs) > 1) for run in runs)
    parts: list[tuple[str, list[Chart | None]]] = [
        ("Iterations", [compared_iterations(runs), iteration_times(runs)]),
        ("Where an iteration goes", [iteration_parts(runs), _collectives(runs)]),
        ("Added delay", [delay_chart(runs)]),
        ("A typical iteration", list(islice(filter(None, timelines), TIMELINES))),
    ]
    return shown_sections(parts)


def _collectives(runs: Sequence[Run]) -> Chart | None:
    """Return what of each kind is exposed and hidden, in an iteration or in all; of one run."""
    kinds = runs[0].numbers.get("collectives") or {}
    if len(runs) > 1 or not kinds:
        return None
    per_iteration = any(each["per_iteration"] for each in kinds.values())
    times = {kind: each["per_iteration"] if per_iteration else each for kind, each in kinds.items()}
    times = {kind: each for kind, each in times.items() if each["time"] > 0}
    if not times:
        return None
    longest = max(each["time"] for each in times.values())
    factor, unit = time_unit(longest)
    rows = np.arange(len(times), dtype=np.float64)
    exposed, hidden = (
        np.array([each[part] for each in times.values()]) for part in ("exposed", "hidden")
    )
    marks = tuple(
        Boxes(
            begin * factor,
            end * factor,
            rows,
            tuple(
                f"{kind}, {part}: {format_duration(each[part])} of {format_duration(each['time'])}"
                for kind, each in times.items()
            ),
            0.7,
            color,
            part,
        )
        for part, color, begin, end in (
            ("exposed", EXPOSED, 0.0 * exposed, exposed),
            ("hidden", HIDDEN, exposed, exposed + hidden),
        )
    )
    return Chart(
        name="collectives",
        title="Collectives of an iteration" if per_iteration else "Collectives",
        x=Axis(f"time ({unit})", limits=(0.0, 1.01 * longest * factor)),
        y=Axis("", names=tuple(times)),
        marks=marks,
        caption=(
            "Hidden: under way while the rank computes. Exposed: while it waits. Time in which "
            "several of a kind are under way counts once."
        ),
        height=110 + 26 * len(times),
        wide=True,
    )
