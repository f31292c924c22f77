"""Runs of `tune`."""

from __future__ import annotations

from typing import Any

from paracosm.results.kind import Answer, Form, Hooks, Kind, Outcome
from paracosm.results.summaries import TuningSummary


def _run(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.studies.tuning.search import tune

    tuning = tune(config, seed, None if metrics is None else metrics.path, hooks)
    return Outcome(tuning.summary(), files=tuning.files())


KIND = Kind(
    verb="tune",
    noun="a tuning",
    question="With which arguments is a run fastest, or learns best?",
    help="Find the arguments of a study with which it is fastest, or learns best.",
    examples=(
        (
            'tune train.yaml --tune "lr=0.01..1 log, algorithm=asgd|ssgd" --minimize final_loss '
            "--trials 30 --jobs 2 --out runs/tuned"
        ),
    ),
    forms=(Form("paracosm.studies.tuning.config:TuneConfig", _run),),
    answers=(
        Answer(
            TuningSummary,
            "paracosm.studies.tuning.view:VIEW",
            "paracosm.studies.tuning.view:sentence",
        ),
    ),
    objective=lambda config: "reached",
    unit=lambda config: "runs",
    total=lambda config: config.total,
    ends=frozenset({"done", "failed"}),
    of_many=True,
    file="a study file of one run, of any kind; or of a tuning",
    adopt="paracosm.studies.tuning.config:study_argument",
)
