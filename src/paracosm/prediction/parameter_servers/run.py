"""The throughput of a profiled job for one number of workers or several."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from paracosm.cluster.cluster import first_workers
from paracosm.cluster.description import describe_cluster
from paracosm.errors import InputError
from paracosm.prediction.interrupted import until_interrupted
from paracosm.prediction.parameter_servers.coarse_models import phases_of
from paracosm.prediction.parameter_servers.summary import Point, summarise_throughput
from paracosm.prediction.parameter_servers.target import target_job
from paracosm.prediction.parameter_servers.throughput import (
    predict_throughput,
    sensitivity,
    single_worker_rates,
)
from paracosm.prediction.parameter_servers.timeline import first_steps
from paracosm.prediction.replica import Progress
from paracosm.results import ThroughputSummary
from paracosm.timeline import Timeline
from paracosm.units import format_duration

if TYPE_CHECKING:
    from paracosm.prediction.config import PredictConfig

Floats = npt.NDArray[np.float64]


def run_throughput(
    config: PredictConfig, seed: int, progress: Progress | None = None
) -> tuple[ThroughputSummary, Timeline]:
    """Predict the throughput that a configuration asks for, and return summary and timeline.

    The timeline has the first steps of the last number of workers. An interrupt (Ctrl-C) after the
    first number ends the run with what it has.

    Raises:
        InputError: for what cannot be used, or does not fit together.
    """
    changed = config.resolved
    settings = changed.settings
    job = target_job(config.job_profile, settings, seed)
    alone, phases = single_worker_rates(job, seed), phases_of(job)
    _check_measure(settings.measure, alone)

    def predicted(workers: int) -> Point:
        return Point(predict_throughput(job, workers, seed), sensitivity(job, workers, seed))

    numbers = changed.profiled_workers
    points = until_interrupted(numbers, predicted, progress)
    complete = len(points) == len(numbers)
    workers = points[-1].throughput.workers
    summary = summarise_throughput(
        *(points, config.job_profile, settings, alone, phases),
        status="done" if complete else "interrupted",
        profile_file=str(config.profile),
        cluster=describe_cluster(first_workers(changed.profile_cluster, workers)),
    )
    if config.what_if:
        before, _ = run_throughput(config.unchanged, seed)
        changes = list(map(str, config.what_if))
        summary = replace(summary, what_if=changes, unchanged=before)
    return summary, first_steps(job, workers, seed)


def _check_measure(measure: float | None, alone: Floats) -> None:
    """Refuse a measurement in which one step would be rare: its rate is 0 or far above any."""
    if measure is not None and measure * alone.max() < 1:
        raise InputError(
            f"measure: no worker ends a step in {format_duration(measure)}: one takes "
            f"{format_duration(1 / alone.max())} alone, and a measurement many of them"
        )
