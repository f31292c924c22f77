"""The iteration that a table of op latencies describes, as a graph, and its replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from paracosm.graphs import PHASES, Graph, Node, Op, build_graph
from paracosm.prediction.op_latencies.latencies import Reading
from paracosm.prediction.op_latencies.table import Row
from paracosm.simulation import Schedule, replay

__all__ = ["Times", "graph_of", "replayed", "serial"]


@dataclass(frozen=True, slots=True)
class Times:
    """Seconds of the forward pass, and of the backward pass with accumulation."""

    forward: float
    backward: float

    @property
    def both(self) -> float:
        """Seconds of the two, one after the other."""
        return self.forward + self.backward


def graph_of(rows: Sequence[Row], reading: Reading) -> Graph:
    """Return the graph of one iteration, with a duration at every node.

    The forward pass in the order of the rows, then the host waits for the device, then the backward
    pass from the last row to the first, each followed by what it accumulates. The device's stream
    is in order, so that no other dependencies are needed.
    """
    nodes: list[Node] = []
    for row, phase, interval in _intervals(rows):
        if phase == "backward" and (not nodes or nodes[-1].phase == "forward"):
            nodes.append(_waits_for(nodes, "forward"))
        host = reading.on_host(row, interval)
        nodes.append(
            Node(
                id=len(nodes),
                op=Op(row.function if row.kind != "call_module" else "module"),
                name=row.module,
                phase=phase,
                resource="host" if host else "compute",
                duration=reading.time(interval),
            )
        )
    return build_graph(nodes, where="op latencies")


def replayed(graph: Graph, reading: Reading) -> tuple[Times, Schedule]:
    """Return what the iteration takes where the host runs ahead of the device, and its schedule."""
    schedule = replay(graph, graph.duration, asynchronous=True, launch=reading.launch)
    forward = graph.phase == PHASES.index("forward")
    ends = np.maximum(schedule.end, schedule.issued)
    first = float(ends[forward].max(initial=0.0))
    return Times(first, schedule.makespan - first), schedule


def serial(rows: Sequence[Row]) -> Times:
    """Return the sum of all intervals as they are: the naive replay."""
    return Times(
        sum(row.forward for row in rows),
        sum(row.backward + row.accumulate for row in rows),
    )


def _intervals(rows: Sequence[Row]) -> Iterator[tuple[Row, str, float]]:
    """Yield every interval in the order of execution, with its row and its phase."""
    for row in rows:
        if row.forward > 0:
            yield row, "forward", row.forward
    for row in reversed(rows):
        for interval in (row.backward, row.accumulate):
            if interval > 0:
                yield row, "backward", interval


def _waits_for(nodes: Sequence[Node], phase: str) -> Node:
    """Return a node at which the host waits for the device; it is timed with what it ends."""
    on_device = [node.id for node in nodes if node.resource == "compute"]
    return Node(
        id=len(nodes),
        op=Op("synchronize"),
        phase=phase,
        resource="host",
        dependencies=tuple(on_device[-1:]),
        duration=0.0,
    )
