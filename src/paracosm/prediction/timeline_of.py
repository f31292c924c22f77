"""A predicted iteration as a timeline."""

from __future__ import annotations

from paracosm.graphs import RESOURCES
from paracosm.prediction.prediction import Prediction
from paracosm.timeline import Timeline

__all__ = ["NODE", "timeline_of"]

NODE = "device"


def timeline_of(prediction: Prediction) -> Timeline:
    """Return the spans of every node, named by its op, and the memory as a counter.

    What the host carries out is on the lane "host"; on a synchronous device, whose host computes,
    on "compute". What the host issues is on both its lane and that of the resource.
    """
    graph, schedule = prediction.graph, prediction.schedule
    timeline = Timeline()
    names = [op.name for op in graph.ops]
    launches = bool((schedule.issued - schedule.issue)[~schedule.on_host].any())
    columns = (
        graph.op.tolist(),
        graph.resource.tolist(),
        schedule.on_host.tolist(),
        schedule.issue.tolist(),
        schedule.issued.tolist(),
        schedule.begin.tolist(),
        schedule.end.tolist(),
        prediction.memory.tolist(),
    )
    for op, resource, host, issue, issued, begin, end, memory in zip(*columns, strict=True):
        if not host and launches:
            timeline.span(NODE, "host", f"launch {names[op]}", issue, issued)
        timeline.span(NODE, RESOURCES[resource], names[op], begin, end)
        timeline.counter(NODE, "memory", begin, float(memory))
    return timeline
