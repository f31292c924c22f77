"""Runs of `emulate`."""

from __future__ import annotations

from typing import Any

from paracosm.results.kind import Answer, Form, Hooks, Kind, Outcome
from paracosm.results.summaries import EmulationSummary, ScriptSummary


def _run(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.emulation.run import run_emulation

    result = run_emulation(config, seed, metrics, hooks.progress, hooks.announce, hooks.sweep)
    return Outcome(result.summary, result.timeline, result.files)


def _check(config: Any) -> None:
    from paracosm.emulation.check import check_emulation

    check_emulation(config)


def _record(config: Any, seed: int, metrics: Any, hooks: Hooks) -> Outcome:
    from paracosm.emulation.device.run import run_script

    return run_script(config, seed, metrics, hooks)


KIND = Kind(
    verb="emulate",
    noun="an emulation",
    question="How does my own script behave as one rank of N?",
    help="Run an unmodified training script as one rank of a world of emulated ranks.",
    examples=(
        "emulate --world-size 16 --bandwidth 10Gbit/s train.py",
        "emulate --hardware dgx-h100 --world-size 64 train.py",
    ),
    forms=(
        Form("paracosm.emulation.config:EmulateConfig", _run, _check),
        Form("paracosm.emulation.device.config:DeviceEmulateConfig", _record),
    ),
    answers=(
        Answer(
            EmulationSummary, "paracosm.emulation.view:VIEW", "paracosm.emulation.view:sentence"
        ),
        Answer(
            ScriptSummary,
            view="paracosm.emulation.device.view:VIEW",
            sentence="paracosm.emulation.device.view:sentence",
        ),
    ),
    objective=lambda config: "iteration_time",
    unit=lambda config: "iterations",
    ends=frozenset({"done", "noisy"}),
    has_metrics=True,
    prints=lambda config: config.output == "terminal",
)
