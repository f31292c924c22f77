"""The first updates of a run as a timeline."""

from __future__ import annotations

import numpy as np

from paracosm.relaxation.result import RelaxationResult
from paracosm.relaxation.spec import RunSpec
from paracosm.timeline import Labels, Timeline


def timeline_of(spec: RunSpec, result: RelaxationResult) -> Timeline | None:
    """Return the spans that were recorded; None if there are none.

    Node "processor3", resource "compute", spans "relax" or the phases "copy", "compute", "update".
    In a synchronous run the time until the barrier opens is a span "barrier" of resource "wait".
    """
    spans = result.spans
    if spans.processor.size == 0:
        return None
    # When the processor's update before this one ended; its own begin for the first one.
    order = np.argsort(spans.processor, kind="stable")
    again = np.diff(spans.processor[order], prepend=-1) == 0
    before = spans.begin.copy()
    before[order[again]] = spans.end[order[np.flatnonzero(again) - 1]]
    if spec.times.phases == 3:
        names = ["barrier", "copy", "compute", "update"]
        ends = [spans.begin, spans.copied, spans.computed, spans.end]
    else:
        names, ends = ["barrier", "relax"], [spans.begin, spans.end]
    shown = np.ones((len(before), len(ends)), dtype=bool)
    shown[:, 0] = (before < spans.begin) & (spec.barrier is not None)
    kinds = np.arange(len(ends))
    timeline = Timeline()
    timeline.extend(
        Labels(
            spans.processor[:, None],
            [*(f"processor{who}" for who in range(spec.processors)), "residual"],
        ),
        Labels(np.minimum(kinds, 1), ["wait", "compute"]),
        Labels(kinds, names),
        np.column_stack([before, *ends[:-1]]),
        np.column_stack(ends),
        where=shown,
    )
    return timeline
