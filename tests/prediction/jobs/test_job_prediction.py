"""Jobs on a cluster, by hand: parts, ideals, what the sentence says."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest

from paracosm.cluster import Link, star, switch
from paracosm.errors import InputError
from paracosm.graphs import Node, Op, build_graph
from paracosm.jobs.strategies import Replica, parse_strategy
from paracosm.prediction.job import (
    ideal_throughput,
    predict_job,
    relative_interval,
    strategies_by_workers,
)
from paracosm.prediction.summary import job_bottleneck
from paracosm.profiling.estimators.roofline import Estimate
from paracosm.simulation.breakdown import rank_breakdown

MS = 1e-3
FREE = Link()
OPS = {"op": 1.0}


def replica(layers: Sequence[float], *, optimizer: float = 0.0, launch: float = 0.0) -> Replica:
    """Return layers whose forward and backward pass take so many milliseconds each."""
    nodes: list[Node] = []
    times: list[float] = []

    def add(name: str, phase: str, time: float) -> None:
        before = (len(nodes) - 1,) if nodes else ()
        held = ((1000, -1),) if phase == "backward" else ()
        number = len(nodes)
        nodes.append(Node(number, Op("op"), name, phase, dependencies=before, allocates=held))
        times.append(time * MS)

    for number, time in enumerate(layers):
        add(f"h.{number}.linear", "forward", time)
    for number, time in reversed(list(enumerate(layers))):
        add(f"h.{number}.linear", "backward", time)
    add("", "optimizer", optimizer)
    graph = build_graph(nodes, provenance={"examples": 4})
    return Replica(graph, np.array(times), asynchronous=launch > 0, launch=launch * MS)


def test_the_interval_of_a_job_has_one_update_for_all_micro_batches_and_ranks() -> None:
    """Two products of 4 s are 1 s off, of one name: 2 s if other devices were timed, else the root
    of 2. An update of 32 s, 16 off, is one of 4 micro-batches and of 2 ranks: 4 s and 2."""
    graph = build_graph(
        [
            Node(0, Op("mm", "a"), phase="forward"),
            Node(1, Op("mm", "b"), phase="backward"),
            Node(2, Op("adam"), phase="optimizer"),
        ]
    )
    strategy = parse_strategy("dp=2, zero=1, microbatches=4")
    for source, product in (("pooled", 2.0), ("kernel", math.sqrt(2))):
        durations = [Estimate(4, 3, 5, source, "product")] * 2
        update = Estimate(32, 16, 48, "datasheet", "optimizer")
        low, high = relative_interval(graph, [*durations, update], 0.1, strategy)
        width = math.hypot(0.1, product / 12, 2 / 12)
        assert (low, high) == (pytest.approx(1 - width), pytest.approx(1 + width))
    assert relative_interval(graph, [None] * 3, 0.1, strategy) == (1.0, 1.0)


def test_equal_stages_have_the_bubble_of_1f1b() -> None:
    # (m + p - 1) (forward + backward): Narayanan et al. 2021, section 2.2.
    strategy = parse_strategy("pp=2, microbatches=4")
    job = predict_job(replica([1, 1]), switch(2, 0, FREE), strategy)
    assert job.iteration_time == pytest.approx((4 + 2 - 1) * 2 * MS)
    assert job.parts["bubble"] == pytest.approx(2 * MS)
    said = job_bottleneck(job, OPS)
    assert said == (
        "Pipeline bubble: workers are idle 20% of the iteration; it has 2 stages and 4 "
        "micro-batches; more micro-batches shrink it."
    )


@pytest.mark.parametrize(("batches", "limit"), [(8, "Pipeline bubble: "), (10, "Computing: ")])
def test_what_takes_more_than_a_tenth_of_the_iteration_is_the_bottleneck(
    batches: int, limit: str
) -> None:
    strategy = parse_strategy(f"pp=2, microbatches={batches}")
    job = predict_job(replica([1, 1]), switch(2, 0, FREE), strategy)
    assert job.parts["bubble"] / job.iteration_time == pytest.approx(1 / (batches + 1))
    assert job_bottleneck(job, OPS).startswith(limit)


def test_unequal_stages_are_named() -> None:
    strategy = parse_strategy("pp=2, microbatches=16")
    job = predict_job(replica([1, 4]), switch(2, 0, FREE), strategy)
    said = job_bottleneck(job, OPS)
    assert "its stages are unequal: worker1 computes 128 ms, workers on average 80 ms." in said


def test_a_host_that_is_too_slow_is_the_bottleneck() -> None:
    job = predict_job(replica([1, 1], launch=3), switch(2, 0, FREE), parse_strategy("ddp", 2))
    assert job.parts["compute"] == pytest.approx(4 * MS)
    assert job.parts["launch"] == pytest.approx(job.iteration_time - 4 * MS)
    assert job_bottleneck(job, OPS).startswith("Launching: the device is idle ")


def test_computing_and_communication_have_sentences() -> None:
    fast = predict_job(replica([1, 1]), switch(2, 0, FREE), parse_strategy("ddp", 2))
    assert job_bottleneck(fast, {"mm": 3.0, "add": 1.0}) == (
        "Computing: 100% of the iteration; mm takes 75% of the ops' time."
    )
    slow = Link(bandwidth=1.0, latency=1.0, pipelined=False)
    apart = predict_job(replica([1, 1]), switch(2, 0, slow), parse_strategy("pp=2, microbatches=1"))
    assert job_bottleneck(apart, OPS).startswith("Communication: workers compute nothing for ")


def test_the_ideal_is_one_worker_with_the_same_micro_batches() -> None:
    layers = replica([1, 1], optimizer=2)
    assert ideal_throughput(layers, parse_strategy("dp=4, pp=2")) == pytest.approx(4 / (6 * MS))
    accumulated = parse_strategy("dp=4, microbatches=3")
    assert ideal_throughput(layers, accumulated) == pytest.approx(12 / (14 * MS))
    shares = parse_strategy("dp=2, shares=1+3", 2)  # 6 ms for 4 examples, 14 ms for 12
    assert ideal_throughput(layers, shares) == pytest.approx(16 / (20 * MS))


@pytest.mark.parametrize(("text", "workers", "update"), [("zero1", 4, 0.5), ("fsdp", 8, 0.25)])
def test_the_ideal_updates_what_a_worker_has_to(text: str, workers: int, update: float) -> None:
    """4 ms of passes, and of the 2 ms of the optimizer a worker's share; servers have all of it."""
    layers = replica([1, 1], optimizer=2)
    sharded = ideal_throughput(layers, parse_strategy(text, workers))
    assert sharded == pytest.approx(4 / ((4 + update) * MS))
    assert ideal_throughput(layers, parse_strategy("ps", 4)) == pytest.approx(4 / (4 * MS))


def test_the_interval_moves_what_is_computed_and_not_the_links() -> None:
    link = Link(latency=1 * MS)
    job = predict_job(
        replica([1, 1]), switch(2, 0, link), parse_strategy("pp=2"), relative=(0.5, 2.0)
    )
    assert job.iteration_time == pytest.approx(6 * MS)
    assert job.interval == (pytest.approx(4 * MS), pytest.approx(10 * MS))


def test_spread_makes_ranks_wait_for_the_slowest() -> None:
    cluster = switch(64, 0, FREE)
    even = predict_job(replica([1, 1]), cluster, parse_strategy("fsdp", 64))
    uneven = predict_job(replica([1, 1]), cluster, parse_strategy("fsdp", 64), duration_cv=0.2)
    again = predict_job(replica([1, 1]), cluster, parse_strategy("fsdp", 64), duration_cv=0.2)
    assert even.iteration_time < uneven.iteration_time < 2 * even.iteration_time
    assert uneven.iteration_time == again.iteration_time


def test_a_sweep_begins_with_one_replica_that_shares_with_nobody() -> None:
    found = strategies_by_workers("fsdp, prefetch=2", (1, 2, 8))
    assert [(number, str(strategy)) for number, strategy in found] == [
        (1, "single"),
        (2, "dp=2, zero=3, prefetch=2"),
        (8, "dp=8, zero=3, prefetch=2"),
    ]
    found = strategies_by_workers("zero1, tp=2, microbatches=4", (2, 8))
    assert [str(strategy) for _, strategy in found] == [
        "tp=2, microbatches=4",
        "dp=4, tp=2, microbatches=4, zero=1",
    ]


def test_one_number_of_workers_is_taken_at_its_word() -> None:
    with pytest.raises(InputError, match="zero=3 has no effect with dp=1"):
        strategies_by_workers("fsdp", (1,))
    with pytest.raises(InputError, match="dp=4"):
        strategies_by_workers("dp=4", (1, 4))
    ((workers, strategy),) = strategies_by_workers("dp=2, tp=4", None)
    assert (workers, strategy.data, strategy.tensor) == (8, 2, 4)


def test_servers_are_said_once() -> None:
    ((_, strategy),) = strategies_by_workers("ps", (4,), servers=3)
    assert strategy.servers == 3
    with pytest.raises(InputError, match="the strategy sets them already"):
        strategies_by_workers("ps, servers=2", (4,), servers=3)


def test_asynchronous_workers_are_counted_by_the_iteration() -> None:
    ((_, strategy),) = strategies_by_workers("ps-async, iterations=4", (2,))
    cluster = star(2, 1, FREE)
    job = predict_job(replica([1, 1]), cluster, strategy, ideal=4 / (4 * MS))
    assert job.examples == 8
    assert job.iteration_time == pytest.approx(4 * MS)
    assert job.efficiency == pytest.approx(1)
    servers = [equal_rank for equal_rank in job.equal_ranks if not equal_rank.is_worker]
    assert [server.label for server in servers] == ["server0"]
    ((_, usual),) = strategies_by_workers("ps-async", (2,))
    assert usual.iterations > 1


def test_servers_that_differ_by_a_byte_are_alike() -> None:
    # 40,000 bytes of gradients between three servers: one has a byte more.
    strategy = parse_strategy("ps, dp=2, servers=3, first_bucket=1TB")
    job = predict_job(replica([1] * 40), star(2, 3, Link(bandwidth=1e9)), strategy)
    assert [(equal_rank.label, len(equal_rank.ranks)) for equal_rank in job.equal_ranks] == [
        ("worker0", 2),
        ("server0", 3),
    ]
    assert job.equal_ranks[1].peak_memory == 2 * 13334  # parameters and a sum of gradients


def test_the_busiest_server_is_named() -> None:
    ((_, strategy),) = strategies_by_workers("ps", (8,))
    slow = Link(bandwidth=1e6, latency=1e-6)
    job = predict_job(replica([1, 1]), star(8, 1, slow), strategy)
    said = job_bottleneck(job, OPS)
    assert "server0 does nothing but send and receive for" in said
    assert said.startswith("Communication: ")


def test_a_server_that_is_busy_with_updates_is_named() -> None:
    ((_, strategy),) = strategies_by_workers("ps", (8,))
    fast = Link(bandwidth=1e9)
    job = predict_job(replica([1, 1], optimizer=96), star(8, 1, fast), strategy)
    # Two passes of 2 ms, a message of 2,000 bytes there and back, and 96 ms of an update.
    assert job_bottleneck(job, OPS) == (
        "Waiting: workers wait 96% of the iteration for the servers. server0 does updates for 96% "
        "of it."
    )


@pytest.mark.parametrize("launch", [0.0, 0.3])
@pytest.mark.parametrize(
    "text",
    [
        "ddp",
        "fsdp",
        "zero1",
        "ddp, microbatches=3",
        "pp=2, microbatches=4",
        "pp=4, microbatches=8, schedule=gpipe",
        "interleaved, pp=2, microbatches=4",
        "recompute, pp=2, microbatches=4",
        "ps",
        "ps-async",
    ],
)
def test_the_parts_of_every_rank_add_up_whatever_the_strategy(text: str, launch: float) -> None:
    ((_, strategy),) = strategies_by_workers(text, (8,))
    speeds = [1.0, 1.5, 0.7] * 2 + [1.0] * 2
    link = Link(bandwidth=1e6, latency=1e-4)
    cluster = star(8, 1, link, speeds) if strategy.servers else switch(8, 0, link, speeds)
    job = predict_job(replica([1, 2, 1, 3], optimizer=1, launch=launch), cluster, strategy)
    whole = round(job.schedule.makespan * 1e12)
    for rank in range(job.schedule.job.ranks):
        parts = rank_breakdown(job.schedule, rank, pipelined=strategy.pipeline > 1)
        assert min(parts.values()) >= 0
        assert sum(round(time * 1e12) for time in parts.values()) == whole
    assert sum(job.parts.values()) == pytest.approx(job.iteration_time)
    assert sum(len(equal_rank.ranks) for equal_rank in job.equal_ranks) == job.schedule.job.ranks
