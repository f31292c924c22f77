"""Runs of `train`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from paracosm.results.kind import Answer, Form, Hooks, Kind, Outcome
from paracosm.results.summaries import TrainingSummary


def outcome_of(result: Any) -> Outcome:
    """Return what a run folder holds of a `TrainingResult`."""
    files: dict[str, Callable[[Path], None]] = {}
    if result.recording is not None:
        files["recording.json"] = result.recording.save
    if result.schedule is not None:
        files["schedule.parquet"] = result.schedule.write
    return Outcome(result.summary, result.timeline, files)


def _run(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.training import train

    return outcome_of(train(config, seed, metrics, hooks.progress, hooks.log, hooks.backend))


def _updates(config: Any) -> int | None:
    is_open = config.until_time is not None or hasattr(config, "schedule")
    total: int | None = config.updates if is_open else config.most_updates
    return total


KIND = Kind(
    verb="train",
    noun="a training run",
    question="Does the model still learn with that many workers?",
    help="Train on a cluster you don't have: gradients are real, time and network simulated.",
    examples=(
        (
            "train --algorithm asgd --workers 16 --latency 1ms --bandwidth 10Gbit/s --updates 500 "
            "--out runs/asgd16"
        ),
    ),
    forms=(
        Form("paracosm.training.config:TrainConfig", _run),
        Form("paracosm.training.config:ScheduleTrainConfig", _run),
    ),
    answers=(
        Answer(
            TrainingSummary, "paracosm.training.view:VIEW", "paracosm.training.sentence:sentence"
        ),
    ),
    objective=lambda config: "final_loss" if config.target is None else "reached_at",
    unit=lambda config: "updates",
    total=_updates,
    ends=frozenset({"done", "diverged", "stopped"}),
    has_metrics=True,
    logs=True,
    exports={"flower": "paracosm.training.flower:export"},
    on_clusters=True,
)
