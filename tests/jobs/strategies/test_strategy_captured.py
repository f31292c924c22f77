"""Strategies on graphs that PyTorch dispatched: counts by hand."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from four_ops import replayed

from paracosm.cluster import switch
from paracosm.graphs import Graph
from paracosm.graphs.capture import CaptureOptions, capture
from paracosm.jobs.check import check_job
from paracosm.jobs.job import KINDS, Job
from paracosm.jobs.strategies import Replica, build_job, parse_strategy
from paracosm.simulation.replay import replay, replay_job


@pytest.fixture(scope="module")
def gpt() -> Graph:
    return capture(CaptureOptions("gpt-small", batch=2, shape=(16,), optimizer="adam"))


def replica_of(graph: Graph, asynchronous: bool = False) -> Replica:
    rng = np.random.default_rng(7)
    return Replica(graph, rng.uniform(1e-6, 1e-4, len(graph)), asynchronous, 5e-6)


def collectives(job: Job, rank: int = 0) -> Counter[str]:
    program = job.programs[job.program[rank]]
    rows = np.flatnonzero(program.kind == KINDS.index("collective")).tolist()
    return Counter(job.names[program.name[row]] for row in rows)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_one_device_is_the_replay_of_the_graph(gpt: Graph, asynchronous: bool) -> None:
    replica = replica_of(gpt, asynchronous)
    expected = replay(gpt, replica.duration, asynchronous=asynchronous, launch=replica.launch)
    schedule = replayed(replica, "single")
    assert schedule.makespan == pytest.approx(expected.makespan, abs=len(gpt) * 1e-12)


@pytest.mark.parametrize("asynchronous", [False, True])
@pytest.mark.parametrize("text", ["dp=2", "zero1, dp=2", "fsdp, dp=2", "pp=2", "tp=2"])
def test_as_many_replicas_as_one_on_a_free_network_take_no_longer(
    gpt: Graph, asynchronous: bool, text: str
) -> None:
    replica = replica_of(gpt, asynchronous)
    alone = replayed(replica, "single").makespan
    assert replayed(replica, text, switch(2)).makespan <= alone * (1 + 1e-9)


def test_two_sums_a_layer_each_way(gpt: Graph) -> None:
    assert collectives(replayed(replica_of(gpt), "tp=2").job)["all-reduce"] == 4 * 6


@pytest.mark.parametrize(
    ("model", "layers"),
    [pytest.param("bert-base", 12, marks=pytest.mark.slow), ("tiny_models:llama", 2)],
)
def test_two_sums_a_layer_each_way_of_other_models(
    model: str, layers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend("tests/graphs")
    shape = (8,) if ":" not in model else None
    graph = capture(CaptureOptions(model, batch=1, shape=shape))
    assert collectives(replayed(replica_of(graph), "tp=2").job)["all-reduce"] == 4 * layers


def test_the_estimate_splits_what_a_capture_splits(gpt: Graph) -> None:
    """The sums of a captured rank of two have the sizes of the estimate, in the same order."""
    split = capture(
        CaptureOptions("gpt-small", 2, (16,), optimizer="adam", ranks=2, parallel="tensor")
    )
    sizes = []
    for graph in (gpt, split):
        job = replayed(replica_of(graph), "tp=2").job
        program = job.programs[0]
        sizes.append(program.size[program.kind == KINDS.index("collective")].tolist())
    assert sizes[0] == sizes[1]


def test_the_gradients_of_all_parameters_are_reduced_once(gpt: Graph) -> None:
    job = replayed(replica_of(gpt), "dp=4").job
    program = job.programs[0]
    assert program.size.sum() == gpt.resident["parameters"]
    # 118 MB: the first layer norms and matrix, 25 MiB of layers, the rest with the embedding.
    assert len(collectives(job)) == 3


@pytest.mark.parametrize(
    "text",
    [
        "dp=2, tp=2, pp=2, microbatches=4",
        "dp=2, pp=3, schedule=gpipe, microbatches=2, recompute=yes",
        "dp=2, pp=3, schedule=zero-bubble, microbatches=4, zero=3, recompute=selective",
        "dp=4, zero=3, shard=2, offload=1GB/s",
        "fsdp, dp=2, tp=2, pp=2, microbatches=2, recompute=yes",
        "zero1, dp=2, pp=2, schedule=interleaved, chunks=2, microbatches=4",
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True])
def test_combinations_fit_together(gpt: Graph, text: str, asynchronous: bool) -> None:
    strategy = parse_strategy(text)
    job = build_job(replica_of(gpt, asynchronous), switch(strategy.ranks), strategy)
    check_job(job)
    schedule = replay_job(job)
    assert schedule.makespan == replay_job(job, fold=False).makespan
    for program in job.programs:
        balance = program.allocated.sum() - program.released.sum()
        assert balance >= 0
