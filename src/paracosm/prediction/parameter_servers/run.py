"""The throughput of a profiled job for one number of workers or several."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from paracosm.cluster.cluster import first_workers
from paracosm.cluster.description import describe_cluster
from paracosm.errors import InputError
from paracosm.prediction.interrupted import until_interrupted
from paracosm.prediction.parameter_servers.alone import rates_alone
from paracosm.prediction.parameter_servers.imagined import imagined_job
from paracosm.prediction.parameter_servers.phases import phases_of
from paracosm.prediction.parameter_servers.sensitivity import sensitivity
from paracosm.prediction.parameter_servers.summary import Point, summarise_throughput
from paracosm.prediction.parameter_servers.throughput import predict_throughput
from paracosm.prediction.parameter_servers.timeline import first_steps
from paracosm.prediction.replica import Progress
from paracosm.timeline import Timeline
from paracosm.units import format_duration

if TYPE_CHECKING:
    from paracosm.prediction.config import PredictConfig

__all__ = ["run_throughput"]

Floats = npt.NDArray[np.float64]


def run_throughput(
    config: PredictConfig, seed: int, progress: Progress | None = None
) -> tuple[dict[str, Any], Timeline]:
    """Predict the throughput that a configuration asks for, and return summary and timeline.

    The timeline has the first steps of the last number of workers. An interrupt (Ctrl-C) after the
    first number ends the run with what it has.

    Args:
        config: with a job profile.
        seed: of the steps that are drawn, and of a random order.
        progress: called with how many numbers of workers are done.

    Raises:
        InputError: for what cannot be used, or does not fit together.
    """
    changed = config.resolved
    settings = changed.settings
    job = imagined_job(config.job_profile, settings, seed)
    alone, phases = rates_alone(job, seed), phases_of(job)
    _check_measure(settings.measure, alone)

    def predicted(workers: int) -> Point:
        return Point(predict_throughput(job, workers, seed), sensitivity(job, workers, seed))

    numbers = changed.profiled_workers
    points = until_interrupted(numbers, predicted, progress)
    complete = len(points) == len(numbers)
    summary: dict[str, Any] = {"status": "done" if complete else "interrupted"}
    summary |= {"profile": str(config.profile)}
    summary |= summarise_throughput(points, config.job_profile, settings, alone, phases)
    workers = points[-1].throughput.workers
    summary["cluster"] = describe_cluster(first_workers(changed.profile_cluster, workers))
    if config.what_if:
        before, _ = run_throughput(config.unchanged, seed)
        summary |= {"what_if": list(map(str, config.what_if)), "unchanged": before}
    return summary, first_steps(job, workers, seed)


def _check_measure(measure: float | None, alone: Floats) -> None:
    """Refuse a measurement in which one step would be rare: its rate is 0 or far above any."""
    if measure is not None and measure * alone.max() < 1:
        raise InputError(
            f"measure: no worker ends a step in {format_duration(measure)}: one takes "
            f"{format_duration(1 / alone.max())} alone, and a measurement many of them"
        )
