"""`paracosm predict`: iteration times from timings of ops, throughput from a job profile."""

from __future__ import annotations

from typing import Any

from paracosm.cli.options import StudyOrProfile, with_run_flags
from paracosm.cli.run_verb import run_verb, study_or_profile
from paracosm.prediction.kind import KIND


@with_run_flags(*KIND.models)
def predict(
    study: StudyOrProfile = None,
    **arguments: Any,
) -> int:
    """Predict iteration time, throughput and memory, on one device or on a whole cluster.

    Example: paracosm predict --model resnet34 --shape 3x32x32 --out runs/resnet34

    Example: paracosm predict job.profile --workers 1..16 --bandwidth 10Gbit/s
    """
    return run_verb("predict", study_or_profile(study, arguments), arguments)
