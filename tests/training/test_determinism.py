"""One seed gives one run to the bit: whatever clocks say, and however many runs go on at a time."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from paracosm.backends import Backend
from paracosm.studies import RunFolder, Study, run_sweep
from paracosm.training import Metrics, TrainConfig, train
from paracosm.training.numerics import gradients as gradients_module
from paracosm.training.numerics import local_steps as local_steps_module

Rows = list[tuple[str, str, float, int, float]]


def frozen() -> Callable[[], float]:
    """Return a clock of a machine on which everything takes no time."""
    return lambda: 0.0


def jumping() -> Callable[[], float]:
    """Return a clock of a machine that is so busy that every gradient takes an hour."""
    hours = itertools.count()
    return lambda: 3600.0 * next(hours)


def stuttering() -> Callable[[], float]:
    """Return a clock of a machine that is busy now and then."""
    calls = itertools.count()
    return lambda: sum(50.0 * (call % 7 == 0) for call in range(next(calls) % 100))


def rows(clock: Callable[[], float], monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> Rows:
    for module in (gradients_module, local_steps_module):
        monkeypatch.setattr(module, "perf_counter", clock)
    # A pool would be started by a clock like this, and takes seconds; its values are held to those
    # of one by one in test_process_pool.
    monkeypatch.setattr(gradients_module, "available_cores", lambda: 1)
    metrics = Metrics()
    train(TrainConfig(**arguments), seed=1, metrics=metrics)
    return [(row.node, row.name, row.value, row.step, row.virtual_time) for row in metrics.rows]


@pytest.mark.parametrize(
    "arguments",
    [
        {},  # a default run, but for its length
        {"workers": 20, "model": "small_network:model", "data": "small_network:data"},
        {"algorithm": "fedbuff(steps=3)", "workers": 6, "optimizer": "adamw", "lr": 0.01},
        pytest.param({"algorithm": "fedavg(steps=3)", "workers": 20}, marks=pytest.mark.slow),
    ],
)
def test_the_load_of_the_machine_changes_no_row(
    arguments: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = {"updates": 60, **arguments}
    expected = rows(frozen(), monkeypatch, **asked)
    assert len(expected) > 100
    for clock in (jumping, stuttering):
        assert rows(clock(), monkeypatch, **asked) == expected


def test_no_clock_starts_a_pool_where_the_number_that_waits_decides_over_vmap(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def started(*_: object) -> None:
        raise AssertionError("a pool was started")

    monkeypatch.setattr(gradients_module.LocalWorkers, "__init__", started)
    monkeypatch.setattr(gradients_module, "perf_counter", jumping())
    monkeypatch.setattr(gradients_module, "available_cores", lambda: 4)
    small = {"model": "normalised_network:by_layer", "data": "normalised_network:data"}
    # Neither with so many workers that vmap computes what waits, nor with fewer.
    for workers in (20, 5):
        train(TrainConfig(workers=workers, updates=60, **small), seed=1)


def test_a_recipe_is_as_deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = {
        "updates": 20,
        "lr_schedule": "cosine",
        "warmup": "5 updates",
        "ema": 0.9,
        "privacy": "examples(clip=1, noise=1)",
    }
    assert rows(frozen(), monkeypatch, **recipe) == rows(jumping(), monkeypatch, **recipe)


@pytest.mark.slow
def test_several_jobs_make_the_runs_that_one_makes(tmp_path: Path) -> None:
    def sweep(jobs: int) -> list[Rows]:
        study = Study.model_validate(
            {"train": {"updates": 30, "ema": 0.9}, "over": {"workers": [2, 4]}, "seed": 3}
        )
        points, out = study.points("test"), tmp_path / str(jobs)
        run_sweep(study, points, out, Backend(jobs=jobs))
        return [measured(RunFolder.open(out / point.name)) for point in points]

    assert sweep(2) == sweep(1)


def measured(folder: RunFolder) -> Rows:
    """Return the rows of a run folder without its wall times."""
    import pyarrow.parquet

    table = pyarrow.parquet.read_table(folder.path / "metrics.parquet").to_pylist()
    names = ("node", "name", "value", "step", "virtual_time")
    return [tuple(row[name] for name in names) for row in table]  # type: ignore[misc]
