"""`paracosm predict`: iteration times from timings of ops, throughput from a job profile."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from typer import Argument

from paracosm.cli.options import with_run_flags
from paracosm.cli.run_verb import run_verb
from paracosm.errors import InputError
from paracosm.prediction.config import PredictConfig


@with_run_flags(PredictConfig)
def predict(
    study: Annotated[
        Path | None,
        Argument(
            help="a study file, which flags take the place of; or a job profile, as --profile"
        ),
    ] = None,
    **arguments: Any,
) -> int:
    """Predict iteration time, throughput and memory, on one device or on a whole cluster.

    Example: paracosm predict --model resnet34 --shape 3x32x32 --out runs/resnet34

    Example: paracosm predict job.profile --workers 1..16 --bandwidth 10Gbit/s
    """
    from paracosm.profiling.jobs.file import is_job_profile

    if study is not None and is_job_profile(study):
        if arguments.get("profile") is not None:
            raise InputError(f"{study}: a job profile, and --profile names another: give one")
        study, arguments["profile"] = None, str(study)
    return run_verb("predict", study, arguments)
