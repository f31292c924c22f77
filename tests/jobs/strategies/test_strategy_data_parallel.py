"""Data parallelism by hand: two layers, reductions beside the backward pass."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from four_ops import MB, SLOW, bytes_of, layers, machines, makespan, replayed, spans, two_layers
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster.cluster import ring, star, switch
from paracosm.cluster.link import Link
from paracosm.errors import InputError
from paracosm.graphs import Node, Op, build_graph
from paracosm.jobs.strategies.build import build_job
from paracosm.jobs.strategies.strategy import parse_strategy
from paracosm.jobs.strategies.work import Interference, Replica
from paracosm.simulation import replay_job

MIB = 1 << 20


def test_a_bucket_is_reduced_while_the_backward_pass_goes_on() -> None:
    """Ring of 2: 2 steps of half of 4 MB are 4 s; layer 1 is done at 4, layer 0 at 6."""
    schedule = replayed(two_layers(update=0.5), "dp=2")
    assert spans(schedule, 0, "compute") == [
        ("layer", 0, 1),
        ("layer", 1, 2),
        ("layer", 2, 4),
        ("layer", 4, 6),
        ("layer", 12, 12.5),
        ("layer", 12.5, 13),
    ]
    assert spans(schedule, 1, "communication") == [("all-reduce 0", 4, 8), ("all-reduce 1", 8, 12)]
    assert schedule.job.examples == 8


def test_a_core_that_reduces_gradients_computes_so_much_later() -> None:
    """A quarter of a second for each of 4 MB; the reductions themselves take as long as before."""
    replica = dataclasses.replace(two_layers(update=0.5), interference=Interference(0.25 / MB))
    schedule = replayed(replica, "dp=2")
    assert spans(schedule, 0, "compute") == [
        ("layer", 0, 1),
        ("layer", 1, 2),
        ("layer", 2, 4),
        ("computing for all-reduce 0", 4, 5),
        ("layer", 5, 7),
        ("computing for all-reduce 1", 7, 8),
        ("layer", 12, 12.5),
        ("layer", 12.5, 13),
    ]
    assert spans(schedule, 1, "communication") == [("all-reduce 0", 4, 8), ("all-reduce 1", 8, 12)]


def test_computing_is_slowed_as_long_as_a_collective_runs() -> None:
    """In 4 s of a reduction, computing gets 4 / 1.25 s done; the other 0.8 s come afterwards."""
    replica = dataclasses.replace(two_layers(backward=8), interference=Interference(slowdown=1.25))
    assert makespan(replica, "dp=2, bucket=100MB, first_bucket=1MB") == pytest.approx(
        2 + 16 + 0.8 + 4
    )
    assert makespan(replica, "dp=1") == pytest.approx(18)


@pytest.mark.parametrize(
    "wrong", [{"per_byte": -1.0}, {"slowdown": 0.9}, {"slowdown": float("inf")}]
)
def test_interference_only_ever_slows(wrong: dict[str, float]) -> None:
    with pytest.raises(InputError, match="0 or more, and 1 or more"):
        Interference(**wrong)


def test_gradients_fill_buckets_in_the_order_in_which_they_appear() -> None:
    """The first bucket is closed by 1 MiB or more, the others by 25 MiB."""
    job = replayed(layers(9, gradient=7 * MIB), "dp=4").job
    assert bytes_of(job, 0, "collective") == {
        "all-reduce 0": 7 * MIB,
        "all-reduce 1": 28 * MIB,
        "all-reduce 2": 28 * MIB,
    }


def test_buckets_of_another_size() -> None:
    job = replayed(layers(4, gradient=2 * MIB), "dp=4, first_bucket=4MiB, bucket=1MiB").job
    assert list(bytes_of(job, 0, "collective").values()) == [4 * MIB, 2 * MIB, 2 * MIB]


@given(
    sizes=st.lists(st.integers(0, 100), min_size=1, max_size=12).filter(any),
    bucket=st.integers(1, 200),
    first=st.integers(1, 200),
)
def test_every_gradient_is_reduced_once(sizes: list[int], bucket: int, first: int) -> None:
    op = Op("op")
    nodes = [
        Node(i, op, f"h.{i}", "backward", allocates=((size, -1),)) for i, size in enumerate(sizes)
    ]
    replica = Replica(build_graph(nodes), np.ones(len(nodes)))
    text = f"dp=3, bucket={bucket}B, first_bucket={first}B"
    reduced = bytes_of(replayed(replica, text).job, 2, "collective")
    assert sum(reduced.values()) == sum(sizes)
    assert all(size >= bucket for size in list(reduced.values())[1:-1])


def test_accumulated_gradients_are_reduced_with_the_last_micro_batch() -> None:
    """Three times 2 forward and 4 backward; the last layer 1 is done at 16."""
    schedule = replayed(two_layers(), "dp=2, microbatches=3")
    assert spans(schedule, 0, "communication") == [
        ("all-reduce 0", 16, 20),
        ("all-reduce 1", 20, 24),
    ]
    assert schedule.job.examples == 24


def test_on_a_free_network_replicas_are_as_fast_as_one() -> None:
    replica = two_layers(update=0.5)
    assert makespan(replica, "dp=8", switch(8)) == makespan(replica, "single") == 7.0


@pytest.mark.parametrize(
    ("algorithm", "seconds"),
    [
        ("ring", 6 * 1.0),  # 2 (p - 1) steps of 4 MB / p
        ("tree", 4 * 4.0),  # 2 log2 p steps of 4 MB
        ("halving-doubling", 2 * (2.0 + 1.0)),
        ("auto", 6.0),
    ],
)
def test_algorithms(algorithm: str, seconds: float) -> None:
    """One layer of 4 MB on 4 ranks."""
    schedule = replayed(
        layers(1), f"dp=4, all_reduce={algorithm}" if algorithm != "auto" else "dp=4"
    )
    (_, begin, end), *_ = spans(schedule, 0, "communication")
    assert end - begin == pytest.approx(seconds)


def test_hierarchical_sends_a_machine_s_share_across() -> None:
    """2 machines of 2, free within: 2 steps across of half of the half of 4 MB."""
    schedule = replayed(layers(1), "dp=4, all_reduce=hierarchical", machines(4, 2))
    assert spans(schedule, 0, "communication") == [("all-reduce 0", 3, 5)]
    assert makespan(layers(1), "dp=4", machines(4, 2)) == 5.0
    with pytest.raises(InputError, match="needs machines of several workers"):
        replayed(layers(1), "dp=4, all_reduce=hierarchical")


def test_a_slow_node_holds_up_all() -> None:
    """Twice as slow: backward of layer 0 ends at 12, its reduction at 16."""
    replica = two_layers()
    assert makespan(replica, "dp=2") == 12.0
    slow = switch(2, link=SLOW, speeds=[1.0, 0.5])
    assert makespan(replica, "dp=2", slow) == 16.0


def test_ranks_that_nothing_joins_are_named() -> None:
    with pytest.raises(InputError, match='no link joins "worker0" and "worker1" in the star'):
        replayed(two_layers(), "dp=3", star(3, 1))


def test_neighbours_of_a_ring_reduce_along_it() -> None:
    """2 * 2 steps of 4/3 MB for each layer; the second follows the first at once."""
    assert makespan(two_layers(), "dp=3", ring(3, SLOW)) == pytest.approx(4 + 2 * 16 / 3)


def test_replicas_of_a_stage_meet_within_the_machine_and_stages_across() -> None:
    """Stage 0 is on workers 0 and 1, one machine; stage 1 on the other. Reductions cost nothing."""
    cluster = machines(4, 2, Link(bandwidth=2.0 * MB))
    schedule = replay_job(build_job(two_layers(), cluster, parse_strategy("dp=2, pp=2", 4)))
    assert spans(schedule, 0, "send") == [("send activations", 1, 1.5)]
    assert spans(schedule, 2, "communication") == [("all-reduce 0 of stage 1", 4.5, 4.5)]


def test_a_group_on_a_slower_link_takes_longer() -> None:
    """Workers 2 and 3, the replicas of stage 1, are joined by a link of half the speed."""
    usual = switch(4, link=SLOW)
    slow = (("worker2", "worker3", Link(bandwidth=0.5 * MB)),)
    cluster = dataclasses.replace(usual, overrides=slow)
    job = build_job(two_layers(), cluster, parse_strategy("dp=2, pp=2", 4))
    schedule = replay_job(job)
    for rank, seconds in ((0, 4), (3, 8)):
        ((_, begin, end),) = spans(schedule, rank, "communication")
        assert end - begin == seconds


def test_a_graph_without_gradients_is_refused() -> None:
    with pytest.raises(InputError, match="the graph has no gradients to reduce"):
        replayed(two_layers(gradient=0), "dp=2")


def test_replicas_without_a_backward_pass_share_nothing() -> None:
    """Two layers that only go forward: three replicas run side by side, joined or not."""
    op = Op("layer", bytes_written=MB)
    nodes = [Node(i, op, f"h.{i}", "forward", dependencies=range(i)) for i in range(2)]
    replica = Replica(build_graph(nodes, provenance={"batch": 4}), np.ones(2))
    schedule = replayed(replica, "dp=3, microbatches=2", star(3, 1, SLOW))
    assert (schedule.makespan, schedule.job.examples) == (4.0, 4 * 3 * 2)
    assert bytes_of(schedule.job, 0, "collective") == {}
    with pytest.raises(InputError, match="zero=3, but the graph has no backward pass: dp=2 alone"):
        replayed(replica, "fsdp, dp=2")


def test_more_micro_batches_than_can_be_written_down_are_refused() -> None:
    with pytest.raises(InputError, match=r"microbatches=1000000000 times .* fits"):
        replayed(two_layers(), "dp=2, microbatches=1000000000")
    assert makespan(two_layers(), "fsdp, dp=2, prefetch=1000000000") == 12.0


def test_half_duplex_takes_the_steps_of_a_ring_in_turn() -> None:
    """One layer of 4 MB: 2 steps in which everybody sends 2 MB and gets 2 MB."""
    half = switch(2, link=dataclasses.replace(SLOW, duplex="half"))
    assert makespan(layers(1), "dp=2", half) == 3 + 2 * 4.0
    assert makespan(layers(1), "dp=2") == 3 + 2 * 2.0


def test_100_000_ranks() -> None:
    schedule = replayed(two_layers(), "dp=100000", switch(100_000))
    assert (schedule.makespan, schedule.job.ranks) == (6.0, 100_000)
