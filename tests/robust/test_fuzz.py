"""The command line under three unsound commands and damaged files; thousands when slow."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from fuzz import WRITTEN
from sound_commands import COMMANDS

from paracosm.cli.verbs import VERBS
from paracosm.studies import KINDS


def fuzzed(*flags: str) -> str:
    """Return what the fuzzer found, in a process without threads, of which children are forked."""
    return run("fuzz.py", *flags)


def run(name: str, *flags: str) -> str:
    program = [sys.executable, str(Path(__file__).with_name(name)), *flags]
    done = subprocess.run(program, capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def test_no_verb_and_no_model_of_a_study_is_left_out() -> None:
    assert {each.verb(VERBS) for each in COMMANDS} == set(VERBS)
    models = {getattr(model, "__name__", "") for kind in KINDS.values() for model in kind.models}
    written = {name.partition(":")[2] for _, name, _ in WRITTEN}
    # Their fields are those of TrainConfig, and flags; those of the others are flags.
    plain = {
        *("PlanConfig", "ScheduleTrainConfig", "StrategyTrainConfig"),
        *("ReplayConfig", "TuneConfig", "DeviceEmulateConfig", "ScriptPlanConfig"),
    }
    assert models - written == plain


def test_what_is_unsound_runs_or_is_refused_in_one_line() -> None:
    assert fuzzed("--cases", "3", "--quick") == ""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_what_once_broke_something_is_answered() -> None:
    assert run("corpus.py") == ""


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(1, 13))
def test_so_do_thousands(seed: int) -> None:
    assert fuzzed("--cases", "500", "--seed", str(seed)) == ""
