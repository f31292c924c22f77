"""What holds for every combination: work is conserved, memory is given back, ranks agree."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from four_ops import MB, SLOW, layers
from hypothesis import given, settings
from hypothesis import strategies as st

from paracosm.cluster.cluster import Cluster, hierarchical, switch
from paracosm.jobs.job import STEPS
from paracosm.jobs.strategies.build import build_job
from paracosm.jobs.strategies.strategy import SCHEDULES, SHARDINGS, Strategy
from paracosm.jobs.strategies.work import Replica
from paracosm.simulation import replay_job
from paracosm.simulation.memory import memory_over_time


@st.composite
def strategies(draw: st.DrawFn) -> Strategy:
    data, pipeline = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    schedule = draw(st.sampled_from(SCHEDULES)) if pipeline > 1 else "1f1b"
    interleaved = schedule == "interleaved"
    strategy = Strategy(
        data=data,
        tensor=draw(st.sampled_from([1, 2])),
        pipeline=pipeline,
        schedule=schedule,
        chunks=2 if interleaved else 1,
        microbatches=draw(st.integers(1, 2)) * pipeline if interleaved else draw(st.integers(1, 4)),
        sharding=draw(st.sampled_from(SHARDINGS)) if data > 1 else "none",
        recompute=draw(st.booleans()),
        overlap=draw(st.booleans()) if pipeline > 1 else True,
    )
    if strategy.sharding == "parameters":
        return replace(strategy, prefetch=draw(st.integers(0, 3)))
    return replace(strategy, bucket=float(draw(st.integers(1, 9))) * MB) if data > 1 else strategy


def cluster_of(strategy: Strategy, each: int, first: float) -> Cluster:
    """Return as many workers in machines of `each`, or in none; the first is so fast."""
    speeds = [first, *[1.0] * (strategy.ranks - 1)]
    if each == 0:
        return switch(strategy.ranks, link=SLOW, speeds=speeds)
    fast = replace(SLOW, bandwidth=8.0 * MB)
    return hierarchical(strategy.ranks, each, fast, SLOW, speeds=speeds)


@given(
    strategy=strategies(),
    count=st.integers(6, 8),
    each=st.integers(0, 3),
    asynchronous=st.booleans(),
    first=st.sampled_from([1.0, 0.75]),
)
@settings(max_examples=60, deadline=None)
def test_laws(strategy: Strategy, count: int, each: int, asynchronous: bool, first: float) -> None:
    replica = layers(count, update=1.0)
    replica = Replica(replica.graph, replica.duration, asynchronous, 0.125 * asynchronous)
    job = build_job(replica, cluster_of(strategy, each, first), strategy)
    schedule = replay_job(job)
    assert schedule.makespan == replay_job(job, fold=False).makespan
    spent = dict.fromkeys(STEPS, 0.0)
    for rank in range(job.ranks):
        program, tasks = job.programs[job.program[rank]], schedule.tasks_of(rank)
        computes = program.lane == job.lanes.index("compute")
        own = program.duration[computes] / job.speed[rank]
        assert own.sum() <= schedule.makespan + 1e-9
        assert (np.diff(schedule.begin[tasks][computes]) >= 0).all()
        for step, seconds in zip(program.step[computes], program.duration[computes], strict=True):
            spent[STEPS[step]] += seconds
        assert (memory_over_time(schedule, rank)[1] >= program.resident).all()
    passes = strategy.data * strategy.microbatches  # split layers take 1 / t on t ranks
    assert spent["forward"] == passes * count * 1.0
    assert spent["backward"] == passes * count * 2.0
    assert spent["recompute"] == (passes * count * 1.0 if strategy.recompute else 0.0)
    updates = 1 if strategy.sharding != "none" else strategy.data
    np.testing.assert_allclose(spent["optimizer"], updates * count * 1.0)
