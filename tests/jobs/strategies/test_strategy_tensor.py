"""Tensor parallelism: collectives that were captured, and graphs that are split by estimate."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from four_ops import MB, SLOW, bytes_of, machines, names_of, replayed, spans, two_layers

from paracosm.cluster import Link, switch
from paracosm.errors import InputError
from paracosm.graphs import Graph, Node, Op, build_graph
from paracosm.jobs.strategies import Replica

PRODUCT = Op("aten.mm.default", bytes_written=MB)
PLAIN = Op("aten.add.Tensor", bytes_written=MB)


def captured() -> Replica:
    """Two products, each summed between two ranks."""
    reduce = Op("_c10d_functional.all_reduce.default", "", 0, 2 * MB, 2 * MB)
    graph = build_graph(
        [
            Node(0, PRODUCT, "h.0.mlp", "forward"),
            Node(1, reduce, "h.0.mlp", "forward", "communication", (0,), (0, 1)),
            Node(2, PRODUCT, "h.1.mlp", "forward", dependencies=(1,)),
            Node(3, reduce, "h.1.mlp", "forward", "communication", (2,), (0, 1)),
        ]
    )
    return Replica(graph, np.ones(4))


def test_captured_collectives_meet() -> None:
    """A ring of 2 takes 2 steps of half of 2 MB."""
    schedule = replayed(captured(), "tp=2")
    assert spans(schedule, 1, "compute") == [
        ("aten.mm.default", 0, 1),
        ("aten.mm.default", 3, 4),
    ]
    assert [end for _, _, end in spans(schedule, 0, "tensor")] == [3, 6]


def test_captured_collectives_between_other_numbers_of_ranks_are_refused() -> None:
    with pytest.raises(InputError, match=r"tp=4, but .*all_reduce.default of node 1 .* tp=2 fits"):
        replayed(captured(), "tp=4")
    with pytest.raises(InputError, match=r"tp=1, but .* is between 2 ranks: tp=2 fits"):
        replayed(captured(), "dp=2")


def test_on_one_device_captured_collectives_take_the_time_they_have() -> None:
    assert replayed(captured(), "single").makespan == 4.0


def test_what_a_captured_collective_is_its_name_says() -> None:
    """A gather is one step of half of 2 MB, an all-reduce two."""
    for name, seconds in (
        ("c10d._allgather_base_.default", 1.0),
        ("ncclKernel_ReduceScatter_RING", 1.0),
        ("c10d.alltoall_base_.default", 1.0),
        ("nccl:all_reduce", 2.0),
        ("c10d.broadcast_.default", 2.0),
    ):
        node = Node(0, Op(name, "", 0, 2 * MB, 2 * MB), "h.0", "forward", "communication")
        assert replayed(Replica(build_graph([node]), np.ones(1)), "tp=2").makespan == seconds


def transformer() -> Graph:
    """A layer as captured from a model, and a head; a gradient of 4 MB for each product."""
    forward = (
        ("h.0.ln_1", PLAIN),
        ("h.0.attention.qkv", PRODUCT),
        ("h.0.attention.out", PRODUCT),
        ("h.0", PLAIN),
        ("h.0.norm", PLAIN),
        ("h.0.mlp.up", PRODUCT),
        ("h.0.mlp.down", PRODUCT),
        ("h.0", PLAIN),
        ("lm_head", PRODUCT),
    )
    nodes = [
        Node(i, op, place, "forward", dependencies=(i - 1,) if i else ())
        for i, (place, op) in enumerate(forward)
    ]
    for place, op in reversed(forward):
        i = len(nodes)
        grads = ((4 * MB, -1),) if op is PRODUCT else ()
        nodes.append(Node(i, op, place, "backward", dependencies=(i - 1,), allocates=grads))
    return build_graph(nodes, resident={"parameters": 20 * MB, "buffers": MB})


def test_a_transformer_s_layer_is_split_and_summed_twice_each_way() -> None:
    graph = transformer()
    schedule = replayed(Replica(graph, np.full(len(graph), 4.0)), "tp=4", switch(4, link=Link()))
    compute = spans(schedule, 0, "compute")
    lengths = [end - begin for _, begin, end in compute]
    assert lengths[:9] == [4, 1, 1, 4, 4, 1, 1, 4, 4]
    assert lengths[9:] == lengths[:9][::-1]
    # Behind out and down, and in the backward pass behind up and qkv; 1 MB each.
    ends = [begin for _, begin, _ in spans(schedule, 0, "tensor")]
    assert ends == [compute[row][2] for row in (2, 6, 12, 16)]
    assert bytes_of(schedule.job, 0, "collective") == {"all-reduce": 4 * MB}


def test_split_parameters_are_held_by_a_rank_each() -> None:
    """Four products of five are split: 16 / 4 + 4 of 20 MB are left; buffers are everybody's."""
    graph = transformer()
    job = replayed(Replica(graph, np.ones(len(graph))), "tp=4, dp=2").job
    assert job.programs[0].resident == 8 * MB + MB
    reduced = bytes_of(job, 0, "collective")
    assert sum(size for name, size in reduced.items() if name != "all-reduce") == 8 * MB


def test_a_layer_of_one_node_is_split_whole_and_summed_twice() -> None:
    """Half of a second, twice 1 MB; two layers. Backward: a second, twice 1 MB."""
    schedule = replayed(two_layers(), "tp=2")
    assert spans(schedule, 0, "compute") == [
        ("layer", 0, 0.5),
        ("layer", 2.5, 3),
        ("layer", 5, 6),
        ("layer", 8, 9),
    ]
    assert names_of(spans(schedule, 0, "tensor")) == ["all-reduce"] * 8
    assert schedule.makespan == 11


def test_a_replica_that_was_measured_split_is_not_split_again() -> None:
    """Durations are those of one of two ranks, with their sums; 2 x 12 MB are what it holds."""
    replica = dataclasses.replace(two_layers(), tensor=2)
    schedule = replayed(replica, "tp=2")
    assert schedule.makespan == 6.0
    assert schedule.job.programs[0].resident == 24 * MB
    for text in ("tp=4", "dp=2"):
        with pytest.raises(InputError, match="is one of 2 tensor-parallel ranks: tp=2 fits"):
            replayed(replica, text)


def test_tensor_ranks_stand_next_to_each_other() -> None:
    """tensor=2, data=2 on machines of two: sums within cost nothing, reductions go across."""
    schedule = replayed(two_layers(), "tp=2, dp=2", machines(4, 2, SLOW))
    assert {end - begin for _, begin, end in spans(schedule, 0, "tensor")} == {0}
    assert [end - begin for _, begin, end in spans(schedule, 0, "communication")] == [2, 2]
    job = schedule.job
    groups = [job.communicators.ranks(c) for c in range(len(job.communicators))]
    assert groups == [(0, 2), (1, 3), (0, 1), (2, 3)]


def test_what_cannot_be_split_is_refused() -> None:
    unnamed = build_graph([Node(0, PRODUCT, "fc", "forward")])
    without = build_graph([Node(0, PLAIN, "h.0.mlp", "forward")])
    for graph in (unnamed, without):
        with pytest.raises(InputError, match="tp=2: nothing to split"):
            replayed(Replica(graph, np.ones(1)), "tp=2")
