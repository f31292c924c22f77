"""Runs of `predict`: from a configuration to a typed summary and a timeline."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

from paracosm.arrays import Floats
from paracosm.cluster import Cluster
from paracosm.cluster.changes import WORTH_FASTER_LINKS, with_twice_the_bandwidth
from paracosm.cluster.hardware import find_hardware
from paracosm.errors import InputError
from paracosm.graphs.transformer.share import describe_routing
from paracosm.jobs.strategies.build import check_changes
from paracosm.jobs.strategies.strategy import Strategy
from paracosm.jobs.strategies.work import Replica
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.host_costs import find_interference
from paracosm.prediction.iteration import Prediction, predict, timeline_of
from paracosm.prediction.job import (
    JobPrediction,
    ideal_throughput,
    predict_job,
    relative_interval,
)
from paracosm.prediction.memory import device_memory
from paracosm.prediction.parameter_servers.coarse_models import phases_of
from paracosm.prediction.parameter_servers.config import ThroughputConfig
from paracosm.prediction.parameter_servers.summary import Point, summarise_throughput
from paracosm.prediction.parameter_servers.synchronized import find_band
from paracosm.prediction.parameter_servers.target import first_steps, target_job
from paracosm.prediction.parameter_servers.throughput import (
    predict_throughput,
    sensitivity,
    single_worker_rates,
)
from paracosm.prediction.replica import (
    Announce,
    Durations,
    Progress,
    TimedReplica,
    find_replica,
    measured_iteration,
)
from paracosm.prediction.strategy_search import Search, fastest, search_strategies, splits_of
from paracosm.prediction.summary import OF_JOB, comparable, summarise, summarise_jobs
from paracosm.prediction.timeline_ranks import shown_ranks
from paracosm.profiling.datasheets import durations_on
from paracosm.profiling.durations import choose_environment, environments_in, find_durations
from paracosm.profiling.environment import Environment
from paracosm.results import JobSummary, RankedStrategy, StrategySearch, Summary, ThroughputSummary
from paracosm.results.kind import with_unchanged
from paracosm.simulation.breakdown import job_timeline
from paracosm.timeline import Timeline
from paracosm.units import format_duration

Case = TypeVar("Case")
Found = TypeVar("Found")


@dataclass(frozen=True)
class PredictionRun:
    """The result of a prediction."""

    summary: Summary
    timeline: Timeline


def run_prediction(
    config: PredictConfig | ThroughputConfig,
    seed: int,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> PredictionRun:
    """Predict a configuration. An interrupt (Ctrl-C) after the first of several numbers of workers
    ends the run with the results so far. The timeline is that of the last number. `progress` is
    called with how many numbers of workers are done, where there are several; else while new ops
    are profiled, with how many are.

    Raises:
        InputError: for what cannot be used, has no timing, or does not fit together.
    """
    if isinstance(config, ThroughputConfig):
        return PredictionRun(*_run_throughput(config, seed, progress))
    if config.is_auto:
        chosen, search, status = _chosen(config, seed, progress, announce)
        found, timeline = _run_on_cluster(chosen, seed, None, announce)
        status = found.status if status == "done" else status
        found = comparable(replace(found, search=search, status=status), chosen)
        return PredictionRun(found, timeline)
    if config.is_on_cluster:
        found, timeline = _run_on_cluster(config, seed, progress, announce)
        return PredictionRun(comparable(found, config.resolved), timeline)
    replica = find_replica(config, seed, progress, announce)
    prediction = replica.predict()
    memory = None
    if replica.hardware is not None:
        alone = Replica(replica.graph, prediction.duration, replica.asynchronous, replica.launch)
        job = predict_job(alone, replica.hardware.cluster(1), Strategy())
        memory = device_memory(job, replica.hardware.device)
    measured = measured_iteration(config, replica)
    facts = replica.facts(config, prediction.coverage)
    summary = summarise(prediction, measured, replica.found.probe, facts, memory)
    return PredictionRun(comparable(summary, config), timeline_of(prediction))


NEXT = 5  # strategies that are named after a search


def ranked_strategies(search: Search, most: int) -> list[RankedStrategy]:
    """Return the best strategies of a search, as a summary has them."""
    return [
        RankedStrategy(
            strategy=str(strategy.candidate.strategy),
            micro_batch=strategy.candidate.micro_batch,
            examples=strategy.candidate.examples,
            iteration_time=strategy.iteration_time,
            peak_memory=strategy.peak_memory,
            limit=max(strategy.causes, key=lambda cause: strategy.causes[cause]),
            causes=strategy.causes,
        )
        for strategy in search.ranked[:most]
    ]


MANY = 100_000  # workers, from which on a strategy takes seconds to predict


def _chosen(
    config: PredictConfig, seed: int, progress: Progress | None, announce: Announce | None
) -> tuple[PredictConfig, StrategySearch, str]:
    """Return the configuration with the fastest strategy that fits, the search, and its status."""
    changed, model = config.resolved, config.architecture
    assert model is not None
    workers, _ = changed.jobs[-1]
    if announce is not None and workers >= MANY:
        announce(
            f"Searching strategies of {workers:,} workers, which takes a minute or more: Ctrl-C "
            "ends it with the best so far."
        )
    cluster = changed.resolve_cluster(workers)
    splits = splits_of(changed, cluster, seed)
    examples = config.global_batch or workers
    device = None if changed.catalogued is None else changed.catalogued.device
    searched = search_strategies(
        *(model, cluster, examples, splits, progress), form=config.context_form, device=device
    )
    best = fastest(searched, cluster).candidate
    search = StrategySearch(
        ranked=ranked_strategies(searched, NEXT),
        candidates=searched.candidates,
        predicted=searched.predicted,
        too_large=searched.too_large,
        complete=searched.complete,
    )
    status = "interrupted" if searched.interrupted else "done"
    return config.of_strategy(best.strategy, best.micro_batch), search, status


def _run_on_cluster(
    config: PredictConfig, seed: int, progress: Progress | None, announce: Announce | None
) -> tuple[JobSummary, Timeline]:
    changed = config.resolved
    jobs = changed.jobs
    workers, strategy = jobs[-1]
    largest = changed.resolve_cluster(workers)
    several = config.predictions is not None
    timed = find_replica(
        *(config, seed, None if several else progress, announce),
        tensor=1 if strategy.sequence else strategy.tensor,
        device=device_of(largest),
    )
    alone = timed.predict(free_communication=True)
    devices = durations_by_device(largest, timed, alone, config.db, cache=config.cache, seed=seed)
    interference, interference_text = find_interference(config, timed.environment, strategy.data)
    replica = Replica(
        *(timed.graph, alone.duration, timed.asynchronous, timed.launch),
        durations_by_device=devices.durations,
        interference=interference,
        host_rates=None if timed.hardware is None else timed.hardware.host_rates(workers),
    )
    time, (low, high) = alone.iteration_time, alone.interval
    of_iteration = (low / time, high / time) if time > 0 else (1.0, 1.0)
    check_changes(replica, largest, strategy, changed.of_collectives)
    of_memory = None if timed.hardware is None or devices.durations else timed.hardware.device

    def predicted(
        asked: PredictConfig, index: int, cluster: Cluster | None = None
    ) -> JobPrediction:
        workers, strategy = asked.jobs[index]
        relative = of_iteration
        if timed.hardware is not None:
            found = timed.found
            relative = relative_interval(timed.graph, found.durations, found.common, strategy)
        job = predict_job(
            replica,
            asked.resolve_cluster(workers) if cluster is None else cluster,
            strategy,
            relative=relative,
            duration_cv=config.duration_cv,
            seed=seed,
            ideal=ideal_throughput(replica, strategy),
            changes=asked.of_collectives,
        )
        return job if of_memory is None else replace(job, memory=device_memory(job, of_memory))

    def gain(version: PredictConfig, job: JobPrediction) -> float | None:
        """Return by how much the largest job is faster with links that are twice as fast."""
        lost = job.parts["exposed_communication"] + job.parts["waiting"]
        if job.workers != version.jobs[-1][0] or lost <= WORTH_FASTER_LINKS * job.iteration_time:
            return None
        faster = with_twice_the_bandwidth(job.cluster)
        if faster is None:
            return None
        return job.iteration_time / predicted(version, -1, faster).iteration_time - 1

    def with_gain(version: PredictConfig, index: int) -> tuple[JobPrediction, float | None]:
        job = predicted(version, index)
        return job, gain(version, job)

    measured = measured_iteration(config, timed)
    facts = timed.facts(config, alone.coverage)
    facts["durations"]["computing beside collectives"] = interference_text
    if (replaced := changed.replaced_links) is not None:
        facts["durations"]["links"] = replaced
    if changed.architecture is not None and strategy.expert > 1:
        routing = describe_routing(changed.architecture, strategy.split(seed))
        facts["durations"]["experts"] = routing
    if timed.split < strategy.tensor:
        facts["durations"]["splitting layers"] = (
            f"estimated: each into {strategy.tensor} parts, but not embedding, head, loss"
        )

    def run(version: PredictConfig, progress: Progress | None) -> tuple[JobSummary, JobPrediction]:
        """Return the summary of all jobs, and the largest one that was predicted."""
        predictions, status = _until_interrupted(
            range(len(jobs)),
            lambda index: with_gain(version, index),
            progress if several else None,
        )
        summary = summarise_jobs(
            *(predictions, alone, timed.split, facts),
            devices=devices.origin,
            measured=None if measured is None else measured.duration,
            status=status,
        )
        return summary, predictions[-1][0]

    summary, last = run(changed, progress)
    # The requested ranks are those of the largest number.
    shown = shown_ranks(last.schedule, config.timeline_ranks if summary.status == "done" else None)
    timeline = job_timeline(last.schedule, shown)
    summary = with_unchanged(
        summary,
        config.what_if,
        lambda: run(config.unchanged, None)[0],
        lambda unchanged: {key: unchanged[key] for key in OF_JOB},
    )
    return summary, timeline


def _run_throughput(
    config: ThroughputConfig, seed: int, progress: Progress | None
) -> tuple[ThroughputSummary, Timeline]:
    changed, profile = config.resolved, config.job_profile
    settings = changed.settings
    job = target_job(profile, settings, seed)
    alone, phases = single_worker_rates(job, seed), phases_of(job)
    fastest = float(alone.max())
    # Where a measurement has no whole step, its rate is 0 or far above any.
    if settings.measure is not None and settings.measure * fastest < 1:
        raise InputError(
            f"measure: {format_duration(settings.measure)} is too short: a step takes "
            f"{format_duration(1 / fastest)} alone, and a measurement needs many"
        )

    def point(workers: int) -> Point:
        throughput = predict_throughput(job, workers, seed)
        band = find_band(job, workers, seed, throughput.steps_per_second)
        return Point(throughput, band, sensitivity(job, workers, seed))

    points, status = _until_interrupted(
        changed.profiled_workers, point, None if config.predictions is None else progress
    )
    workers = points[-1].throughput.workers
    summary = summarise_throughput(
        *(points, profile, settings, alone, phases),
        status=status,
        profile_file=str(config.profile),
        cluster=changed.profile_cluster,
    )
    summary = with_unchanged(
        summary, config.what_if, lambda: _run_throughput(config.unchanged, seed, None)[0]
    )
    return summary, first_steps(job, workers, seed)


def _until_interrupted(
    cases: Sequence[Case], predicted: Callable[[Case], Found], progress: Progress | None
) -> tuple[list[Found], str]:
    """Predict each case; Ctrl-C ends it with those that are done, unless not even the first is."""
    predictions: list[Found] = []
    try:
        for case in cases:
            predictions.append(predicted(case))
            if progress is not None:
                progress(len(predictions), None)
    except KeyboardInterrupt:
        if not predictions:
            raise
    return predictions, "done" if len(predictions) == len(cases) else "interrupted"


@dataclass(frozen=True)
class Devices:
    """Known durations on devices, by their names in the cluster."""

    durations: dict[str, Floats]  # seconds of all nodes of the graph, of devices that differ
    origin: dict[str, str]  # how each is known, in words


def device_of(cluster: Cluster) -> str | None:
    """Return the device of most workers; None where none has a name."""
    names = [cluster.node(worker).device for worker in cluster.workers]
    known = [name for name in names if name is not None]
    return max(dict.fromkeys(known), key=known.count, default=None)


def durations_by_device(
    cluster: Cluster, replica: TimedReplica, alone: Prediction, path: Path, *, cache: str, seed: int
) -> Devices:
    """Return what every op takes on every device that a worker's node names.

    One that neither the database nor the catalogue knows anything of is as fast as the one that was
    timed, and only the node's own speed counts. `alone` is the graph on the device that was timed,
    without communication.
    """
    named = [cluster.node(worker).device for worker in cluster.workers]
    names = list(dict.fromkeys(name for name in named if name is not None))
    devices = Devices({}, {})

    def add(name: str, durations: Durations, by: str) -> None:
        there = predict(replica.graph, durations, launch=replica.launch, free_communication=True)
        devices.durations[name] = there.duration
        factor = float(alone.duration.sum() / there.duration.sum())
        devices.origin[name] = f"{factor:.3g} times as fast by {by}"

    if replica.hardware is not None:
        for name in names:
            if name != replica.hardware.name:
                other = find_hardware(name)
                by = f"the datasheet: {other.device.source}"
                add(name, durations_on(replica.graph, other, stack=replica.stack), by)
        return devices
    if replica.environment is None:
        source = "no timings: assumed as fast as the graph's device"
        return Devices({}, dict.fromkeys(names, source))
    held = environments_in(path)
    for name in names:
        timed = _environment(held, replica.environment, name, path)
        if timed is None:
            devices.origin[name] = f"no timings: assumed to be {replica.environment.hardware}"
        elif timed != replica.environment:
            durations = find_durations(replica.graph, path, timed, cache=cache, seed=seed).durations
            add(name, list(durations), f"the timings of {timed.hardware}")
    return devices


def _environment(
    held: Sequence[tuple[Environment, int]], used: Environment, name: str, path: Path
) -> Environment | None:
    fits = [
        environment
        for environment, _ in held
        if name.lower() in f"{environment.device}, {environment}".lower()
    ]
    if used in fits:
        return used
    if not fits:
        return None
    try:
        return choose_environment(held, None, name, str(path))
    except InputError as error:
        raise InputError(f"cluster: device {name}: {error}") from None
