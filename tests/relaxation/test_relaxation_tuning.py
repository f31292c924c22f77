"""Tuning: the search finds what is known to be best, and says honestly how good it is."""

from __future__ import annotations

import csv
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from paracosm.backends import Backend
from paracosm.errors import InputError
from paracosm.faults import CheckpointPolicy
from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.run import run_relaxation
from paracosm.relaxation.settings import Setting, Simulations
from paracosm.relaxation.tuning import TimeOverFaultFree, complete_checkpoint
from paracosm.report import write_images
from paracosm.results import TuningSummary
from paracosm.results.kind import Hooks
from paracosm.results.tuning import Parameter
from paracosm.studies import RunFolder, Study, run_point
from paracosm.studies.tuning import TuneConfig, Tuning, tune

FAULT = ["uniform(-100, 100) every 1000s"]


def case(**changes: object) -> dict[str, object]:
    """The case of the notes' section 4 with many faults, unless `changes` say otherwise."""
    arguments = {"problem": "laplace2d:10", "processors": 10, "time": "normal(10, 1)"}
    return {**arguments, "fault": FAULT, **changes}


def config(**changes: object) -> RelaxConfig:
    return RelaxConfig.model_validate(case(**changes))


def study(relax: dict[str, object], space: str, **arguments: Any) -> dict[str, Any]:
    """Return the arguments of a tuning."""
    return {
        "study": {"relax": relax},
        "tune": space,
        "minimize": "time_over_fault_free",
        **arguments,
    }


def search(
    relax: dict[str, object],
    space: str,
    seed: int = 0,
    hooks: Hooks | None = None,
    **arguments: Any,
) -> Tuning:
    return tune(TuneConfig.model_validate(study(relax, space, **arguments)), seed, hooks=hooks)


def space_of(text: str) -> dict[str, Parameter]:
    return TimeOverFaultFree(case(), text).space


# ---------------------------------------------------------------------- what is varied


def test_a_space_is_read_as_it_is_written() -> None:
    assert [*space_of("alpha=1.05..20, omega=500ms..2min,processors=4..64").values()] == [
        Parameter("alpha", 1.05, 20.0, log=True),
        Parameter("omega", 0.5, 120.0, log=True),
        Parameter("processors", 4, 64, log=True, whole=True),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", 'cannot read ""'),
        ("alpha", 'cannot read "alpha"'),
        ("alpha=2", "give a range"),
        ("alpha=2|3", "give a range"),
        ("alpha=1..2, alpha=2..3", "alpha is given twice"),
        ("alhpa=1..2", 'did you mean "alpha"?'),
        ("alpha=2..1", "ascending"),
        ("alpha=0..1", "above 0"),
        ("omega=1..inf", "give a range"),
        ("alpha=1..1e400", "finite"),
        ("omega=1kg..2", "kg"),
        ("processors=1.5..4", "whole numbers"),
    ],
)
def test_a_space_that_cannot_be_read_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=r"^[^\n]*$") as refused:
        space_of(text)
    assert message in str(refused.value)


@given(
    name=st.sampled_from(["alpha", "relaxation"]),
    low=st.floats(0.01, 10),
    width=st.floats(0.1, 100),
    share=st.floats(0, 1),
)
def test_a_value_lies_where_its_share_says(
    name: str, low: float, width: float, share: float
) -> None:
    parameter = Parameter(name, low, low + width, log=name == "alpha")
    value = parameter.at(share)
    assert parameter.low <= value <= parameter.high
    # Rounding to four digits moves a value by a factor of 1 + 5e-4 at most.
    range_of_share = math.log(1 + width / low) if name == "alpha" else width / parameter.high
    assert parameter.share(value) == pytest.approx(share, abs=6e-4 / range_of_share)


def test_the_middle_of_a_logarithmic_range_is_the_geometric_mean() -> None:
    assert Parameter("omega", 1, 100, log=True).at(0.5) == 10
    assert Parameter("relaxation", 1, 2).at(0.5) == 1.5
    assert Parameter("processors", 2, 32, log=True, whole=True).at(0.5) == 8


def test_a_checkpoint_is_completed_with_what_is_tuned() -> None:
    space = [*space_of("alpha=1.5..3, omega=2..3s").values()]
    assert complete_checkpoint(None, space) == "alpha=1.5, omega=2s"
    assert complete_checkpoint("cost=1s", space[1:]) == "cost=1s, omega=2s"
    assert complete_checkpoint("alpha=2, omega=1s", space_of("relaxation=1..2").values()) == (
        "alpha=2, omega=1s"
    )
    with pytest.raises(InputError, match="alpha is to be tuned: leave it out"):
        complete_checkpoint("alpha=2, cost=1s", space)


# ---------------------------------------------------------------------- the runs


def test_a_run_is_that_of_the_same_seed_and_flags() -> None:
    runs = Simulations(config())
    found = runs.outcomes(Setting(CheckpointPolicy(2, 10)), (3, 5))
    for index, seed in enumerate((3, 5)):
        single = run_relaxation(config(checkpoint="alpha=2, omega=10s"), seed)
        free = run_relaxation(config(fault=None), seed)
        assert found.times[index] == single.summary["virtual_time"]
        assert found.ratios[index] == found.times[index] / free.summary["virtual_time"]
    assert found.converged.all()


def test_a_fault_at_a_random_time_strikes_when_it_does_alone() -> None:
    changes = {"fault": ["uniform(-100, 100) at random"]}
    runs = Simulations(config(**changes))
    found = runs.outcomes(Setting(), (0, 1))
    for index, seed in enumerate((0, 1)):
        single = run_relaxation(config(**changes), seed)
        assert found.times[index] == single.summary["virtual_time"]


def test_what_does_not_converge_counts_as_if_it_had_at_the_limit() -> None:
    runs = Simulations(config(), limit=3)
    seeds = range(4)
    found = runs.outcomes(Setting(CheckpointPolicy(1, 10)), seeds)
    assert not found.converged.any()
    assert found.failures == 1
    assert found.ratios == pytest.approx(np.full(4, 3))
    # The median is known after three of four.
    assert runs.outcomes(Setting(CheckpointPolicy(1, 10)), seeds, whole=False).ratios.size == 3
    capped = Simulations(config(max_time="5000s"), limit=3)
    found = capped.outcomes(Setting(CheckpointPolicy(1, 10)), seeds)
    assert found.times.tolist() == [
        min(5000, 3 * time) for time in capped.fault_free(seeds).tolist()
    ]


def test_an_update_takes_time_in_proportion_to_its_rows() -> None:
    # Synchronous Jacobi makes the same sweeps however its rows are dealt.
    runs = Simulations(config(fault=None, synchronous=True, time="constant(10)"))
    for processors in (5, 20):
        found = runs.outcomes(Setting(processors=processors), (0, 1))
        assert found.ratios == pytest.approx(np.full(2, 10 / processors))
    # Blocks of half the rows take half the time.
    common = {"fault": None, "processors": 4, "synchronous": True}
    coarse = config(**common, time="constant(10)", pattern="rotating(blocks=4)")
    fine = config(**common, time="constant(5)", pattern="rotating(blocks=8)")
    found = Simulations(coarse).outcomes(Setting(blocks=8), (0,))
    assert found.times[0] == run_relaxation(fine, 0).summary["virtual_time"]


# ---------------------------------------------------------------------- the search


def test_sor_on_one_processor_is_tuned_to_youngs_omega() -> None:
    # Young (1954): 2 / (1 + sin(pi h)) for the 5-point Laplacian in natural order.
    relax = case(fault=None, processors=1, time="constant(1)", method="sor(1.2)", rhs="ones")
    found = search(relax, "relaxation=1..1.95", seeds=1, trials=30)
    assert found.best.values["relaxation"] == pytest.approx(
        2 / (1 + math.sin(math.pi / 11)), abs=0.05
    )
    assert found.validation.keys() == {"best"}
    assert found.validation["best"].objective < 0.4
    assert found.summary().suggested_intervals == {}


@pytest.fixture(scope="module")
def landscape() -> Tuning:
    """Checkpoints that cost, x read at completion: the notes' case, and bad alphas besides."""
    relax = case(checkpoint="cost=1s", read="completion")
    return search(relax, "alpha=0.95..20, omega=1..500s", seeds=8, trials=24)


def test_the_best_policy_costs_little_and_no_policy_costs_much(landscape: Tuning) -> None:
    assert landscape.status == "done"
    assert landscape.validation["best"].objective < 1.1
    assert landscape.validation["best"].columns["failures"] == 0
    assert landscape.validation["no checkpoints"].objective > 2
    assert set(landscape.seeds).isdisjoint(landscape.fresh_seeds)


def test_alpha_at_most_one_fails_and_from_1_11_to_10_is_fine(landscape: Tuning) -> None:
    for trial in landscape.trials:
        if trial.values["alpha"] <= 1:
            assert trial.measured.columns["failures"] > 0.5
        if 1.11 <= trial.values["alpha"] <= 10:
            assert trial.measured.columns["failures"] == 0
            # First order: one checkpoint every omega, and half of it lost at every fault.
            omega = trial.values["omega"]
            expected = 1 + 1 / omega + omega / 2 / 1000
            assert trial.measured.objective == pytest.approx(expected, rel=0.08)


def test_the_best_omega_is_near_youngs_where_checkpoints_cost(landscape: Tuning) -> None:
    suggested = landscape.summary()["suggested_intervals"]["young"]
    assert suggested == pytest.approx(math.sqrt(2 * 1 * 1000), rel=1e-3)
    ratio = landscape.best.values["omega"] / suggested
    assert 1 / 2.5 < ratio < 2.5
    young = landscape.validation["young"].objective
    assert landscape.validation["best"].objective < 1.03 * young


def test_the_best_is_the_least_of_all_and_its_neighbours_are_named(landscape: Tuning) -> None:
    least = min(trial.measured.objective for trial in landscape.trials)
    assert landscape.best.measured.objective == least
    near = [t for t in landscape.trials if t.measured.objective <= 1.01 * least]
    for name, (low, high) in landscape.summary()["near_best"].items():
        values = [trial.values[name] for trial in near]
        assert (low, high) == (min(values), max(values))


SMALL: dict[str, object] = {
    "problem": "laplace2d:5", "processors": 3, "time": "normal(10, 1)",
    "fault": ["uniform(-100, 100) every 200s"],
}  # fmt: skip
SPACE = "alpha=1.05..20, omega=1..500s"


def small(jobs: int = 1, progress: Any = None, **changes: Any) -> Tuning:
    hooks = Hooks(progress, backend=Backend(jobs=jobs))
    return search(SMALL, SPACE, hooks=hooks, **{"seeds": 4, "trials": 8, **changes})


def test_a_search_can_be_made_again_and_counts_its_runs() -> None:
    counted: list[int] = []
    first, second = small(progress=lambda done, time: counted.append(done)), small()
    assert first == second
    assert small(seed=1) != first
    total = TuneConfig.model_validate(study(SMALL, SPACE, seeds=4, trials=8)).total
    assert counted == [*range(1, total + 1)]


@pytest.mark.slow
def test_several_jobs_find_what_one_does() -> None:
    assert small(jobs=2) == small()


def test_an_interrupt_keeps_the_best_so_far() -> None:
    def interrupting(done: int, time: float | None) -> None:
        if done >= 4 * 5 + 2:  # without faults, four trials, and half of the fifth
            raise KeyboardInterrupt

    found = small(progress=interrupting)
    assert found.status == "interrupted"
    assert len(found.trials) == 4
    assert found.trials == small().trials[:4]
    assert found.validation == {}


def test_an_interrupt_before_the_first_trial_leaves_nothing() -> None:
    def interrupting(done: int, time: float | None) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        small(progress=interrupting)


def test_a_search_without_success_says_so() -> None:
    found = search(SMALL, "alpha=0.9..1, omega=1..5s", seeds=3, trials=3).summary()
    assert found.status == "failed"
    assert any("stagnates" in sentence for sentence in found.remarks)


@pytest.mark.parametrize(
    ("changes", "space", "message"),
    [
        ({"fault": None}, SPACE, "give a fault"),
        ({}, "alpha=1.05..2", "omega"),
        ({"timeline": 3}, SPACE, "timeline: a tuning records none"),
        ({"tolerance": None, "max_time": 10}, SPACE, "required to tune the time to tolerance"),
        ({"method": "richardson(0.5)"}, SPACE, "without faults the iteration does not converge"),
        ({"max_sweeps": 2}, SPACE, "without faults the iteration does not converge"),
        ({"tolerance": 10.0}, SPACE, "nothing to tune"),
        ({"method": "sor"}, "relaxation=0.5..2", "sor: omega must be above 0 and below 2"),
        ({}, "processors=4..200", "200"),
        ({"speeds": "0.5,1,1,1,1"}, "processors=4..8", "speeds sets their number"),
        ({}, "blocks=4..8", "patterns random and rotating"),
    ],
)
def test_what_cannot_be_tuned_is_refused(
    changes: dict[str, object], space: str, message: str
) -> None:
    with pytest.raises(InputError, match=r"^[^\n]*$") as refused:
        search(case(**changes), space, seeds=2, trials=2)
    assert message in str(refused.value)


# ---------------------------------------------------------------------- the files


def in_folder(out: Path, relax: dict[str, object], space: str, force: bool = False) -> RunFolder:
    arguments = study(relax, space, seeds=2, trials=4)
    (point,) = Study.model_validate({"tune": arguments}).points("test")
    run_point(point, out, force)
    return RunFolder.open(out)


def test_the_files_hold_the_search(tmp_path: Path) -> None:
    out = tmp_path / "tune"
    run = in_folder(out, SMALL, SPACE)
    summary = run.results
    assert isinstance(summary, TuningSummary)
    assert run.study["tune"]["study"] == {"relax": SMALL}
    assert run.environment["seed"] == 0
    with (out / "trials.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    best = min(rows, key=lambda row: (float(row["time_over_fault_free"]), float(row["mean"])))
    assert len(rows) == summary.trials == 4
    assert float(best["omega"]) == summary.best["omega"]
    assert float(best["time"]) == summary.best["in_search"]["time"]["median"]
    with pytest.raises(InputError, match="not empty"):
        in_folder(out, SMALL, SPACE)
    (out / "mine").touch()
    in_folder(out, SMALL, SPACE, force=True)
    assert (out / "mine").exists()


@pytest.mark.parametrize(
    ("space", "policy", "figures"),
    [
        ("omega=1..500s", "alpha=2, cost=1s", ["omega"]),
        pytest.param(
            *("alpha=0.9..1, omega=1..5s", "cost=1s", ["landscape", "alpha", "omega"]),
            marks=pytest.mark.slow,
        ),
        ("alpha=1.05..9, omega=1..500s", "cost=1s", ["landscape", "alpha", "omega"]),
    ],
)
def test_every_landscape_can_be_drawn(
    tmp_path: Path, space: str, policy: str, figures: list[str]
) -> None:
    run = in_folder(tmp_path / "tune", {**SMALL, "checkpoint": policy}, space)
    written = write_images([run], tmp_path / "images")
    assert [file.stem for file in written] == figures
