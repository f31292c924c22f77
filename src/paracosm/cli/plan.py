"""`paracosm plan`: time and cost to a target, from a profile; or of a transformer's tokens."""

from __future__ import annotations

from typing import Any

from paracosm.cli.options import StudyOrProfile, with_run_flags
from paracosm.cli.run_verb import run_verb, study_or_profile
from paracosm.planning.config import PlanConfig
from paracosm.planning.strategy_plan import StrategyPlanConfig


@with_run_flags(PlanConfig, StrategyPlanConfig)
def plan(study: StudyOrProfile = None, **arguments: Any) -> int:
    """Predict how long and how much money a model takes to train, on a cluster you don't have.

    Example: paracosm plan job.profile --model mlp --data digits --workers 1,2,4..32 --bandwidth
    10Gbit/s --algorithm "asgd, ssgd, ssp(slack=3)" --lr 0.05,0.1,0.2 --target "test_loss <= 0.1"
    --price "2.5/h a worker" --out runs/plan

    Example: paracosm plan --model llama-8b --hardware h100-sxm --tokens 1e12 --batch-tokens 4e6
    --max-workers 1024 --price "2.2/h"
    """
    return run_verb("plan", study_or_profile(study, arguments), arguments)
