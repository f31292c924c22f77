"""Runs of `predict`."""

from __future__ import annotations

from typing import Any

from paracosm.results.kind import Answer, Form, Hooks, Kind, Outcome
from paracosm.results.summaries import IterationSummary, JobSummary, ThroughputSummary


def _run(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.prediction.run import run_prediction

    result = run_prediction(config, seed, hooks.progress, hooks.announce)
    return Outcome(result.summary, result.timeline)


def _unit(config: Any) -> str:
    if config.is_auto:
        return "strategies"
    return "predictions" if config.predictions else "new ops"


VIEW = "paracosm.prediction.view:VIEW"

KIND = Kind(
    verb="predict",
    noun="a prediction",
    question="How many examples/s, and what is the bottleneck?",
    help="Predict iteration time, throughput and memory, on one device or on a whole cluster.",
    examples=(
        "predict --model resnet34 --shape 3x32x32 --out runs/resnet34",
        "predict job.profile --workers 1..16 --bandwidth 10Gbit/s",
    ),
    forms=(
        Form("paracosm.prediction.config:PredictConfig", _run),
        Form("paracosm.prediction.parameter_servers.config:ThroughputConfig", _run),
    ),
    answers=(
        Answer(IterationSummary, VIEW, "paracosm.prediction.view:iteration_sentence"),
        Answer(JobSummary, VIEW, "paracosm.prediction.view:job_sentence"),
        Answer(ThroughputSummary, VIEW, "paracosm.prediction.parameter_servers.view:sentence"),
    ),
    objective=lambda config: "examples_per_second",
    maximizes=True,
    unit=_unit,
    total=lambda config: config.predictions,
    file="a study file, whose values flags override; or a job profile, as --profile",
    adopt="paracosm.profiling.jobs.file:profile_argument",
)
