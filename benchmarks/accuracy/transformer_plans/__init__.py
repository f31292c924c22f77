"""Which of several plans to train a transformer on a cluster is the fastest, before any is run."""

from transformer_plans.accelerator import A100, Accelerator, durations_on
from transformer_plans.machines import dgx_a100
from transformer_plans.plan import Plan, PlanTime, predict_plan

__all__ = [
    "A100",
    "Accelerator",
    "Plan",
    "PlanTime",
    "dgx_a100",
    "durations_on",
    "predict_plan",
]
