"""Where the time of an iteration goes: sums over nodes, a sentence, a timeline."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt

from paracosm.graphs import PHASES, RESOURCES, Graph
from paracosm.graphs.graph import shapes_of
from paracosm.prediction.durations import SOURCES
from paracosm.prediction.prediction import Contribution, Prediction
from paracosm.simulation import Schedule
from paracosm.timeline import Labels, Timeline, largest_share

Floats = npt.NDArray[np.float64]
Codes = npt.NDArray[np.int32]

ELSEWHERE = "elsewhere"
"""The place of nodes that belong to no module: the loss, the optimizer."""

DEPTH = 2  # parts of a place's name that count: "layer1.0" of "layer1.0.conv1"


def by_phase(graph: Graph, duration: Floats) -> dict[str, float]:
    """Return the seconds of each phase that occurs, in the order of the phases."""
    sums = np.bincount(graph.phase, duration, minlength=len(PHASES))
    seen = np.unique(graph.phase)
    return {phase: float(sums[code]) for code, phase in enumerate(PHASES) if code in seen}


def by_op(graph: Graph, duration: Floats) -> dict[str, float]:
    """Return the seconds of each op name, the largest first."""
    names = [op.name for op in graph.ops]
    return _summed(names, graph.op, duration)


def by_place(graph: Graph, duration: Floats) -> dict[str, float]:
    """Return the seconds of each part of the model, two levels deep, the largest first."""
    places = [".".join(name.split(".")[:DEPTH]) or ELSEWHERE for name in graph.names]
    return _summed(places, graph.name, duration)


def busy_lanes(graph: Graph, schedule: Schedule) -> dict[str, float]:
    """Return the seconds that each lane is busy; the host is while it issues, too."""
    span = schedule.end - schedule.begin
    lanes = {"host": float((schedule.issued - schedule.issue).sum())}
    for code, resource in enumerate(RESOURCES):
        chosen = (graph.resource == code) & ~schedule.on_host
        if chosen.any():
            lanes[resource] = float(span[chosen].sum())
    return lanes


def coverage(source: Codes, duration: Floats) -> dict[str, float]:
    """Return the share of the time by how durations are known."""
    total = float(duration.sum())
    sums = np.bincount(source, duration, minlength=len(SOURCES))
    shares = {name: float(sums[code]) / total for code, name in enumerate(SOURCES) if total > 0}
    return {name: share for name, share in shares.items() if share > 0}


def largest(graph: Graph, duration: Floats, source: Codes, most: int = 10) -> list[Contribution]:
    """Return the distinct ops that take longest in all."""
    sums = np.bincount(graph.op, duration, minlength=len(graph.ops))
    counts, total = graph.count(), float(duration.sum())
    order = sorted(range(len(graph.ops)), key=lambda code: (-sums[code], code))
    first = {int(code): row for row, code in reversed(list(enumerate(graph.op.tolist())))}
    return [
        Contribution(
            op=graph.ops[code].name,
            shapes=", ".join(shapes_of(graph.ops[code].arguments)),
            count=int(counts[code]),
            time=float(sums[code]),
            share=float(sums[code]) / total,
            source=SOURCES[source[first[code]]],
        )
        for code in order[:most]
        if sums[code] > 0
    ]


def _summed(names: Sequence[str], codes: Codes, duration: Floats) -> dict[str, float]:
    sums = np.bincount(codes, duration, minlength=len(names)).tolist()
    found: dict[str, float] = {}
    for code in np.unique(codes).tolist():
        found[names[code]] = found.get(names[code], 0.0) + sums[code]
    return dict(sorted(found.items(), key=lambda item: (-item[1], item[0])))


WAITS = 0.1  # share of the iteration from which on waiting is worth the sentence
NOTHING = "Nothing takes any time."
LAUNCHING = (
    "Launching: the device is idle {share:.0%} of the iteration, because the host issues ops more "
    "slowly than it computes"
)


def bottleneck(
    iteration_time: float, lanes: Mapping[str, float], ops: Mapping[str, float], asynchronous: bool
) -> str:
    """Return what decides the iteration's time.

    Args:
        iteration_time: seconds.
        lanes: seconds that each lane is busy.
        ops: seconds by op name, the largest first.
        asynchronous: whether the host runs ahead of the device.
    """
    if not iteration_time > 0 or not ops:
        return NOTHING
    working = "compute" if asynchronous and "compute" in lanes else "host"
    idle = 1 - lanes[working] / iteration_time
    longest, _ = largest_share(lanes, iteration_time)
    if idle > WAITS and longest not in (working, "host"):
        limit = f"{_LANES[longest]}: the device waits {idle:.0%} of the iteration; "
    elif idle > WAITS and working == "compute":
        limit = f"{LAUNCHING.format(share=idle)}; "
    else:
        limit = "Computing: "
    return f"{limit}{longest_op(ops)}."


_LANES = {"communication": "Communication", "memory": "Copies"}


def longest_op(ops: Mapping[str, float]) -> str:
    """Return what part of the ops' time the first of them takes; `ops` are seconds by name."""
    name, time = next(iter(ops.items()))
    return f"{name} takes {time / sum(ops.values()):.0%} of the ops' time"


def timeline_of(prediction: Prediction) -> Timeline:
    """Return the spans of every node, named by its op, and the memory as a counter.

    What the host carries out is on the lane "host"; on a synchronous device, whose host computes,
    on "compute". What the host issues is on both its lane and that of the resource.
    """
    graph, schedule = prediction.graph, prediction.schedule
    names = [op.name for op in graph.ops]
    words = [*names, *(f"launch {name}" for name in names)]
    launched = ~schedule.on_host & (schedule.issued > schedule.issue)[~schedule.on_host].any()
    # Of each node the launch, then the op.
    host = np.full_like(graph.resource, RESOURCES.index("host"))
    timeline = Timeline()
    timeline.extend(
        "device",
        Labels(np.column_stack([host, graph.resource]), RESOURCES),
        Labels(np.add.outer(graph.op, [len(names), 0]), words),
        np.column_stack([schedule.issue, schedule.begin]),
        np.column_stack([schedule.issued, schedule.end]),
        where=np.column_stack([launched, np.ones_like(launched)]),
    )
    timeline.extend_counters("device", "memory", schedule.begin, prediction.memory)
    return timeline
