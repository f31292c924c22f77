"""`paracosm relax`: simulation of an asynchronous iteration."""

from __future__ import annotations

from typing import Any

from paracosm.cli.options import Force, Jobs, Json, Out, Quiet, Seed, StudyFile, with_fields_of
from paracosm.cli.run_verb import run_verb
from paracosm.relaxation.config import RelaxConfig

__all__ = ["relax"]


@with_fields_of(RelaxConfig)
def relax(
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
    """Solve on imagined processors: iterates and residuals are real, time is simulated.

    Example: paracosm relax --problem laplace2d:20 --method jacobi --processors 20
    --time "normal(10, 3)" --tolerance 1e-6 --out runs/jacobi20
    """
    return run_verb("relax", study, arguments, seed, out, force, jobs, json, quiet)
