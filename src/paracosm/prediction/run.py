"""Carry out what a configuration asks for, and say what it came to."""

from __future__ import annotations

from dataclasses import dataclass

from paracosm.prediction.breakdown import timeline_of
from paracosm.prediction.config import PredictConfig
from paracosm.prediction.predict import predict
from paracosm.prediction.replica import Announce, Progress, find_replica, measured_iteration
from paracosm.prediction.summary import summarise
from paracosm.results import Summary
from paracosm.timeline import Timeline

__all__ = ["PredictionRun", "run_prediction"]


@dataclass(frozen=True)
class PredictionRun:
    """A carried out prediction.

    Attributes:
        summary: the key numbers.
        timeline: the spans of every node; None for op latencies, which are many models.
    """

    summary: Summary
    timeline: Timeline | None


def run_prediction(
    config: PredictConfig,
    seed: int,
    progress: Progress | None = None,
    announce: Announce | None = None,
) -> PredictionRun:
    """Predict what a configuration asks for.

    Args:
        config: what to predict.
        seed: of what is profiled, fitted and drawn.
        progress: called while new ops are profiled, with how many are done.
        announce: told beforehand what is worth knowing.

    Raises:
        InputError: for what cannot be used, or has no timing.
        MissingExtraError: PyTorch is needed and not installed.
    """
    if config.op_latencies is not None:
        from paracosm.prediction.op_latencies import summarise_folder

        return PredictionRun(summarise_folder(config.op_latencies), None)
    if config.profile is not None:
        from paracosm.prediction.parameter_servers.run import run_throughput

        done = progress if config.predictions else None
        return PredictionRun(*run_throughput(config, seed, done))
    if config.is_on_cluster:
        from paracosm.prediction.jobs.run import run_on_cluster

        return PredictionRun(*run_on_cluster(config, seed, progress, announce))
    replica = find_replica(config, seed, progress, announce)
    prediction = predict(
        replica.graph,
        replica.found.durations,
        asynchronous=replica.asynchronous,
        launch=replica.launch,
        common=replica.found.common,
        baselines=replica.found.baselines,
    )
    measured = measured_iteration(config, replica)
    facts = replica.facts(config, prediction.coverage)
    summary = summarise(prediction, measured, replica.found.probe, facts)
    return PredictionRun(summary, timeline_of(prediction))
