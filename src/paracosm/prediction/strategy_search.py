"""The fastest strategy for a transformer on so many workers, out of all that can run.

Best first: each candidate's seconds for an example are bounded from below, by what one worker
computes, how a pipeline fills, and what gradients take on the network; they are predicted in the
order of their bounds, until the next bound is above the best prediction, or `MOST` have been made.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

import numpy as np

from paracosm.cluster import Cluster
from paracosm.cluster.link import Hierarchical, Topology
from paracosm.errors import InputError
from paracosm.graphs.transformer import Transformer
from paracosm.graphs.transformer.share import Share
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.work import WITHIN, Replica
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.host_costs import find_interference
from paracosm.prediction.job import JobPrediction, predict_job
from paracosm.prediction.replica import find_replica
from paracosm.prediction.strategy_bounds import RECOMPUTED, Network, TimedSplit
from paracosm.units import format_size

MOST = 48  # strategies that are predicted for one number of workers
APART = 0.1  # share by which a strategy's batch may differ from the requested one
MOST_OF_A_SEQUENCE = 8  # ranks that share one
MICRO_BATCHES = (1, 2, 4, 8)


@dataclass(frozen=True)
class Candidate:
    """A strategy, with the examples of one of its micro-batches."""

    strategy: Strategy
    micro_batch: int

    @property
    def examples(self) -> int:
        """Of an iteration of all workers."""
        return self.micro_batch * self.strategy.microbatches_of_all


@dataclass(frozen=True, eq=False)
class Predicted:
    """A candidate that fits, as it was predicted."""

    candidate: Candidate
    iteration_time: float  # seconds
    peak_memory: int | None  # bytes of the rank that needs most
    causes: Mapping[str, float]  # seconds of an iteration by what they go to

    @property
    def per_example(self) -> float:
        return self.iteration_time / self.candidate.examples


@dataclass(frozen=True)
class TooLarge:
    """A candidate that does not fit, and the bytes that it needs at least."""

    candidate: Candidate
    needs: float


@dataclass(frozen=True, eq=False)
class Search:
    """The result of a search."""

    ranked: tuple[Predicted, ...]  # those that fit, the fastest for an example first
    candidates: int
    predicted: int
    too_large: int
    nearest: TooLarge | None  # of those that do not fit, the one that needs least
    complete: bool  # whether none of the others can be faster than the first


def search_strategies(
    model: Transformer,
    cluster: Cluster,
    examples: int,
    replicas: Callable[[Candidate], TimedSplit],
) -> Search:
    """Return the strategies of all workers of a cluster, the fastest first.

    Args:
        model: what is trained.
        cluster: whose nodes have one kind of device, and so much memory.
        examples: of an iteration; each candidate has the nearest number that it divides.
        replicas: one rank's part of the model, by how a candidate divides it.

    Raises:
        InputError: no strategy of the model can use all workers.
    """
    workers, machine = len(cluster.workers), machine_of(cluster.topology, len(cluster.workers))
    check_divisible(model, workers, machine, examples)
    found = list(candidates(model, workers, machine, examples))
    memory = min((node.memory for node in cluster.nodes if node.memory), default=None)
    network = Network(cluster)
    speed = max(node.speed for node in cluster.nodes)
    large: dict[int, TooLarge] = {}

    def entry(number: int, level: int) -> tuple[float, int, int] | None:
        """Return the bound of a candidate at the first level of recomputation that may fit."""
        for tried in range(level, len(RECOMPUTED)):
            each = _recomputing(found[number], RECOMPUTED[tried])
            split = replicas(each)
            needs = split.least_memory(each.strategy)
            if memory is None or needs <= memory:
                return split.bound(each.strategy, network, speed) / each.examples, number, tried
            large[number] = TooLarge(each, needs)
        return None

    queue = [each for n in range(len(found)) if (each := entry(n, 0)) is not None]
    heapify(queue)
    fitting: list[Predicted] = []
    predicted, best = 0, np.inf
    while queue and queue[0][0] < best and predicted < MOST:
        _, number, level = heappop(queue)
        candidate = _recomputing(found[number], RECOMPUTED[level])
        split = replicas(candidate)
        for strategy in dict.fromkeys((_filled(candidate.strategy), candidate.strategy)):
            job = predict_job(split.replica, cluster, strategy)
            if too_large := memory is not None and (job.peak_memory or 0) > memory:
                break
        predicted += 1
        if not too_large:
            large.pop(number, None)
            fitting.append(_predicted(candidate, job, split))
            best = min(best, fitting[-1].per_example)
            continue
        large[number] = TooLarge(candidate, job.peak_memory or 0)
        if (again := entry(number, level + 1)) is not None:
            heappush(queue, again)
    return Search(
        ranked=tuple(sorted(fitting, key=_order)),
        candidates=len(found),
        predicted=predicted,
        too_large=len(large),
        nearest=min(large.values(), key=lambda each: each.needs, default=None),
        complete=not queue or queue[0][0] >= best,
    )


def _order(each: Predicted) -> tuple[float, ...]:
    """The fastest first; of those that are alike to six digits, the one that divides least."""
    strategy = each.candidate.strategy
    ways = strategy.context, strategy.tensor, strategy.pipeline, strategy.expert
    return (float(f"{each.per_example:.6g}"), *ways, each.candidate.micro_batch)


def fastest(search: Search, cluster: Cluster) -> Predicted:
    """Return the fastest strategy; InputError with the missing memory if none fits."""
    if search.ranked:
        return search.ranked[0]
    assert search.nearest is not None
    memory = min(node.memory for node in cluster.nodes if node.memory)
    candidate, needs = search.nearest.candidate, search.nearest.needs
    raise InputError(
        f"none of {search.candidates:,} strategies fits into the memory of "
        f"{len(cluster.workers):,} workers: the closest ({candidate.strategy}, micro-batches of "
        f"{candidate.micro_batch}) needs {format_size(needs)} of {format_size(memory)} on each, "
        f"{format_size(needs - memory)} too much: use more workers, or shorter sequences"
    )


def candidates(
    model: Transformer,
    workers: int,
    machine: int,  # workers in one machine
    examples: int,
) -> Iterator[Candidate]:
    """Yield the strategies whose divisions are exact, without recomputation.

    Ranks that share a layer are in one machine, divide the heads, and divide norms along the
    sequence; stages have a layer or more; context ranks have two pieces of a sequence each, one
    sequence at a time, and are no more than `MOST_OF_A_SEQUENCE`; each replica has at least one
    micro-batch; shards are all replicas, or those of one machine.
    """
    for tensor in _divisors(machine, workers):
        if model.heads % tensor:
            continue
        for pipeline in _divisors(workers // tensor, model.layers):
            for context in _divisors(workers // tensor // pipeline, MOST_OF_A_SEQUENCE):
                if context > 1 and model.sequence % (2 * context):
                    continue
                shape = Strategy(
                    data=workers // tensor // pipeline // context,
                    tensor=tensor,
                    sequence=tensor > 1,
                    context=context,
                    pipeline=pipeline,
                )
                yield from _with_micro_batches(model, shape, machine // tensor, examples)


def machine_of(topology: Topology, workers: int) -> int:
    """Return how many workers are in one machine; all where nothing else joins them."""
    return topology.group_size if isinstance(topology, Hierarchical) else workers


def _with_micro_batches(
    model: Transformer, shape: Strategy, near: int, examples: int
) -> Iterator[Candidate]:
    """Yield the micro-batches, experts and shards of ranks of a shape."""
    for micro_batch in MICRO_BATCHES if shape.context == 1 else (1,):
        count = max(round(examples / (shape.data * micro_batch)), 1)
        if abs(count * shape.data * micro_batch - examples) > APART * examples:
            continue
        for expert in _divisors(model.experts or 1, shape.replicas):
            if shape.replicas % expert:
                continue
            for sharding, shard in _shardings(shape.replicas, near if expert == 1 else 0):
                strategy = replace(
                    shape, microbatches=count, expert=expert, sharding=sharding, shard=shard
                )
                yield Candidate(strategy, micro_batch)


def _shardings(replicas: int, near: int) -> list[tuple[str, int]]:
    if replicas == 1:
        return [("none", 0)]
    found = [("none", 0), ("optimizer", 0), ("gradients", 0), ("parameters", 0)]
    if 1 < near < replicas and replicas % near == 0:
        found.append(("parameters", near))
    return found


def _divisors(number: int, most: int) -> list[int]:
    return [each for each in range(1, min(number, most) + 1) if number % each == 0]


def _recomputing(candidate: Candidate, what: bool | str) -> Candidate:
    return replace(candidate, strategy=replace(candidate.strategy, recompute=what))


def _filled(strategy: Strategy) -> Strategy:
    """Return the strategy with no more micro-batches than fill a pipeline: they take all memory."""
    return replace(strategy, microbatches=min(strategy.microbatches, 2 * strategy.pipeline))


def check_divisible(model: Transformer, workers: int, machine: int, examples: int) -> None:
    """Refuse a number of workers that no strategy can use; arguments as for `candidates`."""
    if next(candidates(model, workers, machine, examples), None) is not None:
        return
    heads = math.gcd(model.heads, machine)
    most = examples * heads * model.layers * MOST_OF_A_SEQUENCE
    ways = f"{examples:,} examples x tp={heads} x cp={MOST_OF_A_SEQUENCE} x pp={model.layers}"
    if workers > most:
        raise InputError(f"{workers:,} workers are more than {ways} can use: {most:,} at most")
    raise InputError(
        f"{workers:,} workers cannot share {examples:,} examples evenly (within {APART:.0%}): use "
        "a power of two, or another batch"
    )


def _predicted(candidate: Candidate, job: JobPrediction, split: TimedSplit) -> Predicted:
    computing = job.causes["compute"]
    shares = {"computing": 1 - split.memory_bound, "memory bandwidth": split.memory_bound}
    named = {name: share * computing for name, share in shares.items()}
    others = {name: time for name, time in job.causes.items() if time > 0 and name != "compute"}
    return Predicted(candidate, job.iteration_time, job.peak_memory, named | others)


def splits_of(
    config: PredictConfig, cluster: Cluster, seed: int
) -> Callable[[Candidate], TimedSplit]:
    """Return what finds one rank's part of a configuration's model, each once.

    `cluster` says what ranks take that divide a layer, a sequence or experts.
    """
    model, network = config.architecture, Network(cluster)
    assert model is not None
    known: dict[tuple[object, ...], TimedSplit] = {}

    def split(candidate: Candidate) -> TimedSplit:
        strategy = candidate.strategy
        ways = {role: getattr(strategy, role) for role in WITHIN}
        key = *ways.values(), candidate.micro_batch
        if key not in known:
            timed = find_replica(config.of_strategy(strategy, candidate.micro_batch), seed)
            alone = timed.predict(free_communication=True)
            interference, _ = find_interference(config, timed.environment, strategy.data)
            known[key] = TimedSplit(
                Replica(
                    *(timed.graph, alone.duration, timed.asynchronous, timed.launch),
                    interference=interference,
                ),
                ways,
                Share(model, candidate.micro_batch, strategy.split(seed)).local,
                lambda role, kind, size: network.seconds(
                    1 if role == "tensor" else strategy.tensor, ways[role], kind, size
                ),
            )
        return known[key]

    return split
