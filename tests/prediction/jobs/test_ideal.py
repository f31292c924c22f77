"""No job makes more than its workers would if they never waited."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import assume, example, given
from hypothesis import strategies as st

from paracosm.cluster import Link, switch
from paracosm.errors import InputError
from paracosm.graphs import Node, Op, build_graph
from paracosm.jobs.strategies import Replica, parse_strategy
from paracosm.jobs.strategies.work import Interference
from paracosm.prediction.job import ideal_throughput, predict_job

MB = 1_000_000
LAYERS = 4
TEXTS = (
    *("dp=4", "zero1", "zero2, microbatches=2", "fsdp", "fsdp, microbatches=3", "dp=2, tp=2"),
    *("dp=4, shares=1+2+3+5", "zero1, shares=1+2+3+5", "zero=1, shard=2"),
    *("pp=4, microbatches=4", "pp=2, schedule=zero-bubble, microbatches=5"),
    *("pp=2, schedule=interleaved, chunks=2, microbatches=4", "pp=2, zero=3, microbatches=4"),
    *("pp=2, schedule=gpipe, microbatches=3, recompute=yes", "pp=2, offload=5MB/s, microbatches=4"),
    *("ps", "ps, servers=2, microbatches=2", "ps-async"),
)


def trained(times: list[float], update: float) -> tuple[list[Node], list[float]]:
    """Return forward, backward and the optimizer's step of layers, with 4 MB of gradients each."""
    nodes, seconds = [], []
    for layer, time in enumerate(times):
        before = (layer - 1,) if layer else ()
        held = ((3 * MB, 2 * len(times) - 1 - layer),)
        op = Op("layer", bytes_written=MB)
        nodes.append(Node(layer, op, f"h.{layer}", "forward", dependencies=before, allocates=held))
        seconds.append(time)
    for layer in reversed(range(len(times))):
        number, held = len(nodes), ((4 * MB, -1),)
        before = (number - 1, layer)
        nodes.append(
            Node(number, op, f"h.{layer}", "backward", dependencies=before, allocates=held)
        )
        seconds.append(2 * times[layer])
    for layer in range(len(times)):
        nodes.append(Node(len(nodes), op, f"h.{layer}", "optimizer"))
        seconds.append(update)
    return nodes, seconds


@given(
    text=st.sampled_from(TEXTS),
    times=st.lists(st.sampled_from([0.1, 1.0, 5.0]), min_size=LAYERS, max_size=LAYERS),
    factors=st.lists(st.sampled_from([0.1, 1.0, 10.0]), min_size=3 * LAYERS, max_size=3 * LAYERS),
    update=st.sampled_from([0.0, 1.0, 9.0]),
    launch=st.sampled_from([0.0, 0.3, 3.0]),
    slowdown=st.sampled_from([1.0, 1.189]),
    bandwidth=st.sampled_from([1.0 * MB, 50.0 * MB, float("inf")]),
    speeds=st.lists(st.sampled_from([0.5, 1.0, 3.0]), min_size=4, max_size=4),
    others=st.lists(st.booleans(), min_size=4, max_size=4),
)
@example(  # 9 s of the optimizer are shared by four
    "zero1", [1.0] * 4, [1.0] * 12, 9.0, 0.0, 1.189, float("inf"), [1.0] * 4, [False] * 4
)
@example(  # each device has the layers that it is ten times faster at than the other one
    *("pp=2, schedule=gpipe, microbatches=3, recompute=yes", [1.0] * 4),
    *([10.0, 10.0, 0.1, 0.1, 0.1, 0.1, 10.0, 10.0, 1.0, 1.0, 1.0, 1.0], 0.0, 0.0, 1.0),
    *(float("inf"), [1.0] * 4, [False, False, True, True]),
)
def test_throughput_is_never_above_the_ideal(
    text: str,
    times: list[float],
    factors: list[float],
    update: float,
    launch: float,
    slowdown: float,
    bandwidth: float,
    speeds: list[float],
    others: list[bool],
) -> None:
    nodes, seconds = trained(times, update)
    own = np.array(seconds)
    replica = Replica(
        build_graph(nodes, provenance={"examples": 4}),
        own,
        asynchronous=launch > 0,
        launch=launch,
        interference=Interference(slowdown=slowdown),
        durations_by_device={"other": own * np.array(factors)},
    )
    try:
        strategy = parse_strategy(text, 4)
    except InputError:
        assume(False)
    cluster = switch(4, strategy.servers, Link(bandwidth=bandwidth))
    workers = [
        replace(node, speed=speed, device="other" if other else None)
        for node, speed, other in zip(cluster.nodes[:4], speeds, others, strict=True)
    ]
    cluster = replace(cluster, nodes=(*workers, *cluster.nodes[4:]))
    job = predict_job(replica, cluster, strategy, ideal=ideal_throughput(replica, strategy))
    assert job.efficiency is not None
    assert 0 < job.efficiency <= 1


def test_workers_that_share_nothing_reach_it() -> None:
    nodes, seconds = trained([1.0, 2.0], 0.5)
    replica = Replica(build_graph(nodes, provenance={"examples": 4}), np.array(seconds))
    strategy = parse_strategy("dp=4")
    job = predict_job(
        *(replica, switch(4, 0, Link()), strategy), ideal=ideal_throughput(replica, strategy)
    )
    assert job.ideal == 4 * 4 / 10  # forward 3 s, backward 6 s, optimizer 1 s
    assert job.efficiency == 1
