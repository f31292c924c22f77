"""What a prediction says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.graphs import PHASES, RESOURCES, Graph
from paracosm.graphs.graph import shapes_of
from paracosm.prediction.durations import SOURCES
from paracosm.simulation import Schedule
from paracosm.timeline import Labels, Timeline, largest_share


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one distinct op adds to an iteration."""

    op: str  # its name
    shapes: str  # of its tensors, in short
    count: int  # nodes
    time: float  # seconds of all of them
    share: float  # of the time of all nodes
    source: str  # how its duration is known, one of `SOURCES`


@dataclass(frozen=True, eq=False)
class Prediction:
    """One iteration of one replica on one device.

    Attributes:
        interval: seconds between which the iteration is thought to take; see `predict.py`.
        by_phase, by_op, by_place: seconds of the nodes, summed, the largest first.
        coverage: share of the nodes' time by how it is known, those of `SOURCES` that occur.
        baselines: seconds by method: "roofline", "sum of warm timings", "sum of durations".
    """

    graph: Graph  # what runs
    duration: npt.NDArray[np.float64]  # n seconds of its nodes on their own lanes
    source: npt.NDArray[np.int32]  # n indices into `SOURCES`: how each is known
    schedule: Schedule  # when each runs
    iteration_time: float  # seconds
    interval: tuple[float, float]
    examples: int | None  # of one iteration; None where the graph does not say
    by_phase: Mapping[str, float]
    by_op: Mapping[str, float]
    by_place: Mapping[str, float]
    lanes: Mapping[str, float]  # seconds that each lane is busy: "host", "compute",
    coverage: Mapping[str, float]
    memory: npt.NDArray[np.int64]  # n bytes that are held while each node runs
    baselines: Mapping[str, float]
    largest: tuple[Contribution, ...]  # the distinct ops that take longest, at most ten
    untimed: tuple[str, ...]  # names of ops of the host that nobody timed; they count as a launch
    bottleneck: str  # one sentence

    @property
    def examples_per_second(self) -> float | None:
        """Throughput; None where the graph does not say how many examples an iteration has."""
        if self.examples is None or self.iteration_time == 0:
            return None
        return self.examples / self.iteration_time

    @property
    def peak_memory(self) -> int | None:
        """Bytes; None where the graph knows of no memory."""
        if not self.graph.resident and not len(self.graph.storages.size):
            return None
        return int(self.memory.max()) if len(self.memory) else None


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
        lanes: seconds that each lane is busy.
        ops: seconds by op name, the largest first.
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
