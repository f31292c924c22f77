"""A plan with what simple predictors say beside it."""

from __future__ import annotations

from pathlib import Path

import pytest
from profiled_network import save_network

from paracosm.planning.baselines import with_baselines
from paracosm.planning.config import PlanConfig
from paracosm.planning.plan import run_plan
from paracosm.results import PlanSummary


def plan(folder: Path, workers: str) -> tuple[PlanConfig, PlanSummary]:
    config = PlanConfig(
        profile=save_network(folder),
        workers=workers,
        algorithm="ssgd",
        lr="0.1",
        target="loss <= 1",
        bandwidth="10MB/s",
        seeds=2,
        updates=400,
        lookahead="off",
    )
    return config, run_plan(config, 0)


def test_designs_of_a_plan_have_baselines(tmp_path: Path) -> None:
    config, summary = plan(tmp_path, "1,4")
    alone, four = summary.designs
    assert alone.baselines is not None
    assert four.baselines is not None
    # One worker: all agree, on its own updates at its own rate.
    own = alone.updates.median / alone.steps_per_second
    assert list(alone.baselines.values()) == pytest.approx([own] * 3)
    assert own == pytest.approx(alone.time.median, rel=0.1)  # the rate counts evaluations after it
    # Four: the same examples at four workers' rate, or more where noise does not fill the batch.
    constant = alone.updates.median / four.steps_per_second
    assert four.baselines["constant_updates"] == pytest.approx(constant)
    for name in ("goodput", "critical_batch"):
        assert constant < four.baselines[name] < 4 * constant
    again = with_baselines(summary, config.with_batch(32).learning())
    assert again.designs == summary.designs


def test_a_plan_without_one_worker_has_none(tmp_path: Path) -> None:
    _, summary = plan(tmp_path, "2")
    assert summary.designs[0].baselines is None
