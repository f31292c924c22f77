"""Replay the graph of one replica on one device: a host that issues, and lanes that work."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from paracosm.errors import InputError
from paracosm.graphs.graph import RESOURCES, Graph, host_nodes, waiting_nodes
from paracosm.simulation.graph_kernel import play
from paracosm.simulation.graph_schedule import Schedule

__all__ = ["replay"]

Floats = npt.NDArray[np.float64]


def replay(
    graph: Graph,
    duration: Floats,
    *,
    asynchronous: bool = False,
    launch: float | Floats = 0.0,
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
    play(
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
