"""Peak memory of ranks: against that of the graph, and by hand."""

from __future__ import annotations

import numpy as np
import pytest
from four_ops import MB, layers, replayed

from paracosm.cluster import switch
from paracosm.graphs import Graph, Node, Op, build_graph
from paracosm.graphs.capture import CaptureOptions, capture
from paracosm.graphs.summary import peak_memory
from paracosm.jobs.strategies import Replica
from paracosm.simulation.memory import peak_memory_of_ranks


def peaks(replica: Replica, text: str) -> list[int]:
    return [int(peak) for peak in peak_memory_of_ranks(replayed(replica, text))]


@pytest.fixture(
    scope="module",
    params=[("gpt-small", (16,), "sgd"), ("resnet18", (3, 64, 64), "adam")],
)
def captured(request: pytest.FixtureRequest) -> Graph:
    model, shape, optimizer = request.param
    return capture(CaptureOptions(model, batch=2, shape=shape, optimizer=optimizer, foreach=True))


@pytest.mark.parametrize(
    "launch",
    [None, 5e-6, *(pytest.param(each, marks=pytest.mark.slow) for each in (0.0, 1e-3))],
)
def test_one_device_holds_what_the_graph_holds(captured: Graph, launch: float | None) -> None:
    """Also where the host runs ahead: it hands back memory in the order in which it issues."""
    times = np.random.default_rng(7).uniform(1e-6, 1e-4, len(captured))
    replica = Replica(captured, times, launch is not None, launch or 0.0)
    assert peaks(replica, "single") == [peak_memory(captured)]
    # So does a replica of several, but for the loss, which goes with its micro-batch.
    assert peaks(replica, "dp=2") == pytest.approx([peak_memory(captured)] * 2, abs=4)


def step(temporary: int, views: bool = False) -> Replica:
    """Return a step of two layers whose optimizer takes memory for a while, and perhaps views."""
    op, view = Op("layer", bytes_written=MB), Op("aten.view.default")
    nodes = [
        Node(0, op, "h.0", "forward", allocates=((3 * MB, 4 if views else 3),)),
        Node(1, op, "h.1", "forward", dependencies=(0,)),
        Node(2, op, "h.1", "backward", dependencies=(1,), allocates=((4 * MB, -1),)),
        Node(3, op, "h.0", "backward", dependencies=(2,), allocates=((4 * MB, -1),)),
        Node(4, view, "h.0", "backward", "host", (3,)),
        Node(5, op, "h.0", "optimizer", allocates=((temporary, 5),)),
        Node(6, op, "h.1", "optimizer", allocates=((temporary, 6),)),
    ]
    graph = build_graph(nodes, resident={"parameters": 8 * MB, "optimizer": 16 * MB})
    return Replica(graph, np.array([1.0, 1, 1, 1, 0, 1, 1]), asynchronous=True)


def test_what_the_optimizer_takes_for_a_while_is_divided_with_its_work() -> None:
    """24 MB, gradients of 8 MB, and 100 MB for one layer's update at a time."""
    replica = step(100 * MB)
    assert peaks(replica, "single") == [132 * MB]
    assert peaks(replica, "dp=2") == [132 * MB] * 2
    assert peaks(replica, "dp=2, zero=1") == [(8 + 8 + 8 + 50) * MB] * 2
    # Half of the parameters, states and gradients, and the update of a layer, on each stage.
    assert peaks(replica, "pp=2") == [(4 + 8 + 4 + 100) * MB] * 2


def test_an_update_of_all_layers_at_once_takes_the_share_of_a_stage() -> None:
    nodes = [
        Node(0, Op("layer", bytes_written=MB), "h.0", "forward"),
        Node(1, Op("layer", bytes_written=MB), "h.1", "forward", dependencies=(0,)),
        Node(2, Op("layer"), "h.1", "backward", dependencies=(1,), allocates=((6 * MB, -1),)),
        Node(3, Op("layer"), "h.0", "backward", dependencies=(2,), allocates=((2 * MB, -1),)),
        Node(4, Op("aten._foreach_add_"), "", "optimizer", allocates=((80 * MB, 4),)),
    ]
    replica = Replica(build_graph(nodes), np.ones(5))
    assert peaks(replica, "pp=2, cut=h.1") == [(2 + 20) * MB, (6 + 60) * MB]


def test_a_host_that_runs_ahead_does_not_hand_back_memory_too_early() -> None:
    """The last to look at layer 0's activations is a view, which the host has done at 0."""
    replica = step(0, views=True)
    assert peaks(replica, "single") == [peak_memory(replica.graph)] == [(24 + 3 + 8) * MB]
    assert peaks(replica, "dp=2") == [(24 + 3 + 8) * MB] * 2


@pytest.mark.parametrize(
    ("text", "megabytes"),
    [
        # Three layers; parameters 12, optimizer 24; activations 3 a layer, gradients 4 a layer.
        # The peak is in the backward pass of the last layer: 9 + 4, or in the first's: 3 + 12.
        ("dp=3", 12 + 24 + 3 + 12),
        ("dp=3, zero=1", 12 + 8 + 3 + 12),
        # Gradients are let go when they have been scattered, at no cost: of one layer at a time,
        # and shards of the others, which are there from then on: less than the activations were.
        ("dp=3, zero=2", 12 + 8 + 9 + 4),
        # Two layers are gathered in the backward pass of the last one but none before the first.
        ("dp=3, zero=3", 4 + 8 + 9 + 4 + 8),
        ("dp=3, microbatches=2", 12 + 24 + 12 + 9 + 4),
        # Of the activations one layer's 3 are there at a time, and 1 of each that hands them on.
        ("dp=3, recompute", 12 + 24 + 3 + 12),
        ("dp=3, recompute, microbatches=2", 12 + 24 + 12 + 2 + 3 + 4),
    ],
)
def test_stages_of_zero_and_recomputation_by_hand(text: str, megabytes: int) -> None:
    replica = layers(3, update=1.0)
    schedule = replayed(replica, text, switch(3))
    assert [int(peak) for peak in peak_memory_of_ranks(schedule)] == [megabytes * MB] * 3
