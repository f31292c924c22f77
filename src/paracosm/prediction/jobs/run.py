"""Predictions of a job on a cluster: one, or one for each number of workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from paracosm.jobs.strategies import Replica, Strategy, check_changes
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.interrupted import until_interrupted
from paracosm.prediction.jobs.device_speeds import (
    device_of,
    device_speeds,
    unknown_devices,
    with_devices,
)
from paracosm.prediction.jobs.prediction import JobPrediction, ideal_throughput, predict_job
from paracosm.prediction.jobs.rank_times import job_timeline
from paracosm.prediction.jobs.shown_ranks import shown_ranks
from paracosm.prediction.jobs.summary import OF_JOB, summarise_jobs
from paracosm.prediction.predict import predict
from paracosm.prediction.replica import Announce, Progress, find_replica, measured_iteration
from paracosm.results import JobSummary
from paracosm.timeline import Timeline

__all__ = ["run_on_cluster"]


def run_on_cluster(
    config: PredictConfig,
    seed: int,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> tuple[JobSummary, Timeline]:
    """Predict what a configuration asks for, and return summary and timeline.

    The graph is captured, and its durations are found, once for all numbers of workers. The
    timeline is that of the last number. An interrupt (Ctrl-C) after the first number ends the run
    with what it has.

    Args:
        config: with a cluster, a strategy, or numbers of workers.
        seed: of what is profiled, fitted and drawn.
        progress: called with how many numbers of workers are done, where there are several; else
            as of `run_prediction`.
        announce: as of `run_prediction`.

    Raises:
        InputError: for what cannot be used, has no timing, or does not fit together.
        MissingExtraError: PyTorch is needed and not installed.
    """
    changed = config.resolved
    jobs = changed.jobs
    largest = changed.resolve_cluster(jobs[-1][0])
    tensor = jobs[-1][1].tensor
    done = progress if config.predictions else None
    found = find_replica(
        *(config, seed, None if done else progress, announce),
        tensor=tensor,
        device=device_of(largest),
    )
    alone = predict(
        found.graph,
        found.found.durations,
        asynchronous=found.asynchronous,
        launch=found.launch,
        common=found.found.common,
        baselines=found.found.baselines,
        free_communication=True,
    )
    if found.environment is None:
        speeds = unknown_devices(largest)
    else:
        speeds = device_speeds(
            largest,
            found.graph,
            found.environment,
            float(alone.duration.sum()),
            config.db,
            cache=config.cache,
            seed=seed,
        )
    replica = Replica(found.graph, alone.duration, found.asynchronous, found.launch)
    time = alone.iteration_time
    relative = tuple(end / time if time > 0 else 1.0 for end in alone.interval)
    ideal = ideal_throughput(replica, jobs[-1][1])

    check_changes(
        replica, changed.resolve_cluster(jobs[-1][0]), jobs[-1][1], changed.of_collectives
    )

    def predicted(asked: PredictConfig, job: tuple[int, Strategy]) -> JobPrediction:
        workers, strategy = job
        return predict_job(
            replica,
            with_devices(asked.resolve_cluster(workers), speeds),
            strategy,
            relative=(relative[0], relative[1]),
            duration_cv=config.duration_cv,
            seed=seed,
            ideal=ideal,
            changes=asked.of_collectives,
        )

    def both(index: int) -> tuple[JobPrediction, JobPrediction | None]:
        before = config.unchanged if config.what_if else None
        return (
            predicted(changed, jobs[index]),
            None if before is None else predicted(before, before.jobs[index]),
        )

    pairs = until_interrupted(range(len(jobs)), both, done)
    predictions = [pair[0] for pair in pairs]
    complete = len(predictions) == len(jobs)
    measured = measured_iteration(config, found)
    facts = found.facts(config, alone.coverage)
    if found.split < tensor:
        facts["durations"]["splitting layers"] = (
            f"estimated: each into {tensor} parts, but not embedding, head, loss"
        )

    def summarised(each: Sequence[JobPrediction]) -> JobSummary:
        return summarise_jobs(
            *(each, alone, found.split, facts),
            devices=speeds.origin,
            measured=None if measured is None else measured.duration,
            status="done" if complete else "interrupted",
        )

    summary = summarised(predictions)
    if before := [pair[1] for pair in pairs if pair[1] is not None]:
        unchanged = summarised(before)
        summary = replace(
            summary,
            what_if=list(map(str, config.what_if)),
            unchanged={key: unchanged[key] for key in OF_JOB},
        )
    last = predictions[-1].schedule
    # The ranks that were wanted are those of the largest number.
    shown = shown_ranks(last, config.timeline_ranks if complete else None)
    return summary, job_timeline(last, shown)
