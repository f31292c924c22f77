"""Computing beside collectives: slower while both are under way, and at no other time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from four_ops import MB, SLOW, layers, spans, two_layers
from hypothesis import given
from hypothesis import strategies as st

from paracosm.cluster.cluster import Cluster, switch
from paracosm.cluster.link import Link
from paracosm.errors import InputError
from paracosm.graphs.graph import RESOURCES
from paracosm.graphs.transformer import architecture, transformer_graph
from paracosm.jobs.expand import PICOSECOND
from paracosm.jobs.strategies import build_job, parse_strategy
from paracosm.jobs.strategies.work import Interference, Replica
from paracosm.simulation.interference import _united
from paracosm.simulation.replay import replay_job
from paracosm.simulation.static import JobSchedule

COMMUNICATES = RESOURCES.index("communication")


def scheduled(
    replica: Replica, text: str, cluster: Cluster, slowdown: float, *, fold: bool = True
) -> JobSchedule:
    slowed = replace(replica, interference=Interference(slowdown=slowdown))
    strategy = parse_strategy(text, len(cluster.workers))
    return replay_job(build_job(slowed, cluster, strategy), fold=fold)


def switched(speeds: Sequence[float], bandwidth: float = 1.0 * MB) -> Cluster:
    """Return workers of these speeds behind one switch."""
    cluster = switch(len(speeds), 0, Link(bandwidth=bandwidth))
    nodes = [replace(node, speed=v) for node, v in zip(cluster.nodes, speeds, strict=True)]
    return replace(cluster, nodes=tuple(nodes))


def test_a_long_collective_slows_what_computes_beside_it_and_no_more() -> None:
    """Gradients of 400 MB take 400 s. Beside the first reduction 2 s of work take 2.5 s; what it
    costs is half a second, not a fifth of 400 s, and nothing computes beside the second one."""
    schedule = scheduled(two_layers(gradient=400 * MB), "dp=2", switch(2, 0, SLOW), 1.25)
    assert spans(schedule, 0, "compute") == [
        ("layer", 0, 1),
        ("layer", 1, 2),
        ("layer", 2, 4),
        ("layer", 4, 6.5),
    ]
    assert schedule.makespan == pytest.approx(4 + 400 + 400)


def test_a_task_is_slowed_for_the_part_of_it_that_a_collective_lasts() -> None:
    """4 s of a reduction in 8 s of work: 3.2 s of work get done meanwhile, the rest at full speed.

    Layer 0 ends at 10 + 4 + 4.8, and its own reduction and nothing else follows.
    """
    schedule = scheduled(two_layers(backward=8), "dp=2", switch(2, 0, SLOW), 1.25)
    assert spans(schedule, 1, "compute")[-1] == ("layer", 10, pytest.approx(18.8))
    assert schedule.makespan == pytest.approx(22.8)


def test_waiting_for_others_slows_nothing() -> None:
    """A rank of speed 1/2 comes at 8 where the other one is done at 4: what the faster one computes
    from 4 to 6 is beside a collective that has not begun; the other's 4 s from 8 on are not."""
    schedule = scheduled(two_layers(), "dp=2", switched([1.0, 0.5]), 2.0)
    assert spans(schedule, 0, "communication")[0] == ("all-reduce 0", 8, 12)
    assert spans(schedule, 0, "compute")[-1] == ("layer", 4, 6)
    # 8 to 12 at half speed: 2 s of its work are done; the second reduction waits for the other 2.
    assert spans(schedule, 1, "compute")[-1] == ("layer", 8, 14)


def test_products_are_slowed_beside_the_collectives_that_they_overlap() -> None:
    """Ranks that share layers gather and sum beside the products that take and make it: these are
    slower by what lasts beside them. Without it only gradients of weights compute meanwhile."""
    model = replace(architecture("llama-8b"), layers=1, sequence=64, width=64, heads=8, kv_heads=8)

    def makespan(text: str, slowdown: float) -> float:
        strategy = parse_strategy(text, 2)
        graph = transformer_graph(model, 1, strategy.split())
        replica = Replica(graph, np.where(graph.resource == COMMUNICATES, 0.0, 1.0))
        slowed = replace(replica, interference=Interference(slowdown=slowdown))
        return float(replay_job(build_job(slowed, switch(2, 0, SLOW), strategy)).makespan)

    plain, overlapped = "tp=2, sp=yes", "tp=2, sp=yes, async_tp=yes"
    lost = {text: makespan(text, 1.25) - makespan(text, 1.0) for text in (plain, overlapped)}
    assert 0 < lost[plain] < lost[overlapped] < 0.25 * makespan(overlapped, 1.0)


def test_spans_that_overlap_count_once() -> None:
    begin, end = np.array([5.0, 0.0, 1.0, 8.0, 9.0]), np.array([6.0, 3.0, 2.0, 9.0, 10.0])
    starts, stops = _united(begin, end)
    assert (starts * PICOSECOND).tolist() == pytest.approx([0.0, 5.0, 8.0])
    assert (stops * PICOSECOND).tolist() == pytest.approx([3.0, 6.0, 10.0])


TEXTS = (
    *("dp=4", "zero1", "zero2, microbatches=3", "fsdp, prefetch=2", "fsdp, microbatches=2"),
    *("dp=2, pp=2, microbatches=4", "dp=2, pp=2, zero=3, microbatches=4"),
)


@given(
    count=st.integers(1, 5),
    forward=st.sampled_from([0.1, 1.0, 3.0]),
    backward=st.sampled_from([0.1, 2.0, 7.0]),
    update=st.sampled_from([0.0, 0.5]),
    gradient=st.sampled_from([1, 4, 90]),
    slowdown=st.sampled_from([1.0, 1.189, 1.5, 4.0]),
    text=st.sampled_from(TEXTS),
    bandwidth=st.sampled_from([1.0, 20.0]),
    speeds=st.lists(st.sampled_from([0.5, 1.0, 2.0]), min_size=4, max_size=4),
)
def test_computing_loses_its_share_of_the_time_in_which_both_are_under_way(
    count: int,
    forward: float,
    backward: float,
    update: float,
    gradient: int,
    slowdown: float,
    text: str,
    bandwidth: float,
    speeds: list[float],
) -> None:
    replica = layers(
        max(count, 2) if "pp=2" in text else count, forward, backward, update, gradient * MB
    )
    cluster = switched(speeds, bandwidth * MB)
    schedule = scheduled(replica, text, cluster, slowdown)
    alone = scheduled(replica, text, cluster, 1.0)
    for rank in range(4):
        before, after = spans(alone, rank, "compute"), spans(schedule, rank, "compute")
        under_way = spans(schedule, rank, "communication")
        for (name, first, last), (same, begin, end) in zip(before, after, strict=True):
            both = sum(max(min(end, stop) - max(begin, go), 0) for _, go, stop in under_way)
            work = last - first
            assert name == same
            assert end - begin - work == pytest.approx((1 - 1 / slowdown) * both, abs=1e-6)
            assert work - 1e-9 <= end - begin <= slowdown * work + 1e-9
    every = scheduled(replica, text, cluster, slowdown, fold=False)
    assert every.makespan == schedule.makespan
    assert np.array_equal(every.end[every.tasks_of(3)], schedule.end[schedule.tasks_of(3)])


def test_a_slowdown_is_one_or_more() -> None:
    job = build_job(two_layers(), switch(2, 0, SLOW), parse_strategy("dp=2"))
    with pytest.raises(InputError, match=r"beside collectives is 0\.5: 1 or more"):
        replay_job(replace(job, slowdown=0.5))
