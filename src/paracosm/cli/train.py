"""`paracosm train`: hybrid simulation of distributed SGD."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from paracosm.cli.options import Force, Jobs, Json, Out, Quiet, Seed, StudyFile, with_fields_of
from paracosm.cli.run_verb import run_verb
from paracosm.training import TrainConfig


@with_fields_of(TrainConfig)
def train(
    study: StudyFile = None,
    *,
    seed: Seed = None,
    out: Out = None,
    force: Force = False,
    jobs: Jobs = 1,
    json: Json = False,
    quiet: Quiet = False,
    log: Annotated[bool, typer.Option("--log", help="print a line for every event")] = False,
    **arguments: Any,
) -> int:
    """Train on a simulated cluster: gradients are real, time and network are simulated.

    Example: paracosm train --algorithm asgd --workers 16 --latency 1ms --bandwidth 10Gbit/s
    --updates 500 --out runs/asgd16
    """
    return run_verb("train", study, arguments, seed, out, force, jobs, json, quiet, log)
