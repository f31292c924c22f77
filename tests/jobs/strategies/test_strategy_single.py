"""One device: the job's makespan is that of the replay of its graph, whatever the graph."""

from __future__ import annotations

import numpy as np
import pytest
from four_ops import replayed, two_layers
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.errors import InputError
from paracosm.graphs.build import Node, build_graph
from paracosm.graphs.graph import PHASES, RESOURCES, Graph, Op
from paracosm.graphs.summary import peak_memory
from paracosm.jobs.strategies import Replica
from paracosm.simulation.memory import peak_memory_of_ranks
from paracosm.simulation.replay import replay

OPS = [Op("aten.mm.default"), Op("aten.item.default"), Op("synchronize"), Op("aten.view.default")]


@st.composite
def graphs_on_all_lanes(draw: st.DrawFn) -> Graph:
    """Draw nodes on all resources, some of which the host waits for."""
    count = draw(st.integers(1, 14))
    nodes = []
    for row in range(count):
        before = st.lists(st.integers(0, row - 1), max_size=3) if row else st.just([])
        last = st.integers(row, count - 1) | st.just(-1)
        nodes.append(
            Node(
                id=row,
                op=draw(st.sampled_from(OPS)),
                phase=draw(st.sampled_from(PHASES)),
                resource=draw(st.sampled_from(RESOURCES)),
                dependencies=tuple(draw(before)),
                allocates=tuple(draw(st.lists(st.tuples(st.integers(0, 9), last), max_size=2))),
            )
        )
    return build_graph(nodes, resident={"parameters": 5})


@given(
    graph=graphs_on_all_lanes(),
    seed=st.integers(0, 100),
    asynchronous=st.booleans(),
    launch=st.sampled_from([0.0, 0.5, 3.0]),
)
@settings(max_examples=100, deadline=None)
def test_random_graphs(graph: Graph, seed: int, asynchronous: bool, launch: float) -> None:
    rng = np.random.default_rng(seed)
    duration = rng.integers(0, 8, len(graph)) / 4
    expected = replay(graph, duration, asynchronous=asynchronous, launch=launch)
    schedule = replayed(Replica(graph, duration, asynchronous, launch), "single")
    assert schedule.makespan == expected.makespan
    program = schedule.job.programs[0]
    own = np.array([not schedule.job.names[n].startswith("launch") for n in program.name])
    np.testing.assert_array_equal(schedule.begin[own], expected.begin)
    np.testing.assert_array_equal(schedule.end[own], expected.end)


def test_memory_is_that_of_the_graph() -> None:
    replica = two_layers(update=1.0)
    peak = peak_memory_of_ranks(replayed(replica, "single"))
    assert peak.tolist() == [peak_memory(replica.graph)]


def test_replicas_that_cannot_be_are_refused() -> None:
    graph = two_layers().graph
    with pytest.raises(InputError, match="3 durations for 4 nodes"):
        Replica(graph, np.ones(3))
    with pytest.raises(InputError, match=r"the duration of node 1 \(layer\) is nan s"):
        Replica(graph, np.array([1.0, np.nan, 1.0, 1.0]))
    with pytest.raises(InputError, match="the launch time is -1"):
        Replica(graph, np.ones(4), True, -1.0)
