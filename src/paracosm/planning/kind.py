"""Runs of `plan`, and runs of `train` whose schedule is predicted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from paracosm.errors import InputError
from paracosm.results.kind import Answer, Form, Hooks, Kind, Outcome
from paracosm.results.summaries import PlanSummary, ScriptPlanSummary, StrategyPlanSummary
from paracosm.training.kind import outcome_of


def _plan(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.planning.plan import run_plan

    summary = run_plan(
        config,
        seed,
        metrics,
        hooks.progress,
        hooks.announce,
        backend=hooks.backend,
        journal=hooks.journal,
    )
    return Outcome(summary)


def _plan_strategies(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.planning.strategy_plan import run_strategy_plan

    return Outcome(run_strategy_plan(config, seed, hooks.progress))


def _plan_script(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.planning.script_plan import run_script_plan

    return Outcome(run_script_plan(config, seed, hooks))


def _of_best(summary: Any) -> Mapping[str, float | None]:
    """Return the time of the fastest design, and the cost of the cheapest."""
    numbers: dict[str, float | None] = {}
    for name, best in {"time": "fastest", "cost": "cheapest"}.items():
        number = None if summary[best] is None else summary["designs"][summary[best]].get(name)
        numbers[name] = number["median"] if isinstance(number, Mapping) else number
    return numbers


KIND = Kind(
    verb="plan",
    noun="a plan",
    question="How long does it take to reach a target, and what does it cost?",
    help="Predict how long and how much money a model takes to train, on a cluster you don't have.",
    examples=(
        (
            "plan job.profile --model mlp --data digits --workers 1,2,4..32 --bandwidth 10Gbit/s "
            '--algorithm "asgd, ssgd, ssp(slack=3)" --lr 0.05,0.1,0.2 --target "test_loss <= 0.1" '
            '--price "2.5/h a worker" --out runs/plan'
        ),
        (
            "plan --model llama-8b --hardware h100-sxm --tokens 1e12 --batch-tokens 4e6 "
            '--max-workers 1024 --price "2.2/h"'
        ),
        "plan --script train.py --hardware h100-sxm,a100-sxm-80gb,l4 --workers 8,16,64",
    ),
    forms=(
        Form("paracosm.planning.config:PlanConfig", _plan),
        Form("paracosm.planning.strategy_plan:StrategyPlanConfig", _plan_strategies),
        Form("paracosm.planning.script_plan:ScriptPlanConfig", _plan_script),
    ),
    answers=(
        Answer(PlanSummary, "paracosm.planning.view:VIEW", "paracosm.planning.view:sentence"),
        Answer(
            StrategyPlanSummary,
            "paracosm.planning.strategy_view:VIEW",
            "paracosm.planning.strategy_view:sentence",
        ),
        Answer(
            ScriptPlanSummary,
            "paracosm.planning.script_view:VIEW",
            "paracosm.planning.script_view:sentence",
        ),
    ),
    objective=lambda config: "time",
    numbers=_of_best,
    names=("time", "cost"),
    ends=frozenset({"done", "not reached"}),
    of_many=True,
    file="a study file, whose values flags override; or a job profile, as --profile",
    adopt="paracosm.profiling.jobs.file:profile_argument",
)


def _train(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.planning.scheduled import run_scheduled

    if hooks.log:
        raise InputError(
            "--log has no effect with a schedule, which simulates no events: leave it out"
        )
    return outcome_of(run_scheduled(config, seed, metrics, hooks.progress, hooks.backend))


TRAIN = (
    Form("paracosm.planning.train_config:ProfileTrainConfig", _train),
    Form("paracosm.planning.train_config:StrategyTrainConfig", _train),
)
"""Forms of `train` whose schedule is predicted."""
