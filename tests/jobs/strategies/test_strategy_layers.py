"""Which layers a graph has, and in what order its passes stand."""

from __future__ import annotations

import numpy as np
import pytest
from four_ops import MB, replayed

from paracosm.cluster import switch
from paracosm.errors import InputError
from paracosm.graphs import Node, Op, build_graph
from paracosm.jobs.strategies import Replica
from paracosm.jobs.strategies.layers import layers_of
from paracosm.jobs.strategies.plan import stages_of

OP = Op("op", bytes_written=MB)


def with_inner(count: int, handed: int, inner: int) -> Replica:
    """Return layers of two nodes: one whose result the layer keeps, one that it hands on."""
    nodes = []
    for layer in range(count):
        back = 4 * count - 2 - 2 * layer  # the first node of the layer's backward pass
        before = (2 * layer - 1,) if layer else ()
        nodes += [
            Node(
                id=2 * layer,
                op=OP,
                name=f"h.{layer}.a",
                phase="forward",
                dependencies=before,
                allocates=((inner, back),),
            ),
            Node(
                id=2 * layer + 1,
                op=OP,
                name=f"h.{layer}.b",
                phase="forward",
                dependencies=(2 * layer,),
                allocates=((handed, back),),
            ),
        ]
    for layer in reversed(range(count)):
        number = len(nodes)
        nodes += [
            Node(number, OP, f"h.{layer}.b", "backward", dependencies=(number - 1, 2 * layer)),
            Node(number + 1, OP, f"h.{layer}.a", "backward", dependencies=(number,)),
        ]
    return Replica(build_graph(nodes), np.ones(len(nodes)))


def with_ends() -> Replica:
    """Return an embedding, two layers and a head, each one node in either pass."""
    places = ["wte", "h.0", "h.1", "head"]
    nodes = [
        Node(i, OP, place, "forward", dependencies=(i - 1,) if i else ())
        for i, place in enumerate(places)
    ]
    nodes += [
        Node(4 + i, OP, place, "backward", dependencies=(3 + i,))
        for i, place in enumerate(reversed(places))
    ]
    return Replica(build_graph(nodes), np.array([1.0] * 4 + [2.0] * 4))


def layers_at(*places: str, phase: str = "forward") -> tuple[tuple[str, ...], list[int]]:
    graph = build_graph(Node(i, OP, place, phase) for i, place in enumerate(places))
    layers = layers_of(graph)
    return layers.names, layers.layer.tolist()


def test_numbers_make_layers_and_what_is_between_comes_together() -> None:
    names, layer = layers_at("wte", "wpe", "", "h.0.a", "h.0.b.2", "h.0", "h.1", "ln_f", "head", "")
    assert names == ("wte", "h.0", "h.1", "ln_f")
    assert layer == [0, 0, 0, 1, 1, 1, 2, 3, 3, 3]


@pytest.mark.parametrize(
    ("stages", "begins"),
    [
        (3, [0, 0, 0, 1, 1, 2, 2, 2]),
        (4, [0, 0, 1, 1, 2, 2, 3, 3]),  # six, embedding and head are eight
        (5, [0, 1, 2, 3, 3, 3, 3, 4]),  # neither divides: by time
    ],
)
def test_megatron_cuts_a_model_by_numbers_of_layers(stages: int, begins: list[int]) -> None:
    """Whatever the layers take; here the head takes as long as four of them."""
    places = ("wte", *(f"h.{n}" for n in range(6)), "head")
    layers = layers_of(build_graph(Node(i, OP, p, "forward") for i, p in enumerate(places)))
    time = np.array([4.0, 4.0, 4.0, 1.0, 1.0, 1.0, 1.0, 4.0])
    assert stages_of(layers, time, stages, (), equal=True) == begins


def test_without_numbers_every_module_is_a_layer() -> None:
    assert layers_at("conv.inner", "conv", "fc1", "fc2") == (("conv", "fc1", "fc2"), [0, 0, 1, 2])


def test_a_module_that_is_used_again_does_not_take_layers_back() -> None:
    assert layers_at("a", "act", "b", "act", "c") == (("a", "act", "b", "c"), [0, 1, 2, 2, 3])


def test_a_backward_node_is_in_no_later_layer_than_what_it_waits_for() -> None:
    """The gradient of an embedding that the head shares is added up where the embedding is."""
    graph = build_graph(
        [
            Node(0, OP, "wte", "forward"),
            Node(1, OP, "h.0", "forward"),
            Node(2, OP, "head", "forward"),
            Node(3, OP, "head", "backward"),
            Node(4, OP, "h.0", "backward", dependencies=(3,)),
            Node(5, OP, "", "backward"),
            Node(6, OP, "wte", "backward", dependencies=(3, 4)),
            Node(7, OP, "head", "backward", dependencies=(6,)),
            Node(8, OP, "h.0", "optimizer"),
            Node(9, Op("aten._foreach_add_.List"), "wte", "optimizer"),
        ]
    )
    layers = layers_of(graph)
    assert layers.layer.tolist() == [0, 1, 2, 2, 1, 1, 0, 0, 1, -1]
    assert (layers.backward, layers.optimizer) == (3, 8)


def test_steps_on_all_parameters_at_once_are_shared_by_the_stages() -> None:
    """A foreach op of 8 s; stage 0 has 1 MB of 4 MB of gradients: it steps for 2 s."""
    graph = build_graph(
        [
            Node(0, OP, "h.0", "forward"),
            Node(1, OP, "h.1", "forward", dependencies=(0,)),
            Node(2, OP, "h.1", "backward", dependencies=(1,), allocates=((3 * MB, -1),)),
            Node(3, OP, "h.0", "backward", dependencies=(2,), allocates=((MB, -1),)),
            Node(4, Op("aten._foreach_add_.List"), "h.0", "optimizer"),
        ]
    )
    replica = Replica(graph, np.array([1.0, 1.0, 1.0, 1.0, 8.0]))
    schedule = replayed(replica, "pp=2", switch(2))
    program = schedule.job.programs
    assert [each.duration[-1] for each in program] == [2.0, 6.0]


def test_passes_that_are_mixed_are_refused_but_for_one_device() -> None:
    nodes = [Node(3, OP, "a", "backward"), Node(4, OP, "a", "forward")]
    replica = Replica(build_graph(nodes), np.ones(2))
    assert replayed(replica, "single").makespan == 2.0
    with pytest.raises(InputError, match=r"node 4 \(op\) is of the forward pass, but follows"):
        replayed(replica, "dp=2")
