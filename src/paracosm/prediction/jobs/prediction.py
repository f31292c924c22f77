"""One iteration of a job on a cluster: built, replayed, and looked at rank by rank."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from paracosm.cluster import Cluster, switch
from paracosm.cluster.changes import Change
from paracosm.cluster.link import Link
from paracosm.errors import InputError
from paracosm.jobs.strategies import Replica, Strategy, build_job, parse_strategy
from paracosm.prediction.jobs.rank_times import PARTS, rank_breakdown
from paracosm.simulation import JobSchedule, replay_job
from paracosm.simulation.job_schedule import memory_over_time
from paracosm.units import format_size

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class AlikeRanks:
    """Ranks that spend their time alike, and hold as much, but for what a table does not show."""

    ranks: tuple[int, ...]
    label: str  # the name of the first
    parts: Mapping[str, float]  # seconds of an iteration by `PARTS`; they add up to the iteration
    peak_memory: int | None  # the most bytes that any of them holds; None where nobody knows
    is_worker: bool  # or a parameter server


@dataclass(frozen=True, eq=False)
class JobPrediction:
    """One iteration of a job."""

    workers: int  # their number
    strategy: Strategy
    cluster: Cluster
    schedule: JobSchedule  # when everything runs; of several iterations where they overlap
    iteration_time: float  # seconds
    interval: tuple[float, float]  # seconds between which it is thought to lie
    examples: int | None  # of one iteration; None where the graph does not say
    ideal: float | None  # examples/s of as many workers that never wait and communicate for nothing
    alike: tuple[AlikeRanks, ...]  # all ranks, those that spend their time alike together

    @property
    def throughput(self) -> float | None:
        """Examples/s; None where the graph does not say how many an iteration has."""
        if self.examples is None or self.iteration_time == 0:
            return None
        return self.examples / self.iteration_time

    @property
    def efficiency(self) -> float | None:
        return self.throughput / self.ideal if self.throughput and self.ideal else None

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of an iteration by `PARTS`, in the mean over the workers."""
        workers = [each for each in self.alike if each.is_worker]
        return {
            part: sum(len(each.ranks) * each.parts[part] for each in workers) / self.workers
            for part in PARTS
        }

    @property
    def peak_memory(self) -> int | None:
        known = [each.peak_memory for each in self.alike if each.peak_memory is not None]
        return max(known, default=None)


def predict_job(
    replica: Replica,
    cluster: Cluster,
    strategy: Strategy,
    *,
    relative: tuple[float, float] = (1.0, 1.0),
    duration_cv: float = 0.0,
    seed: int = 0,
    ideal: float | None = None,
    changes: Sequence[Change] = (),
) -> JobPrediction:
    """Predict one iteration of a job in which all workers of a cluster take part.

    Args:
        replica: what one replica runs, with durations at speed 1.
        relative: the ends of the interval of all the replica's durations, over the durations.
        duration_cv: coefficient of variation of each task of a rank's own.
        seed: of what is drawn.
        ideal: examples/s of one worker of speed 1 that never waits; see `ideal_throughput`.
        changes: of collectives and messages between workers.

    Raises:
        InputError: the strategy does not fit the graph or the cluster; a change that has no effect.
    """
    job = build_job(replica, cluster, strategy, changes)
    schedule = replay_job(job, duration_cv=duration_cv, seed=seed)
    iterations = strategy.iterations
    ends = []
    for factor in relative:
        moved = replace(replica, duration=replica.duration * factor)
        moved_job = build_job(moved, cluster, strategy, changes)
        ends.append(replay_job(moved_job, duration_cv=duration_cv, seed=seed).makespan / iterations)
    time = schedule.makespan / iterations
    speeds = sum(cluster.node(worker).speed for worker in cluster.workers)
    return JobPrediction(
        workers=len(cluster.workers),
        strategy=strategy,
        cluster=cluster,
        schedule=schedule,
        iteration_time=time,
        interval=(min(ends[0], time), max(ends[1], time)),
        examples=None if job.examples is None else job.examples // iterations,
        ideal=None if ideal is None else ideal * speeds,
        alike=_alike(schedule, len(cluster.workers), strategy.pipeline > 1, iterations),
    )


def ideal_throughput(replica: Replica, strategy: Strategy) -> float | None:
    """Return the examples/s of one worker of speed 1 that never waits for others.

    It works on one replica's share of an iteration, with the micro-batches of the strategy.
    Workers that split layers between them do so over links that cost nothing.
    """
    alone = replace(
        one_replica(strategy),
        pipeline=1,
        schedule="1f1b",
        chunks=1,
        cut=(),
        servers=0,
        asynchronous=False,
        iterations=1,
    )
    job = build_job(replica, switch(strategy.tensor, 0, Link()), alone)
    time = replay_job(job).makespan
    return None if job.examples is None or time == 0 else job.examples / time / strategy.tensor


def _alike(
    schedule: JobSchedule, workers: int, pipelined: bool, iterations: int
) -> tuple[AlikeRanks, ...]:
    """Return the classes of ranks, those of about equal numbers as one, in the order of ranks.

    Equal to a ten-thousandth of the iteration, and to four digits of the memory: servers that
    divide bytes between them hold one more or less.
    """
    members: dict[tuple[object, ...], list[int]] = {}
    found: dict[tuple[object, ...], dict[str, float]] = {}
    peaks: dict[tuple[object, ...], list[int | None]] = {}
    programs = schedule.job.programs
    knows_memory = any(each.resident or each.allocated.any() for each in programs)
    for number, first in enumerate(schedule.representative.tolist()):
        ranks = np.flatnonzero(schedule.class_of == number).tolist()
        parts = rank_breakdown(schedule, first, pipelined=pipelined)
        peak = int(memory_over_time(schedule, first)[1].max()) if knows_memory else None
        held = None if peak is None else format_size(peak)
        about = (f"{time / (schedule.makespan or 1.0):.4f}" for time in parts.values())
        key = (first < workers, held, *about)
        found.setdefault(key, {part: time / iterations for part, time in parts.items()})
        peaks.setdefault(key, []).append(peak)
        members.setdefault(key, []).extend(ranks)
    ordered = sorted(members, key=lambda key: min(members[key]))
    return tuple(
        AlikeRanks(
            ranks=tuple(sorted(members[key])),
            label=schedule.job.labels[min(members[key])],
            parts=found[key],
            peak_memory=max((peak for peak in peaks[key] if peak is not None), default=None),
            is_worker=bool(key[0]),
        )
        for key in ordered
    )


ITERATIONS = 8
"""That workers go through where servers do not keep them together, and the text says nothing."""

BETWEEN_REPLICAS = ("sharding", "bucket", "first_bucket", "all_reduce", "prefetch")
"""What has no effect where there is one replica only."""


def strategies_by_workers(
    text: str,
    workers: Sequence[int] | None,
    servers: int | None = None,
    held: int | None = None,
) -> list[tuple[int, Strategy]]:
    """Return numbers of workers, each with the strategy that a text means for it.

    In a sweep from one replica on, that replica has nobody to share with: what concerns sharing is
    left out for it. `held` is how many servers the cluster has, where nobody says how many.
    """
    if workers is None:
        strategy = _read(text, None, servers, held)
        return [(strategy.ranks, strategy)]
    largest = _read(text, workers[-1], servers, held)
    alone = largest.tensor * largest.pipeline
    found = []
    for number in workers:
        if number == alone and largest.data > 1 and not _says(text, "dp"):
            found.append((number, one_replica(largest)))
        else:
            found.append((number, _read(text, number, servers, held)))
    return found


def one_replica(strategy: Strategy) -> Strategy:
    usual = {each.name: each.default for each in fields(Strategy)}
    left_out: dict[str, Any] = {name: usual[name] for name in BETWEEN_REPLICAS}
    return replace(strategy, data=1, **left_out)


def _read(text: str, workers: int | None, servers: int | None, held: int | None) -> Strategy:
    strategy = parse_strategy(text, workers)
    if strategy.servers and servers is None and held and not _says(text, "servers"):
        servers = held
    if servers is not None:
        if not strategy.servers:
            raise InputError(f'servers: no effect here, leave out: strategy "{text}" has none')
        if _says(text, "servers"):
            raise InputError("servers: the strategy says it already: leave out one of them")
        strategy = replace(strategy, servers=servers)
    if strategy.asynchronous and not _says(text, "iterations"):
        strategy = replace(strategy, iterations=ITERATIONS)
    return strategy


def _says(text: str, key: str) -> bool:
    return re.search(rf"(^|,)\s*{key}\s*=", text) is not None
