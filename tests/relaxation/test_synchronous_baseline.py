"""The synchronous baseline: the same run with a barrier, and where the two are compared."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from paracosm.relaxation.config import RelaxConfig
from paracosm.relaxation.run import run_relaxation
from paracosm.relaxation.spec import spec_of
from paracosm.relaxation.synchronous_baseline import MOST, SWEEPS, TIMES, baseline_spec, compare
from paracosm.report.runs import answer

ASKED = {"problem": "laplace2d:10", "processors": 5, "time": "normal(10, 3)", "tolerance": 1e-4}


def test_the_baseline_is_the_synchronous_run_of_the_same_arguments() -> None:
    run = run_relaxation(RelaxConfig(**ASKED), 3)
    synchronous = run_relaxation(RelaxConfig(**ASKED, synchronous=True), 3).summary
    alone = run_relaxation(RelaxConfig(**ASKED, baseline=False), 3).summary
    baseline = run.summary.twin
    assert baseline is not None
    assert baseline.virtual_time == synchronous.virtual_time
    assert baseline.sweeps == synchronous.sweeps
    assert (baseline.run_time, baseline.twin_time) == (alone.virtual_time, synchronous.virtual_time)
    assert (alone.twin, synchronous.twin) == (None, None)
    # What the run itself comes to is the same with and without it.
    same = {"twin": None, "wall_time": 0.0}
    assert replace(run.summary, **same) == replace(alone, **same)
    ratio = synchronous.virtual_time / alone.virtual_time
    assert ratio > 1.05  # the barrier waits for the slowest of five
    assert f"Asynchronous is {ratio:.2g} times as fast as synchronous here" in answer(run.summary)


def test_a_barrier_costs_nothing_where_all_take_the_same_time() -> None:
    asked = {**ASKED, "processors": 1, "time": "10s"}
    summary = run_relaxation(RelaxConfig(**asked), 0).summary
    assert "Asynchronous is as fast as synchronous here" in answer(summary)


def test_where_one_did_not_converge_they_are_compared_at_a_residual_of_both() -> None:
    run = run_relaxation(RelaxConfig(**ASKED), 3).result
    baseline = run_relaxation(RelaxConfig(**ASKED, synchronous=True, max_sweeps=40), 3).result
    assert (run.status, baseline.status) == ("converged", "stopped")
    found = compare(run, baseline)
    lowest = min(baseline.residuals)
    assert found.level == pytest.approx(lowest)
    first = next(t for t, r in zip(run.times, run.residuals, strict=True) if r <= lowest)
    assert found.run_time == first
    assert found.twin_time == baseline.times[int(np.argmin(baseline.residuals))]


def test_the_baseline_is_bounded_by_sweeps_and_by_work() -> None:
    run = run_relaxation(RelaxConfig(**ASKED), 3)
    spec = spec_of(RelaxConfig(**ASKED), 3)
    baseline = baseline_spec(spec, run.result)
    assert baseline is not None
    own = run.result.sweeps[-1]
    assert baseline.config.max_sweeps == max(SWEEPS, TIMES * own)
    assert baseline.config.max_sweeps * spec.problem.A.nnz < MOST
    long = replace(run.result, sweeps=np.array([1e12]))
    bounded = baseline_spec(spec, long)
    assert bounded is not None
    assert bounded.config.max_sweeps == min(100_000.0, MOST / spec.problem.A.nnz)


def test_a_diverging_baseline_is_said() -> None:
    asked = {"problem": "laplace2d:10", "method": "richardson(0.6)", "processors": 5}
    summary = run_relaxation(RelaxConfig(**asked), 1).summary
    assert summary.twin is not None
    assert summary.twin.status == "diverged"
    assert "The same iteration, synchronous, diverges" in answer(summary)


def test_what_has_no_synchronous_form_has_no_baseline() -> None:
    def pattern(processor: int, update: int, u: float) -> list[int]:
        return [int(100 * u)]

    config = RelaxConfig(**{**ASKED, "max_sweeps": 50}, pattern=pattern)
    assert run_relaxation(config, 1).summary.twin is None
