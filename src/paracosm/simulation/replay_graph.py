"""Replay the graph of one replica on one device: a host that issues, and lanes that work."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from paracosm.arrays import Bools, Floats
from paracosm.compiled import compiled_whole
from paracosm.errors import InputError
from paracosm.graphs.graph import RESOURCES, Graph, host_nodes, waiting_nodes


@dataclass(frozen=True, eq=False)
class Schedule:
    """Begin and end of the n nodes of a graph, in seconds from the beginning of the iteration.

    A node has a span on the host, which issues it, and a span on the lane of its resource. Where
    the host itself carries it out (a view; everything on a synchronous device) the two are one.
    """

    issue: Floats  # n instants at which the host turns to the node
    issued: Floats  # n instants at which the host goes on to the next one
    begin: Floats  # n instants at which the node begins on its own lane
    end: Floats  # n instants at which it ends there
    on_host: Bools  # n booleans: carried out by the host

    @property
    def makespan(self) -> float:
        """The instant at which the last lane is done; 0 of an empty graph."""
        if not len(self.end):
            return 0.0
        return float(max(self.end.max(), self.issued.max()))


def replay(
    graph: Graph, duration: Floats, *, asynchronous: bool = False, launch: float | Floats = 0.0
) -> Schedule:
    """Return when every node runs.

    The host takes the nodes in the order of their ids. On a synchronous device (a CPU) it carries
    out every compute and host node itself, one after the other. On an asynchronous device (a GPU)
    it spends `launch` on a compute node and goes on; the node enters the device's stream, which is
    first in, first out, and begins when it is issued, the stream is free and what it depends on is
    there. A host node (a view, a size) takes its duration on the host and nothing on the device,
    and does not wait for the values of what it looks at; one that reads a value
    (`aten._local_scalar_dense`) does, behind all that is in the stream. Copies ("memory") and
    communication are issued like that on every device, each to a lane of its own, in order.

    Args:
        graph: whose nodes; `graph.duration` is not looked at.
        duration: n seconds on the node's own lane.
        asynchronous: whether the host runs ahead of the device.
        launch: seconds that the host spends on issuing a node it does not carry out: one number,
            or n.

    Raises:
        InputError: a duration or a launch time is missing (NaN), negative or infinite.
    """
    count = len(graph)
    times = np.ascontiguousarray(duration, dtype=np.float64)
    launches = np.ascontiguousarray(np.broadcast_to(launch, (count,)), dtype=np.float64)
    for what, values in (("duration", times), ("launch time", launches)):
        if values.shape != (count,):
            raise InputError(f"replay: {len(values)} values of {what} for {count} nodes")
        wrong = np.flatnonzero(~(np.isfinite(values) & (values >= 0)))
        if len(wrong):
            row = int(wrong[0])
            raise InputError(
                f"replay: the {what} of node {int(graph.id[row])} "
                f"({graph.ops[graph.op[row]].name}) is {values[row]} s"
            )
    on_host = host_nodes(graph, asynchronous)
    issue, issued, begin, end = np.zeros((4, count))
    _play(
        graph.resource,
        on_host,
        waiting_nodes(graph, asynchronous),
        times,
        launches,
        graph.offsets,
        graph.dependencies,
        np.zeros(len(RESOURCES)),
        np.zeros(count),
        issue,
        issued,
        begin,
        end,
    )
    return Schedule(issue, issued, begin, end, on_host)


@compiled_whole
def _play(
    lane: Any,
    on_host: Any,
    waits: Any,
    duration: Any,
    launch: Any,
    offsets: Any,
    dependencies: Any,
    free: Any,
    ready: Any,
    issue: Any,
    issued: Any,
    begin: Any,
    end: Any,
) -> None:
    """Fill the instants of every node in the order of the host: as in a longest path.

    `waits` says where the host waits for what the node depends on and for the stream;
    `free` holds the instant at which each lane is free again, `ready` that of each result.
    """
    compute, host = 0, 1  # indices into RESOURCES; a test holds them to that
    for node in range(lane.size):
        there = 0.0
        for place in range(offsets[node], offsets[node + 1]):
            there = max(there, ready[dependencies[place]])
        start = free[host]
        if on_host[node]:
            if waits[node]:
                start = max(max(start, there), free[compute])  # its stream is in order
            issue[node] = start
            issued[node] = start + duration[node]
            begin[node] = start
            end[node] = issued[node]
            ready[node] = max(end[node], there)
        else:
            issue[node] = start
            issued[node] = start + launch[node]
            begin[node] = max(max(issued[node], there), free[lane[node]])
            end[node] = begin[node] + duration[node]
            free[lane[node]] = end[node]
            ready[node] = end[node]
        free[host] = issued[node]
