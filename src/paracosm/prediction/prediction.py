"""What a prediction says."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from paracosm.graphs import Graph
from paracosm.simulation import Schedule


@dataclass(frozen=True, slots=True)
class Contribution:
    """What one distinct op adds to an iteration.

    Attributes:
        op: its name.
        shapes: of its tensors, in short.
        count: nodes.
        time: seconds of all of them.
        share: of the time of all nodes.
        source: how its duration is known, one of `SOURCES`.
    """

    op: str
    shapes: str
    count: int
    time: float
    share: float
    source: str


@dataclass(frozen=True, eq=False)
class Prediction:
    """One iteration of one replica on one device.

    Attributes:
        graph: what runs.
        duration: n seconds of its nodes on their own lanes.
        source: n indices into `SOURCES`: how each is known.
        schedule: when each runs.
        iteration_time: seconds.
        interval: seconds between which the iteration is thought to take; see `interval.py`.
        examples: of one iteration; None where the graph does not say.
        by_phase, by_op, by_place: seconds of the nodes, summed, the largest first.
        lanes: seconds that each lane is busy: "host", "compute", ...
        coverage: share of the nodes' time by how it is known, those of `SOURCES` that occur.
        memory: n bytes that are held while each node runs.
        baselines: seconds by method: "roofline", "sum of warm timings", "sum of durations".
        largest: the distinct ops that take longest, at most ten.
        untimed: names of ops of the host that nobody timed; they count as a launch.
        bottleneck: one sentence.
    """

    graph: Graph
    duration: npt.NDArray[np.float64]
    source: npt.NDArray[np.int32]
    schedule: Schedule
    iteration_time: float
    interval: tuple[float, float]
    examples: int | None
    by_phase: Mapping[str, float]
    by_op: Mapping[str, float]
    by_place: Mapping[str, float]
    lanes: Mapping[str, float]
    coverage: Mapping[str, float]
    memory: npt.NDArray[np.int64]
    baselines: Mapping[str, float]
    largest: tuple[Contribution, ...]
    untimed: tuple[str, ...]
    bottleneck: str

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
