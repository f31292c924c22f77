"""Training runs whose schedule is predicted: from the profile of one worker, or for a strategy."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from paracosm.backends import HERE, Backend
from paracosm.cluster.description import describe_cluster
from paracosm.cluster.fields import LINK_FIELDS, ClusterFields
from paracosm.faults.node_failures import JobFailures
from paracosm.planning.failures import FailureRecord, Life, failing_schedule, with_lasting_blocks
from paracosm.planning.job import ProfiledJob, assumed_links, check_model, origins, profiled_job
from paracosm.planning.train_config import LEARNING, ProfileTrainConfig, StrategyTrainConfig
from paracosm.prediction.run import run_prediction
from paracosm.profiling.jobs import SERVER, WORKER
from paracosm.results import JobSummary
from paracosm.results.kind import with_unchanged
from paracosm.results.metrics import MetricSink
from paracosm.simulation.schedule import READ, STEP, UPDATE, Schedule, join_schedules
from paracosm.timing import Distribution, Empirical
from paracosm.training.algorithms.algorithm import Algorithm
from paracosm.training.config import TrainConfig
from paracosm.training.fields import LearningFields
from paracosm.training.numerics.scheduled import train_on_schedule
from paracosm.training.record import Metrics, Progress, TrainingResult
from paracosm.training.run import train
from paracosm.validation import given_fields, validated

ITERATIONS = 256
"""Of a strategy, in a block of its schedule."""


def run_scheduled(
    config: ProfileTrainConfig | StrategyTrainConfig,
    seed: int = 0,
    metrics: MetricSink | None = None,
    progress: Progress | None = None,
    backend: Backend = HERE,
) -> TrainingResult:
    """Train over the schedule of a job profile, or of the iterations of a strategy.

    The schedule is the simulation of `predict`: op by op, with transfers that share links, it lists
    each worker's reads and updates of tensors. Gradients are then really computed from the
    parameters that each step read. Algorithms whose rule depends on values run coupled, on the
    engine of `train`, with whole vectors and the computing time of whole profiled steps; the
    summary's `durations` record this. Otherwise as `train`.

    Args:
        config: the form that says where the schedule comes from.
        seed: of all random streams; initial model and minibatches are those of `train`.
        metrics: records the metrics; by default in memory.
        progress: called after every update.
        backend: a cluster computes the gradients that wait together.

    Raises:
        InputError: the configuration, profile or database cannot be used, or its tensors differ
            from the model's.
    """
    config.check()
    metrics = Metrics() if metrics is None else metrics
    if isinstance(config, StrategyTrainConfig):
        run: Callable[..., TrainingResult] = _over_iterations
    else:
        run = _over_profile
    result = run(config, seed, metrics, progress, backend)
    unchanged = config.model_copy(update={"what_if": ()})
    summary = with_unchanged(
        result.summary,
        config.what_if,
        lambda: run(unchanged, seed, Metrics(), None, backend).summary,
    )
    return replace(result, summary=summary)


def _over_profile(
    config: ProfileTrainConfig,
    seed: int,
    metrics: MetricSink,
    progress: Progress | None,
    backend: Backend,
) -> TrainingResult:
    workers = len(config.resolve_cluster().workers)
    job = profiled_job(config, (workers,))
    if job.profile.batch is not None and "batch" not in config.model_fields_set:
        config = config.model_copy(update={"batch": job.profile.batch})
    learning = given_fields(config, LEARNING)
    learning |= {"batch": config.batch, "algorithm": config.algorithm}
    check_model(job, {name: getattr(config, name) for name in LearningFields.model_fields}, seed)
    rule = config.algorithm.rule(workers)
    if rule is None:
        return _coupled(config, job, learning, seed, metrics, progress, backend)
    servers = len(job.cluster.servers)
    arguments = {**learning, "workers": workers, **_servers(config, servers)}
    coarse = validated(TrainConfig, arguments, "train")
    life = partial(job.schedule, workers, rule)
    return _train(
        coarse,
        life,
        job.tensors,
        seed,
        metrics,
        progress,
        backend,
        failures=config.job_failures(workers, servers, rule.needs_all),
        cluster=describe_cluster(job.cluster),
        servers=servers,
        durations=origins(job) | assumed_links(config, job, workers, rule, seed),
    )


def _servers(config: ProfileTrainConfig, servers: int) -> dict[str, Any]:
    """Return the argument `servers`, if it has an effect."""
    return {"servers": servers} if config.resolve_topology() == "server" else {}


def _train(
    coarse: TrainConfig,
    life: Life,
    tensors: tuple[str, ...],
    seed: int,
    metrics: MetricSink,
    progress: Progress | None,
    backend: Backend,
    *,
    failures: JobFailures | None,
    servers: int,
    durations: Mapping[str, str],
    **facts: Any,
) -> TrainingResult:
    """Train over an endless schedule; the result has its lasting part, and `facts`."""
    rule = coarse.algorithm.rule(coarse.workers)
    assert rule is not None
    blocks = failing_schedule(
        life,
        failures,
        workers=coarse.workers,
        servers=servers,
        tensors=len(tensors) or 1,
        rule=rule,
        seed=seed,
    )
    used: list[Schedule] = []
    record = FailureRecord(failures, coarse.workers) if failures is not None else None
    followed = with_lasting_blocks(blocks, used)
    if record is not None:
        followed = record.watch(followed)
        durations = {**durations, "failures": f"assumed: {failures}"}
    result = train_on_schedule(coarse, followed, tensors, seed, metrics, progress, backend)
    end = round(result.summary.virtual_time * 1e12)
    summary = replace(result.summary, servers=servers, durations=durations, **facts)
    if record is not None:
        summary = replace(summary, failures=record.summary(summary.virtual_time))
    return replace(result, summary=summary, schedule=cut(join_schedules(used), end))


def cut(schedule: Schedule, end: int) -> Schedule:
    """Return a schedule up to an instant."""
    return replace(
        schedule,
        reads=schedule.reads[schedule.reads["time"] <= end],
        updates=schedule.updates[schedule.updates["time"] <= end],
        steps=schedule.steps[schedule.steps["end"] <= end],
        failures=schedule.failures[schedule.failures["time"] <= end],
        end=end,
    )


def _coupled(
    config: ProfileTrainConfig,
    job: ProfiledJob,
    learning: dict[str, Any],
    seed: int,
    metrics: MetricSink,
    progress: Progress | None,
    backend: Backend,
) -> TrainingResult:
    """Train on the engine, with whole vectors and the computing time of profiled steps."""
    coarse = coupled_config(config, job, learning, config.workers)
    result = train(coarse, seed, metrics, progress, backend=backend)
    durations = {**origins(job), "schedule": coupled_origin(config.algorithm)}
    return replace(result, summary=replace(result.summary, durations=durations))


def coupled_config(
    config: ClusterFields, job: ProfiledJob, learning: dict[str, Any], workers: int
) -> TrainConfig:
    """Return the run on the engine that is closest to a profiled job.

    A gradient takes the computing time of a profiled step on its worker, including the pause after
    it; an update the time of the step's updates, divided over the servers. Nothing overlaps.

    Args:
        config: has the links and the changes.
        job: of the profile.
        learning: training arguments, including the algorithm.
        workers: their number, unless a cluster file has it.
    """
    workload = job.target.workload
    computing = workload.seconds[:, workload.resource == WORKER].sum(axis=1) + workload.gap
    servers = len(job.cluster.servers)
    updating = workload.seconds[:, workload.resource == SERVER].sum(axis=1) / servers
    links: dict[str, Any] = given_fields(config, ("cluster", *sorted(LINK_FIELDS)))
    has_servers = learning["algorithm"].topology_for(learning.get("topology")) == "server"
    if config.cluster is None:
        links |= {"workers": workers, "bandwidth": job.cluster.topology.link.bandwidth}
        links |= {"servers": servers} if has_servers else {}
    if has_servers:
        links["update_time"] = _sampled(updating)
    durations = {"compute": _sampled(computing), "what_if": config.what_if}
    return validated(TrainConfig, {**learning, **links, **durations}, str(learning["algorithm"]))


def _sampled(seconds: Any) -> Distribution:
    return Empirical(tuple(np.asarray(seconds, dtype=float).tolist()))


def coupled_origin(algorithm: Algorithm) -> str:
    """Return the source of the schedule of an algorithm that depends on values."""
    return (
        f"coupled: {algorithm} depends on values, so its workers compute for the time of whole "
        "profiled steps, parameters are sent whole, and nothing overlaps"
    )


def _over_iterations(
    config: StrategyTrainConfig,
    seed: int,
    metrics: MetricSink,
    progress: Progress | None,
    backend: Backend,
) -> TrainingResult:
    prediction = run_prediction(config.prediction(), seed).summary
    assert isinstance(prediction, JobSummary)
    workers = prediction.workers
    coarse = validated(TrainConfig, {**given_fields(config, LEARNING), "workers": workers}, "train")
    durations = {
        **prediction.durations,
        "schedule": f"predicted: an iteration of {prediction.strategy} takes "
        f"{prediction.iteration_time:.4g} s, in {prediction.dtype} with {prediction.optimizer}",
        "gradients": "computed",
    }
    life: Life = lambda *_: iterations(workers, prediction.iteration_time)
    return _train(
        coarse,
        life,
        (),
        seed,
        metrics,
        progress,
        backend,
        failures=config.job_failures(workers, prediction.servers, stops_together=True),
        cluster=prediction.cluster,
        servers=prediction.servers,
        topology="server" if prediction.servers else "all-reduce",
        durations=durations,
    )


def iterations(workers: int, seconds: float) -> Iterator[Schedule]:
    """Yield the schedule of synchronous iterations of one tensor, without end.

    In iteration k every worker reads version k as it begins, at k times `seconds`, and the mean of
    their gradients is the update as it ends.
    """
    length = round(seconds * 1e12)
    for first in count(0, ITERATIONS):
        number = np.repeat(np.arange(first, first + ITERATIONS), workers)
        worker = np.tile(np.arange(workers), ITERATIONS)
        rows = {dtype: np.zeros(len(number), dtype) for dtype in (READ, UPDATE, STEP)}
        reads, updates, steps = rows.values()
        for row in rows.values():
            row["worker"], row["step"] = worker, number
        reads["time"], reads["version"] = number * length, number
        updates["time"], updates["version"] = (number + 1) * length, number + 1
        updates["read"] = number
        steps["begin"], steps["end"] = number * length, (number + 1) * length
        steps["accepted"] = True
        end = (first + ITERATIONS) * length
        yield Schedule(reads, updates, steps, end, 0, {})
