"""The fastest strategy for a transformer on so many workers, out of all that can run.

Best first: each candidate's seconds for an example are bounded from below, by what one worker
computes, how a pipeline fills, and what gradients take on the network; they are predicted in the
order of their bounds, until the next bound is above the best prediction, or `MOST` have been made.
"""

import gc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush

import numpy as np

from paracosm.cluster import Cluster
from paracosm.cluster.hardware import Device
from paracosm.errors import InputError
from paracosm.graphs.transformer import Transformer
from paracosm.graphs.transformer.share import Share
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.work import WITHIN, Replica
from paracosm.prediction.candidates import Candidate, candidates, check_divisible, machine_of
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.host_costs import find_interference
from paracosm.prediction.iteration import durations_of_nodes
from paracosm.prediction.job import JobPrediction, predict_job
from paracosm.prediction.memory import device_memory
from paracosm.prediction.replica import Progress, find_replica
from paracosm.prediction.strategy_bounds import RECOMPUTED, Network, TimedSplit
from paracosm.units import format_size

MOST = 48  # strategies that are predicted for one number of workers


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
    interrupted: bool = False  # whether Ctrl-C ended it, with what was predicted by then


def search_strategies(
    model: Transformer,
    cluster: Cluster,
    examples: int,
    replicas: Callable[[Candidate], TimedSplit],
    progress: Progress | None = None,
    form: str = "auto",
    *,
    device: Device | None = None,
) -> Search:
    """Return the strategies of all workers of a cluster, the fastest first.

    An interrupt (Ctrl-C) ends the search with the strategies that are predicted, unless none is
    that fits.

    Args:
        model: what is trained.
        cluster: whose nodes have one kind of device, and so much memory.
        examples: of an iteration; each candidate has the nearest number that it divides.
        replicas: one rank's part of the model, by how a candidate divides it.
        progress: called with the number of predicted strategies.
        form: in which ranks that share a sequence exchange keys and values.
        device: of the catalogue, that all nodes have; without it what its allocator, CUDA and NCCL
            hold is not counted.

    Raises:
        InputError: no strategy of the model can use all workers.
        KeyboardInterrupt: it was interrupted before the first that fits.
    """
    workers, machine = len(cluster.workers), machine_of(cluster.topology, len(cluster.workers))
    check_divisible(model, workers, machine, examples)
    strategies = list(candidates(model, workers, machine, examples, form))
    memory = min((node.memory for node in cluster.nodes if node.memory), default=None)
    network = Network(cluster)
    speed = max(node.speed for node in cluster.nodes)
    large: dict[int, TooLarge] = {}

    def entry(number: int, level: int) -> tuple[float, int, int] | None:
        """Return the bound of a candidate at the first level of recomputation that may fit."""
        for tried in range(level, len(RECOMPUTED)):
            candidate = _recomputing(strategies[number], RECOMPUTED[tried])
            split = replicas(candidate)
            needs = split.least_memory(candidate.strategy)
            if memory is None or needs <= memory:
                return (
                    split.bound(candidate.strategy, network, speed) / candidate.examples,
                    number,
                    tried,
                )
            large[number] = TooLarge(candidate, needs)
        return None

    fitting: list[Predicted] = []
    predicted, best, interrupted = 0, np.inf, False
    collecting = gc.isenabled()
    gc.disable()  # a fifth of the time: millions of objects, and no cycle among them
    try:
        queue = [each for n in range(len(strategies)) if (each := entry(n, 0)) is not None]
        heapify(queue)
        while queue and queue[0][0] < best and predicted < MOST:
            _, number, level = heappop(queue)
            candidate = _recomputing(strategies[number], RECOMPUTED[level])
            split = replicas(candidate)
            job, needs = _predict(split, cluster, candidate, memory, device)
            predicted += 1
            if progress is not None:
                progress(predicted, None)
            if memory is None or needs <= memory:
                large.pop(number, None)
                fitting.append(_predicted(candidate, job, split))
                best = min(best, fitting[-1].per_example)
                continue
            large[number] = TooLarge(candidate, needs)
            if (again := entry(number, level + 1)) is not None:
                heappush(queue, again)
    except KeyboardInterrupt:
        if not fitting:
            raise
        interrupted = True
    finally:
        if collecting:
            gc.enable()
    return Search(
        ranked=tuple(sorted(fitting, key=_order)),
        candidates=len(strategies),
        predicted=predicted,
        too_large=len(large),
        nearest=min(large.values(), key=lambda each: each.needs, default=None),
        complete=not interrupted and (not queue or queue[0][0] >= best),
        interrupted=interrupted,
    )


def _predict(
    split: TimedSplit,
    cluster: Cluster,
    candidate: Candidate,
    memory: float | None,
    device: Device | None,
) -> tuple[JobPrediction, float]:
    """Predict a candidate; return what it needs, too. First one that takes all memory sooner."""
    needs = 0.0
    for strategy in dict.fromkeys((_filled(candidate.strategy), candidate.strategy)):
        job = predict_job(split.replica, cluster, strategy)
        needs = needs or _needs(job, memory, device)
        if memory is not None and needs > memory:
            break
    return job, needs


def _needs(job: JobPrediction, memory: float | None, device: Device | None) -> float:
    """Return the bytes that a job needs on its fullest device, more than there are if it does not
    fit; what is not in tensors is looked at where these fit."""
    peak = float(job.peak_memory or 0)
    if device is None or memory is None or peak > memory:
        return peak
    held = device_memory(job, device)
    if held is None or held.verdict != "does not fit":
        return peak
    return max(float(held.total), memory + 1)


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


def _recomputing(candidate: Candidate, what: bool | str) -> Candidate:
    return replace(candidate, strategy=replace(candidate.strategy, recompute=what))


FEW = 16  # micro-batches, with which a whole iteration is predicted as quickly as a part of it


def _filled(strategy: Strategy) -> Strategy:
    """Return the strategy with no more micro-batches than fill a pipeline: they take all memory."""
    most = max(2 * strategy.pipeline, FEW)
    return replace(strategy, microbatches=min(strategy.microbatches, most))


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
            duration = durations_of_nodes(
                timed.graph, timed.found.durations, launch=timed.launch, free_communication=True
            )
            interference, _ = find_interference(config, timed.environment, strategy.data)
            known[key] = TimedSplit(
                Replica(
                    *(timed.graph, duration, timed.asynchronous, timed.launch),
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
