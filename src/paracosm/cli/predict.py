"""`paracosm predict`: the time of an iteration from the timings of its ops."""

from __future__ import annotations

from typing import Any

from paracosm.cli.carry_out import carry_out
from paracosm.cli.options import Force, Jobs, Json, Out, Quiet, Seed, StudyFile, with_fields_of
from paracosm.prediction.config import PredictConfig

__all__ = ["predict"]


@with_fields_of(PredictConfig)
def predict(
    study: StudyFile = None,
    *,
    seed: Seed = None,
    out: Out = None,
    force: Force = False,
    jobs: Jobs = 1,
    json: Json = False,
    quiet: Quiet = False,
    **arguments: Any,
) -> int:
    """Predict iteration time, throughput and memory, on one device or on a whole cluster.

    Example: paracosm predict --model resnet34 --shape 3x32x32 --out runs/resnet34
    """
    return carry_out("predict", study, arguments, seed, out, force, jobs, json, quiet)
