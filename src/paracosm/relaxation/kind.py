"""Runs of `relax`."""

from __future__ import annotations

from typing import Any

from paracosm.results.kind import Answer, Form, Hooks, Kind, Outcome
from paracosm.results.summaries import RelaxationSummary


def _run(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.relaxation.run import run_relaxation

    result = run_relaxation(config, seed, metrics, hooks.progress, hooks.announce)
    return Outcome(result.summary, result.timeline)


KIND = Kind(
    verb="relax",
    noun="a relaxation",
    question="Does an asynchronous iteration converge, and how fast?",
    help="Solve on simulated processors: iterates and residuals are real, time is simulated.",
    examples=(
        (
            'relax --problem laplace2d:20 --method jacobi --processors 20 --time "normal(10, 3)" '
            "--tolerance 1e-6 --out runs/jacobi20"
        ),
    ),
    forms=(Form("paracosm.relaxation.config:RelaxConfig", _run),),
    answers=(
        Answer(
            RelaxationSummary, "paracosm.relaxation.view:VIEW", "paracosm.relaxation.view:sentence"
        ),
    ),
    objective=lambda config: "virtual_time",
    reached=lambda summary, name: name in ("residual", "error") or summary.status == "converged",
    comparisons={"time_over_fault_free": "paracosm.relaxation.tuning:TimeOverFaultFree"},
    unit=lambda config: "relaxations",
    success="converged",
    ends=frozenset({"converged", "stopped", "diverged"}),
    has_metrics=True,
)
