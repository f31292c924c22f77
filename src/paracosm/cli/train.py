"""`paracosm train`: hybrid simulation of distributed SGD."""

from __future__ import annotations

from typing import Annotated, Any

from typer import Option

from paracosm.cli.options import StudyFile, with_run_flags
from paracosm.cli.run_verb import run_verb
from paracosm.studies import KINDS


@with_run_flags(*KINDS["train"].models, scalars=True)
def train(
    study: StudyFile = None,
    *,
    log: Annotated[bool, Option("--log", help="print a line for every event")] = False,
    **arguments: Any,
) -> int:
    """Train on a simulated cluster: gradients are real, time and network are simulated.

    Example: paracosm train --algorithm asgd --workers 16 --latency 1ms --bandwidth 10Gbit/s
    --updates 500 --out runs/asgd16
    """
    return run_verb("train", study, arguments, log)
