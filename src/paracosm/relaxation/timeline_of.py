"""The first updates of a run as a timeline."""

from __future__ import annotations

from paracosm.relaxation.result import RelaxationResult
from paracosm.relaxation.spec import RunSpec
from paracosm.timeline import Timeline


def timeline_of(spec: RunSpec, result: RelaxationResult) -> Timeline | None:
    """Return the spans that were recorded; None if there are none.

    Node "processor3", resource "compute", spans "relax" or the phases "copy", "compute", "update".
    In a synchronous run the time until the barrier opens is a span "barrier" of resource "wait".
    """
    spans = result.spans
    if spans.processor.size == 0:
        return None
    timeline = Timeline()
    add = timeline.spans.append
    phased = spec.times.phases == 3
    names = [f"processor{who}" for who in range(spec.processors)] + ["residual"]
    columns = (spans.processor, spans.begin, spans.copied, spans.computed, spans.end)
    latest: dict[int, float] = {}
    for who, begin, copied, computed, end in zip(*(c.tolist() for c in columns), strict=True):
        node = names[who]
        if spec.barrier is not None and who in latest and latest[who] < begin:
            add((node, "wait", "barrier", latest[who], begin, -1))
        latest[who] = end
        if phased:
            add((node, "compute", "copy", begin, copied, -1))
            add((node, "compute", "compute", copied, computed, -1))
            add((node, "compute", "update", computed, end, -1))
        else:
            add((node, "compute", "relax", begin, end, -1))
    return timeline
