"""The compiled replay against the paper's loop, on random graphs."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from replay_literal import Task, replay_literally

from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.graph import RESOURCES, Graph, Op, host_nodes
from paracosm.simulation.replay import replay

WAITING = "aten._local_scalar_dense.default"


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    count = draw(st.integers(1, 25))
    nodes = []
    for i in range(count):
        resource = draw(st.sampled_from(RESOURCES))
        name = draw(st.sampled_from(["op", WAITING])) if resource == "host" else "op"
        before = draw(st.sets(st.integers(0, i - 1), max_size=3)) if i else set()
        nodes.append(
            Node(
                id=i,
                op=Op(name),
                resource=resource,
                dependencies=tuple(sorted(before)),
                duration=draw(st.integers(0, 5)) / 4,
            )
        )
    return build_graph(nodes)


def as_tasks(graph: Graph, asynchronous: bool, launch: float) -> tuple[list[Task], list[int]]:
    """Return the graph as the paper's devices carry it out, and the task of every node.

    In-order lanes become dependencies: a task needs the one before it on its device. A node that
    the host only issues is two tasks. Who depends on a view depends on what it is a view of.
    """
    on_host = host_nodes(graph, asynchronous)
    tasks: list[Task] = []
    of_node: list[int] = []
    data: list[set[int]] = []  # the tasks that have to end before a node's value is there
    last: dict[str, int] = {}

    def put(device: str, duration: float, needs: set[int]) -> int:
        before = {last[device]} if device in last else set()
        tasks.append(Task(device, duration, tuple(sorted(needs | before))))
        last[device] = len(tasks) - 1
        return last[device]

    for row in range(len(graph)):
        needs = set().union(*(data[before] for before in graph.predecessors(row).tolist()))
        seconds = float(graph.duration[row])
        if on_host[row]:
            blocks = not is_view(graph, row)
            if blocks and "compute" in last:  # the stream has to come to its end
                needs = needs | {last["compute"]}
            task = put("host", seconds, needs if blocks else set())
            data.append({task} | (set() if blocks else needs))
        else:
            issued = put("host", launch, set())
            task = put(RESOURCES[graph.resource[row]], seconds, needs | {issued})
            data.append({task})
        of_node.append(task)
    return tasks, of_node


def is_view(graph: Graph, row: int) -> bool:
    of_host = RESOURCES[graph.resource[row]] == "host"
    return of_host and graph.ops[graph.op[row]].name != WAITING


@settings(deadline=None, max_examples=150)
@given(graphs(), st.booleans(), st.sampled_from([0.0, 0.25, 1.0]))
def test_the_kernel_plays_as_the_paper_does(graph: Graph, gpu: bool, launch: float) -> None:
    schedule = replay(graph, graph.duration, asynchronous=gpu, launch=launch)
    tasks, of_node = as_tasks(graph, gpu, launch)
    literal = replay_literally(tasks)
    assert schedule.begin.tolist() == [literal[task][0] for task in of_node]
    assert schedule.end.tolist() == [literal[task][1] for task in of_node]
    assert schedule.makespan == max(end for _, end in literal)


@settings(deadline=None, max_examples=60)
@given(graphs(), st.booleans(), st.sampled_from([0.0, 0.5]))
def test_bounds_that_always_hold(graph: Graph, gpu: bool, launch: float) -> None:
    schedule = replay(graph, graph.duration, asynchronous=gpu, launch=launch)
    busiest = max(
        graph.duration[(graph.resource == code) & ~schedule.on_host].sum()
        for code in range(len(RESOURCES))
    )
    host = (schedule.issued - schedule.issue).sum()
    assert schedule.makespan >= max(busiest, host)
    assert schedule.makespan <= graph.duration.sum() + launch * (~schedule.on_host).sum()
    for code in range(len(RESOURCES)):
        lane = np.flatnonzero((graph.resource == code) & ~schedule.on_host)
        assert (schedule.begin[lane[1:]] >= schedule.end[lane[:-1]]).all()


def test_the_paper_starts_what_is_ready_in_the_order_of_its_queue() -> None:
    """Two devices: a (2 s) and b (1 s) on one, c (4 s) after b on the other, d after a and c."""
    tasks = [
        Task("gpu", 2.0),
        Task("gpu", 1.0),
        Task("link", 4.0, (1,)),
        Task("gpu", 1.0, (0, 2)),
    ]
    assert replay_literally(tasks) == [(0, 2), (2, 3), (3, 7), (7, 8)]
