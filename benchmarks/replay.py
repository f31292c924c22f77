"""Seconds and memory of the replay of a GPT's iteration on a thousand ranks and more.

    python benchmarks/replay.py

The job is GPT-2 (124 M), captured op by op, on 1,024 ranks: 64-way data parallel, 4-way tensor
parallel, 4 pipeline stages, 1F1B with 64 micro-batches: some 20 million tasks. It runs in a process
of its own, so that its peak memory is its own; what is compared ran by turns there, medians of 5.
Event loops, beside SimPy and heapq: `benchmarks/replay_events.py`.
"""

from __future__ import annotations

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from retiming import prepare_retiming
from stored_results import store_result

from paracosm.cluster.cluster import Cluster
from paracosm.cluster.description import cluster_from_mapping
from paracosm.graphs import Graph
from paracosm.graphs.capture import CaptureOptions, capture
from paracosm.jobs.expand import expand, picoseconds
from paracosm.jobs.job import Job
from paracosm.jobs.strategies import Replica, build_job, parse_strategy
from paracosm.simulation import replay_job
from paracosm.simulation.events import replay_tasks
from paracosm.simulation.folding import contract

ROUNDS = 5
STRATEGY = "dp={data}, tp=4, pp=4, schedule=1f1b, microbatches=64"
IN_FULL = "replay of a GPT-2 iteration on 1,024 ranks, 20 million tasks, from the graph on"
FOLDED = "the same with equal ranks folded; 100,000 ranks"
SPREAD = 0.05  # of durations, where they vary


def cluster(workers: int) -> Cluster:
    """Return machines of 8 with links of 300 GB/s, 50 GB/s between them."""
    links = {
        "default": {"bandwidth": "300GB/s", "latency": "3us"},
        "between_groups": {"bandwidth": "50GB/s", "latency": "5us"},
    }
    return cluster_from_mapping(
        {
            "topology": "hierarchical",
            "workers": workers,
            "group_size": 8,
            "cards": 8,
            "links": links,
        }
    )


def replica(graph: Graph) -> Replica:
    """Return the graph with durations from its work, for a GPU of 50 TFLOP/s and 1 TB/s."""
    moved = graph.bytes_read + graph.bytes_written
    works = 2e-6 + np.maximum(graph.flops / 50e12, moved / 1e12)
    return Replica(graph, np.where(graph.resource == 0, works, 1e-6))


def job_of(source: Replica, ranks: int) -> Job:
    strategy = parse_strategy(STRATEGY.format(data=ranks // 16), ranks)
    return build_job(source, cluster(ranks), strategy)


def timed(*calls: Callable[[], Any]) -> tuple[list[float], list[Any]]:
    """Return median seconds of calls that take turns, and what they returned last.

    One turn before is not counted: Numba compiles, and memory is new.
    """
    seconds: list[list[float]] = [[] for _ in calls]
    results: list[Any] = [None] * len(calls)
    for turn in range(ROUNDS + 1):
        for number, call in enumerate(calls):
            results[number] = None
            began = time.perf_counter()
            results[number] = call()
            if turn:
                seconds[number].append(time.perf_counter() - began)
    return [statistics.median(second) for second in seconds], results


def in_full(source: Replica) -> None:
    began = time.perf_counter()
    job = job_of(source, 1024)
    print(f"{job.tasks:,} tasks; written down in {time.perf_counter() - began:.2f} s")
    (built, full), (_, schedule) = timed(
        lambda: job_of(source, 1024), lambda: replay_job(job, fold=False)
    )
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(
        f"every rank for itself: {built + full:.2f} s from the graph on, {peak / 1e9:.2f} GB "
        f"(aims 4 s, 4 GB); the makespan is {schedule.makespan:.6f} s"
    )
    store_result(IN_FULL, f"{built + full:.1f} s, {peak / 1e9:.1f} GB")
    chains = sum(len(contract(job.programs[own], len(job.lanes))) for own in job.program.tolist())
    print(f"chains: {chains:,}, {job.tasks / chains:.1f} tasks each")


def retimed(source: Replica) -> None:
    job = job_of(source, 1024)
    retiming = prepare_retiming(job)
    lengths = np.concatenate(
        [picoseconds(job.programs[own], 1.0, job.names) for own in job.program.tolist()]
    )
    (again, full), (makespan, schedule) = timed(
        lambda: retiming.makespan(lengths), lambda: replay_job(job, fold=False)
    )
    assert makespan == schedule.makespan
    print(
        f"other durations on the stored order: {job.tasks / again / 1e6:.0f} million tasks/s, "
        f"{full / again:.1f} times a full replay (aim 100 million, or 10 times)"
    )


def folded(source: Replica) -> None:
    small = job_of(source, 1024)
    full = replay_job(small, fold=False)
    (seconds,), (schedule,) = timed(lambda: replay_job(small))
    for rank in range(small.ranks):
        here, there = schedule.tasks_of(rank), full.tasks_of(rank)
        assert np.array_equal(schedule.end[here], full.end[there])
    del full
    print(
        f"1,024 ranks folded into {len(schedule.representative)}: {seconds * 1e3:.1f} ms "
        "(aim 20), equal to the bit"
    )
    large = job_of(source, 100_000)
    (longer,), (schedule,) = timed(lambda: replay_job(large))
    print(f"100,000 ranks, {large.tasks:,} tasks: {longer:.2f} s (aim: seconds)")
    store_result(FOLDED, f"{seconds * 1e3:.0f} ms; {longer:.1f} s")


def varied(source: Replica) -> None:
    job = job_of(source, 256)
    drawn = [
        replay_job(job, fold=False, duration_cv=SPREAD, seed=seed).makespan
        for seed in range(ROUNDS)
    ]
    mean = statistics.mean(drawn)
    plain, corrected = replay_job(job).makespan, replay_job(job, duration_cv=SPREAD).makespan
    print(
        f"256 ranks, {SPREAD:.0%} spread of an op, beside the mean of {ROUNDS} replays with drawn "
        f"durations: folded {plain / mean - 1:+.2%}, with the extreme-value term "
        f"{corrected / mean - 1:+.2%} (replays scatter by {statistics.stdev(drawn) / mean:.2%})"
    )


def by_events(source: Replica) -> None:
    job = job_of(source, 64)
    tasks = expand(job)
    (path, events), (schedule, times) = timed(
        lambda: replay_job(job, fold=False), lambda: replay_tasks(tasks)
    )
    assert np.array_equal(np.rint(schedule.end * 1e12), times.end)
    print(
        f"64 ranks, {len(tasks):,} tasks: longest path {path * 1e3:.0f} ms, event loop "
        f"{events * 1e3:.0f} ms without writing tasks out: {events / path:.1f} times, same instants"
    )


PARTS = {each.__name__: each for each in (in_full, retimed, folded, varied, by_events)}


def main() -> None:
    if len(sys.argv) > 1:
        source = replica(capture(CaptureOptions(model="gpt2", batch=1, optimizer="adamw")))
        PARTS[sys.argv[1]](source)
        return
    for part in PARTS:
        subprocess.run([sys.executable, __file__, part], check=True)


if __name__ == "__main__":
    main()
