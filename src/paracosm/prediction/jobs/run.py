"""Predictions of a job on a cluster: one, or one for each number of workers."""

from __future__ import annotations

from typing import Any

from paracosm.graphs.strategies import Replica, Strategy
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.interrupted import until_interrupted
from paracosm.prediction.jobs.device_speeds import (
    device_of,
    device_speeds,
    unknown_devices,
    with_devices,
)
from paracosm.prediction.jobs.prediction import JobPrediction, ideal_throughput, predict_job
from paracosm.prediction.jobs.shown_ranks import shown_ranks
from paracosm.prediction.jobs.summary import summarise_jobs
from paracosm.prediction.jobs.timeline import job_timeline
from paracosm.prediction.predict import predict
from paracosm.prediction.replica import Announce, Progress, find_replica, measured_iteration
from paracosm.timeline import Timeline

__all__ = ["run_on_cluster"]


def run_on_cluster(
    config: PredictConfig,
    seed: int,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> tuple[dict[str, Any], Timeline]:
    """Predict what a configuration asks for, and return summary and timeline.

    The graph is captured, and its durations are found, once for all numbers of workers. The
    timeline is that of the last number. An interrupt (Ctrl-C) after the first number ends the run
    with what it has.

    Args:
        config: with a cluster, a strategy, or numbers of workers.
        seed: of what is profiled and fitted, and of jitter.
        progress: called with how many numbers of workers are done, where there are several; else
            as of `run_prediction`.
        announce: as of `run_prediction`.

    Raises:
        InputError: for what cannot be used, has no timing, or does not fit together.
        MissingExtraError: PyTorch is needed and not installed.
    """
    jobs = config.jobs
    largest = config.resolve_cluster(*jobs[-1])
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

    def predicted(job: tuple[int, Strategy]) -> JobPrediction:
        workers, strategy = job
        return predict_job(
            replica,
            with_devices(config.resolve_cluster(workers, strategy), speeds),
            strategy,
            relative=(relative[0], relative[1]),
            jitter=config.jitter,
            seed=seed,
            ideal=ideal,
        )

    predictions = until_interrupted(jobs, predicted, done)
    complete = len(predictions) == len(jobs)
    summary: dict[str, Any] = {"status": "done" if complete else "interrupted"}
    summary |= summarise_jobs(predictions, alone, found.split)
    summary |= {"batch": alone.examples, "devices": speeds.origin}
    measured = measured_iteration(config, found)
    summary["replica"]["measured"] = None if measured is None else measured.duration
    summary |= found.facts(config, alone.coverage)
    if found.split < tensor:
        summary["durations"]["splitting layers"] = (
            f"estimated: each into {tensor} parts, but not embedding, head, loss"
        )
    last = predictions[-1].schedule
    # The ranks that were wanted are those of the largest number.
    shown = shown_ranks(last, config.timeline_ranks if complete else None)
    return summary, job_timeline(last, shown)
