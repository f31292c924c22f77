"""A run from its configuration to summary, metrics and timeline."""

from __future__ import annotations

import json
from math import sqrt
from typing import Any

import numpy as np
import pytest

from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.problems import load_problem
from paracosm.relaxation.run import relax, run_relaxation

BASE: dict[str, Any] = {"problem": "laplace2d:10", "processors": 5, "time": "normal(10, 2)"}


class Sink(list[tuple[float, str, str, float, int]]):
    def metric(
        self, virtual_time: float, wall_time: float, node: str, name: str, value: float, step: int
    ) -> None:
        assert wall_time >= 0
        self.append((virtual_time, node, name, value, step))


def summary(seed: int = 0, **more: Any) -> dict[str, Any]:
    found = run_relaxation(RelaxConfig(**{**BASE, **more}), seed).summary
    json.dumps(found.to_dict(), allow_nan=False)  # as summary.json holds it
    return found


def test_flags_and_arguments_are_the_same_run() -> None:
    flags = run_relaxation(
        RelaxConfig(**BASE, method="sor(1.2)", pattern="cyclic", norm="inf", relative=True), seed=4
    ).result
    arguments = relax(
        load_problem("laplace2d:10", seed=4), processors=5, time="normal(10, 2)",
        method="sor(1.2)", pattern="cyclic", norm=float("inf"), relative=True, seed=4,
    )  # fmt: skip
    assert flags.x.tobytes() == arguments.x.tobytes()
    assert flags.virtual_time == arguments.virtual_time


def test_the_summary_says_what_happened() -> None:
    run = run_relaxation(RelaxConfig(**BASE), 3)
    found, result = run.summary, run.result
    assert found["status"] == "converged"
    assert (found["method"], found["read"], found["memory"]) == ("jacobi", "start", "shared")
    assert (found["unknowns"], found["nonzeros"], found["processors"]) == (100, 460, 5)
    assert found["residual"] == result.residual <= found["tolerance"] == 1e-6
    assert found["initial_residual"] == pytest.approx(1)
    assert found["relaxations"] == result.relaxations == 20 * found["updates"]
    assert found["sweeps"] == result.relaxations / 100
    assert found["updates"] == result.updates.sum()
    per_processor = found["updates_per_processor"]
    assert (per_processor["least"], per_processor["most"]) == (
        result.updates.min(),
        result.updates.max(),
    )
    assert found["virtual_time"] == result.virtual_time
    assert sum(found["staleness"]["counts"]) == found["updates"]
    assert found["staleness"]["max"] == len(found["staleness"]["counts"]) - 1
    assert found["spectral_radius"]["value"] == pytest.approx(np.cos(np.pi / 11), abs=1e-6)
    assert "normal(10" in found["durations"]["update"]
    assert "faults" not in found
    assert "growth_rate" not in found


def test_metrics_are_the_history_and_the_end() -> None:
    sink = Sink()
    result = run_relaxation(RelaxConfig(**BASE), 3, metrics=sink).result
    residuals = [row for row in sink if row[2] == "residual"]
    assert [row[3] for row in residuals] == result.residuals.tolist()
    assert [row[0] for row in residuals] == result.times.tolist()
    assert [row[4] for row in residuals] == np.rint(result.sweeps * 100).tolist()
    assert {row[1] for row in residuals} == {"observer"}
    updates = {row[1]: row[3] for row in sink if row[2] == "updates"}
    assert updates == {f"processor{i}": n for i, n in enumerate(result.updates.tolist())}
    assert {row[2] for row in sink} == {"residual", "updates", "synchronous_residual"}


def test_metrics_of_faults_and_of_the_error() -> None:
    sink = Sink()
    config = RelaxConfig(
        **BASE, fault="uniform(-100, 100) at 300s", checkpoint="alpha=2, omega=50s",
        error_tolerance=1e-6, read="completion",
    )  # fmt: skip
    result = run_relaxation(config, 3, metrics=sink).result
    for what in ("fault", "rollback", "checkpoint"):
        marks = [(m.time, m.residual, m.relaxations) for m in result.marks if m.what == what]
        assert [(row[0], row[3], row[4]) for row in sink if row[2] == what] == marks
        assert marks
    errors = [row[3] for row in sink if row[2] == "error"]
    np.testing.assert_array_equal(errors, result.errors[np.isfinite(result.errors)])
    assert errors[-1] < errors[0]


def test_the_run_without_faults_leaves_no_metrics() -> None:
    """To know when a random fault may strike, the iteration runs without it first."""
    sink = Sink()
    result = run_relaxation(RelaxConfig(**BASE, fault="signflip at random"), 3, sink).result
    times = [row[0] for row in sink if row[2] == "residual"]
    assert times == result.times.tolist()


def test_faults_in_the_summary() -> None:
    given = {"fault": "uniform(-100, 100) at 300s", "read": "completion"}
    missed = summary(**given)["faults"]
    assert missed["injected"] == 1
    (event,) = missed["events"]
    assert event["time"] == 300
    assert event["residual_after"] > 100 > event["residual_before"]
    found = summary(**given, checkpoint="alpha=2, omega=50s")
    assert (found["faults"]["detected"], found["faults"]["undetected"]) == (1, 0)
    assert found["faults"]["false_alarms"] == 0
    assert found["checkpoints"]["rollbacks"] == 1
    assert found["checkpoints"]["taken"] == pytest.approx(found["virtual_time"] / 50, abs=1)
    random = summary(fault="signflip at random", seed=5)["faults"]
    assert 0 < random["events"][0]["time"] < random["fault_free_time"]


def test_suggested_intervals() -> None:
    """Young (1974): sqrt(2 c M), with c = 4 s and M = 200 s."""
    found = summary(
        fault="signflip on 1 component every 200s", checkpoint="alpha=2, omega=young, cost=4s",
        max_sweeps=50, tolerance=None,
    )["checkpoints"]  # fmt: skip
    assert found["suggested_interval_young"] == pytest.approx(sqrt(2 * 4 * 200))
    assert "omega=40s" in found["policy"]
    assert found["cost"] == 4 * found["taken"]
    assert found["suggested_interval_daly"] > 0


def test_speeds() -> None:
    run = run_relaxation(
        RelaxConfig(problem="laplace2d:4", time="10s", processors=4, speeds="1,1,0.5,1",
                    max_time=100, tolerance=None)
    )  # fmt: skip
    assert run.result.updates.tolist() == [10, 10, 5, 10]
    assert "at given speeds" in run.summary["durations"]["update"]


def test_the_timeline_is_the_first_updates() -> None:
    run = run_relaxation(RelaxConfig(**BASE, timeline=50), 3)
    assert run.timeline is not None
    first = [(node, resource, name) for node, resource, name, *_ in run.timeline.spans]
    assert len(first) == 50
    assert first[:5] == [(f"processor{who}", "compute", "relax") for who in (4, 3, 2, 1, 0)]
    none = run_relaxation(RelaxConfig(**BASE, timeline=0), 3)
    assert none.timeline is None


def test_the_solution_is_computed_where_the_error_is_asked_for() -> None:
    found = summary(error_tolerance=1e-4, tolerance=None, max_sweeps=2000)
    assert found["status"] == "converged"
    assert found["error"] <= 1e-4


@pytest.mark.parametrize("read", ["start", "completion"])
def test_updates_too_short_to_move_the_clock_are_of_one_instant_each(read: Any) -> None:
    def seconds(processor: int, update: int, u: float) -> float:
        return 1.0 if processor == 0 or update == 0 else 1e-30

    problem = load_problem("laplace2d:5")
    found = relax(problem, processors=2, time=seconds, max_sweeps=200, read=read)
    assert found.virtual_time == pytest.approx(1.0)
    assert found.relaxations >= 200 * 25


@pytest.mark.filterwarnings("error")
def test_a_step_that_overflows_diverges_without_a_warning() -> None:
    config = RelaxConfig(problem="laplace2d:5", method="richardson(1e308)", time="10ms")
    assert run_relaxation(config).summary.status == "diverged"
