"""A model of two layers and its training step of four ops, and how to replay strategies on it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from paracosm.cluster.cluster import Cluster, hierarchical, switch
from paracosm.cluster.link import Link
from paracosm.graphs import Graph, Node, Op, build_graph
from paracosm.jobs.job import KINDS, Job
from paracosm.jobs.strategies import Replica, build_job, parse_strategy
from paracosm.simulation.replay import replay_job
from paracosm.simulation.static import JobSchedule

MB = 1_000_000
SLOW = Link(bandwidth=1.0 * MB)
"""A second for every megabyte."""


def two_layers(
    forward: float = 1.0,
    backward: float = 2.0,
    update: float = 0.0,
    gradient: int = 4 * MB,
    activation: int = 1 * MB,
) -> Replica:
    """Return forward and backward of two layers, and where `update` is given a step on each.

    Each layer hands on `activation` bytes, and keeps three times as many for its backward pass.
    """
    return layers(2, forward, backward, update, gradient, activation)


def layers(
    count: int,
    forward: float = 1.0,
    backward: float = 2.0,
    update: float = 0.0,
    gradient: int = 4 * MB,
    activation: int = 1 * MB,
) -> Replica:
    """Return the step of so many equal layers, one node for each in each pass."""
    op = Op("layer", bytes_written=activation)
    nodes, times = [], []
    for layer in range(count):
        before = (layer - 1,) if layer else ()
        held = ((3 * activation, 2 * count - 1 - layer),)
        nodes.append(Node(layer, op, f"h.{layer}", "forward", "compute", before, allocates=held))
        times.append(forward)
    for back, layer in enumerate(reversed(range(count))):
        number = count + back
        node = Node(
            number,
            op,
            f"h.{layer}",
            "backward",
            dependencies=(number - 1, layer),
            allocates=((gradient, -1),) if gradient else (),
        )
        nodes.append(node)
        times.append(backward)
    for layer in range(count if update else 0):
        nodes.append(Node(2 * count + layer, op, f"h.{layer}", "optimizer"))
        times.append(update)
    graph: Graph = build_graph(
        nodes,
        resident={"parameters": count * gradient, "optimizer": 2 * count * gradient},
        provenance={"batch": 4},
    )
    return Replica(graph, np.array(times))


def replayed(replica: Replica, text: str, cluster: Cluster | None = None) -> JobSchedule:
    """Return the schedule of a strategy on workers that are joined by `SLOW`."""
    strategy = parse_strategy(text, None if cluster is None else len(cluster.workers))
    return replay_job(build_job(replica, cluster or switch(strategy.ranks, link=SLOW), strategy))


def makespan(replica: Replica, text: str, cluster: Cluster | None = None) -> float:
    return replayed(replica, text, cluster).makespan


def spans(schedule: JobSchedule, rank: int, lane: str) -> list[tuple[str, float, float]]:
    """Return (name, begin, end) of the tasks of a rank on a lane, in order."""
    job = schedule.job
    program, tasks = job.programs[job.program[rank]], schedule.tasks_of(rank)
    return [
        (job.names[name], round(begin, 9), round(end, 9))
        for name, on, begin, end in zip(
            program.name.tolist(),
            program.lane.tolist(),
            schedule.begin[tasks].tolist(),
            schedule.end[tasks].tolist(),
            strict=True,
        )
        if on >= 0 and job.lanes[on] == lane
    ]


def bytes_of(job: Job, rank: int, kind: str) -> dict[str, int]:
    """Return the bytes of a rank's communication of a kind, by the names of tasks."""
    program = job.programs[job.program[rank]]
    sizes: dict[str, int] = {}
    for row in np.flatnonzero(program.kind == KINDS.index(kind)).tolist():
        name = job.names[program.name[row]]
        sizes[name] = sizes.get(name, 0) + int(program.size[row])
    return sizes


def machines(workers: int, each: int, outer: Link = SLOW) -> Cluster:
    """Return machines of `each` workers, joined at no cost within."""
    return hierarchical(workers, each, Link(), outer)


def names_of(items: Iterable[tuple[str, float, float]]) -> list[str]:
    return [name for name, _, _ in items]
