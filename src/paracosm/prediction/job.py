"""One iteration of a job on a cluster: built, replayed, and analysed rank by rank."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from paracosm.cluster import Cluster, switch
from paracosm.cluster.changes import Change
from paracosm.cluster.link import Link
from paracosm.errors import InputError
from paracosm.graphs import Graph
from paracosm.graphs.graph import PHASES
from paracosm.jobs.strategies.build import build_job
from paracosm.jobs.strategies.plan import plan_of
from paracosm.jobs.strategies.strategy import Strategy, parse_strategy
from paracosm.jobs.strategies.work import NO_INTERFERENCE, Replica
from paracosm.network.clock import PICOSECONDS
from paracosm.prediction.iteration import err_alone
from paracosm.results.summaries import DeviceMemory
from paracosm.simulation.breakdown import PARTS, causes_of, parts_of
from paracosm.simulation.memory import memory_over_time
from paracosm.simulation.replay import replay_job
from paracosm.simulation.static import JobSchedule
from paracosm.units import format_size

if TYPE_CHECKING:
    from paracosm.profiling.estimators.roofline import Estimate


@dataclass(frozen=True)
class EqualRanks:
    """Ranks with the same breakdown and memory, at the precision of a table."""

    ranks: tuple[int, ...]
    label: str  # the name of the first
    parts: Mapping[str, float]  # seconds of an iteration by `PARTS`; they add up to the iteration
    peak_memory: int | None  # the most bytes that any of them holds; None if unknown
    is_worker: bool  # or a parameter server


@dataclass(frozen=True, eq=False)
class JobPrediction:
    """One iteration of a job."""

    workers: int  # their number
    strategy: Strategy
    cluster: Cluster
    schedule: JobSchedule  # when everything runs; of several iterations where they overlap
    iteration_time: float  # seconds
    interval: tuple[float, float]  # bounds of the 90 % interval, seconds
    examples: int | None  # of one iteration; None where the graph does not say
    ideal: float | None  # examples/s of the same number of workers that never wait
    equal_ranks: tuple[EqualRanks, ...]  # all ranks, grouped by equal breakdowns
    causes: Mapping[str, float]  # seconds of an iteration by cause, averaged over the workers
    memory: DeviceMemory | None = None  # of the fullest rank, where its device is known

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
        """Seconds of an iteration by `PARTS`, averaged over the workers."""
        workers = [equal_rank for equal_rank in self.equal_ranks if equal_rank.is_worker]
        return {
            part: sum(len(worker.ranks) * worker.parts[part] for worker in workers) / self.workers
            for part in PARTS
        }

    @property
    def peak_memory(self) -> int | None:
        known = [
            equal_rank.peak_memory
            for equal_rank in self.equal_ranks
            if equal_rank.peak_memory is not None
        ]
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
        replica: the graph of one replica with durations at speed 1, by device where they differ.
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
    time = schedule.makespan / iterations
    ends = []
    for factor in relative:
        if factor == 1.0:
            ends.append(time)
            continue
        moved_job = build_job(replica.times(factor), cluster, strategy, changes)
        ends.append(replay_job(moved_job, duration_cv=duration_cv, seed=seed).makespan / iterations)
    causes = [
        causes_of(schedule, rank, pipelined=strategy.pipeline > 1)
        for rank in schedule.representative.tolist()
    ]
    of_device = {} if ideal is None else _relative_rates(replica, strategy)
    nodes = cluster.nodes[: len(cluster.workers)]
    usual = of_device.get("", 1.0)
    speeds = sum(node.speed * of_device.get(node.device or "", usual) for node in nodes)
    total = None if ideal is None else ideal * speeds
    reached = 0.0 if job.examples is None or not time else job.examples / iterations / time
    if total is not None:
        # Instants are whole picoseconds, and durations may be drawn: nothing is beyond ideal.
        total = max(total, reached)
    return JobPrediction(
        workers=len(cluster.workers),
        strategy=strategy,
        cluster=cluster,
        schedule=schedule,
        iteration_time=time,
        interval=(min(ends[0], time), max(ends[1], time)),
        examples=None if job.examples is None else job.examples // iterations,
        ideal=total,
        equal_ranks=_equal_ranks(schedule, causes, len(cluster.workers), iterations),
        causes=_of_workers(schedule, causes, len(cluster.workers), iterations),
    )


def relative_interval(
    graph: Graph, durations: Sequence[Estimate | None], common: float, strategy: Strategy
) -> tuple[float, float]:
    """Return the ends of the 90 % interval of a rank's durations, over the durations.

    What errs together is as in `iteration.predict`; here ops follow each other, an update is one of
    all micro-batches, and of as many parameters as a rank updates.

    Args:
        graph: of one micro-batch, as one of the ranks that share layers has it.
        durations: of its ops; None for what takes no time.
        common: relative error of all of them.
        strategy: of the job.
    """
    counts = graph.count().astype(np.float64)
    updates = np.unique(graph.op[graph.phase == PHASES.index("optimizer")])
    ranks = 1 if strategy.sharding == "none" else strategy.sharing()[1]
    counts[updates] /= strategy.microbatches * ranks
    total = 0.0
    below: dict[object, float] = {}
    above: dict[object, float] = {}
    for code, duration in enumerate(durations):
        if duration is None:
            continue
        part = code if err_alone(duration.source) else graph.ops[code].name
        total += counts[code] * duration.duration
        below[part] = below.get(part, 0.0) + counts[code] * (duration.duration - duration.low)
        above[part] = above.get(part, 0.0) + counts[code] * (duration.high - duration.duration)
    if not total:
        return 1.0, 1.0
    low, high = (
        math.hypot(common, *(seconds / total for seconds in ends.values()))
        for ends in (below, above)
    )
    return max(1 - low, 0.0), 1 + high


def ideal_throughput(replica: Replica, strategy: Strategy) -> float | None:
    """Return the examples/s of one worker of speed 1 that never waits for others.

    It works on one replica's share of an iteration, with the micro-batches of the strategy, and
    does its share of the optimizer's step: a part of it where the optimizer's state is sharded, and
    none where servers have it. Workers that split layers between them do so over links that cost
    nothing, and copies to the host's memory take no time; the device
    updates.
    """
    alone = replace(
        one_replica(strategy),
        pipeline=1,
        schedule="1f1b",
        chunks=1,
        cut=(),
        overlap=True,
        offload=0.0,
        offload_optimizer=False,
        servers=min(strategy.servers, 1),
    )
    plan, duration = plan_of(replica, alone), replica.duration.copy()
    for row in plan.layers.optimizer_rows:
        if strategy.servers:
            duration[row] = 0.0
        elif strategy.sharding != "none":
            duration[row] /= strategy.sharing(bool(plan.of_experts[row]))[1]
    alone_replica = replace(
        replica, duration=duration, durations_by_device={}, interference=NO_INTERFERENCE
    )
    examples, time = 0, 0.0
    for share in strategy.shares or (strategy.microbatches,):
        accumulated = replace(alone, microbatches=share)
        job = build_job(alone_replica, switch(alone.ranks, alone.servers, Link()), accumulated)
        examples += job.examples or 0
        time += replay_job(job).makespan
    return examples / time / alone.ranks if examples and time else None


def _relative_rates(replica: Replica, strategy: Strategy) -> dict[str, float]:
    """Return how fast a worker with each other device is, beside one with the replica's own.

    Where stages of a pipeline have different devices, each op counts as on the device that it runs
    best on beside the others: no division of the model between them is faster.
    """
    alone = ideal_throughput(replica, strategy)
    rates = {
        name: ideal_throughput(replica.on(name), strategy) for name in replica.durations_by_device
    }
    if not alone or not rates:
        return {}
    relative = {name: (rate or 0.0) / alone for name, rate in rates.items()}
    if strategy.pipeline == 1:
        return relative
    of_device = {"": 1.0, **relative}
    durations = {"": replica.duration, **replica.durations_by_device}
    least = np.min([of_device[name] * durations[name] for name in durations], axis=0)
    apart = float(replica.duration.sum()) / float(least.sum() or 1.0)
    return {name: rate * apart for name, rate in of_device.items()}


def _equal_ranks(
    schedule: JobSchedule, causes: Sequence[Mapping[str, float]], workers: int, iterations: int
) -> tuple[EqualRanks, ...]:
    """Return the classes of ranks with equal breakdown (1e-4) and memory (four digits)."""
    groups: dict[tuple[object, ...], list[EqualRanks]] = {}
    programs = schedule.job.programs
    knows_memory = any(program.resident or len(program.holdings.row) for program in programs)
    for number, first in enumerate(schedule.representative.tolist()):
        ranks = tuple(np.flatnonzero(schedule.class_of == number).tolist())
        parts = parts_of(causes[number])
        peak = int(memory_over_time(schedule, first)[1].max()) if knows_memory else None
        held = None if peak is None else format_size(peak)
        about = (f"{time / (schedule.makespan or 1.0):.4f}" for time in parts.values())
        seconds = {part: time / iterations for part, time in parts.items()}
        one = EqualRanks(ranks, schedule.job.labels[min(ranks)], seconds, peak, first < workers)
        groups.setdefault((one.is_worker, held, *about), []).append(one)
    alike = [
        replace(
            group[0],
            ranks=tuple(sorted(rank for same_rank in group for rank in same_rank.ranks)),
            label=min(group, key=lambda each: each.ranks[0]).label,
            peak_memory=max(
                (p for same_rank in group if (p := same_rank.peak_memory) is not None), default=None
            ),
        )
        for group in groups.values()
    ]
    return tuple(sorted(alike, key=lambda each: each.ranks[0]))


def _of_workers(
    schedule: JobSchedule, causes: Sequence[Mapping[str, float]], workers: int, iterations: int
) -> dict[str, float]:
    """Return what an iteration's seconds go to, averaged over the workers."""
    total = dict[str, float]()
    counts = np.bincount(schedule.class_of[:workers], minlength=len(causes))
    for count, found in zip(counts.tolist(), causes, strict=True):
        share = count / workers / iterations / PICOSECONDS
        for cause, time in found.items() if count else ():
            name = "pipeline bubble" if cause == "bubble" else cause
            total[name] = total.get(name, 0.0) + share * time
    return total


ITERATIONS = 8  # the default where servers are asynchronous

BETWEEN_REPLICAS = (
    *("sharding", "shard", "shares", "bucket", "first_bucket"),
    *("all_reduce", "prefetch"),
)
"""Settings without effect for a single replica."""


def strategies_by_workers(
    text: str, workers: Sequence[int] | None, servers: int | None = None, held: int | None = None
) -> list[tuple[int, Strategy]]:
    """Return numbers of workers, each with the strategy that a text describes for it.

    In a sweep from one replica on, that replica has nobody to share with: what concerns sharing is
    left out for it. `held` is how many servers the cluster has, where nobody says how many.
    """
    if workers is None:
        strategy = _read(text, None, servers, held)
        return [(strategy.ranks, strategy)]
    largest = _read(text, workers[-1], servers, held)
    fewest = _fewest(largest)
    alone = largest.tensor * largest.pipeline * largest.context * fewest
    strategies = []
    for number in workers:
        if number == alone and largest.data > fewest and not _has_key(text, "dp"):
            strategies.append((number, one_replica(largest)))
        else:
            strategies.append((number, _read(text, number, servers, held)))
    return strategies


def one_replica(strategy: Strategy) -> Strategy:
    usual = {field.name: field.default for field in fields(Strategy)}
    left_out: dict[str, Any] = {name: usual[name] for name in BETWEEN_REPLICAS}
    return replace(strategy, data=_fewest(strategy), **left_out)


def _fewest(strategy: Strategy) -> int:
    """Return how many replicas there are at least: those that share experts."""
    ranks = strategy.expert * strategy.of_an_expert
    return ranks // math.gcd(ranks, strategy.context * strategy.tensor)


def _read(text: str, workers: int | None, servers: int | None, held: int | None) -> Strategy:
    strategy = parse_strategy(text, workers)
    if strategy.servers and servers is None and held and not _has_key(text, "servers"):
        servers = held
    if servers is not None:
        if not strategy.servers:
            raise InputError(f'servers: has no effect, leave it out: strategy "{text}" has none')
        if _has_key(text, "servers"):
            raise InputError("servers: the strategy sets them already: leave out one of them")
        strategy = replace(strategy, servers=servers)
    if strategy.asynchronous and not _has_key(text, "iterations"):
        strategy = replace(strategy, iterations=ITERATIONS)
    return strategy


def _has_key(text: str, key: str) -> bool:
    return re.search(rf"(^|,)\s*{key}\s*=", text) is not None
