"""Clipped gradients, against PyTorch's `clip_grad_norm_` and steps worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from metric_rows import column
from small_network import data, initial
from torch.nn.functional import cross_entropy

from paracosm.errors import InputError
from paracosm.models.shards import BatchSampler
from paracosm.planning.scheduled import iterations
from paracosm.rng import TrainingStream, generator, integer_seed
from paracosm.studies import KINDS
from paracosm.training import TrainConfig, TrainingResult, train
from paracosm.training.numerics.scheduled import train_on_schedule
from paracosm.training.numerics.store import Clipping

SEED = 5
LIMIT = 0.42  # some norms of the small network are above it


def run(**arguments: Any) -> TrainingResult:
    common: dict[str, Any] = {
        "model": "small_network:model",
        "data": "small_network:data",
        "batch": 8,
        "lr": 0.3,
        "updates": 20,
        "lookahead": "off",
        "clip": LIMIT,
    }
    return train(KINDS["train"].configured({**common, **arguments}, "test"), SEED)


def by_pytorch(workers: int, updates: int = 20) -> tuple[torch.Tensor, int]:
    """Train data-parallel with PyTorch; return the parameters and how many means were clipped."""
    module = initial(integer_seed(SEED, TrainingStream.MODEL))
    x, y = (torch.from_numpy(each) for each in data()[:2])
    samplers = [
        BatchSampler(np.arange(len(x)), 8, generator(SEED, TrainingStream.BATCHES, worker))
        for worker in range(workers)
    ]
    optimizer = torch.optim.SGD(module.parameters(), lr=0.3)
    clipped = 0
    for _ in range(updates):
        optimizer.zero_grad()
        for sampler in samplers:
            chosen = torch.from_numpy(sampler.next())
            (cross_entropy(module(x[chosen]), y[chosen]) / workers).backward()
        norm = torch.nn.utils.clip_grad_norm_(module.parameters(), LIMIT)
        clipped += bool(norm > LIMIT)
        optimizer.step()
    return torch.cat([p.detach().reshape(-1) for p in module.parameters()]), clipped


@pytest.mark.parametrize(
    "arguments",
    [
        {"algorithm": "sequential", "workers": 1},
        {"algorithm": "asgd", "workers": 1, "servers": 1},
        {"algorithm": "ssgd", "workers": 3},
        {"algorithm": "ssgd", "workers": 3, "topology": "all-reduce"},
    ],
)
def test_updates_are_clipped_as_data_parallel_training_does(arguments: dict[str, Any]) -> None:
    expected, clipped = by_pytorch(arguments["workers"])
    assert 3 < clipped < 20, "a limit that is sometimes reached"
    assert torch.allclose(run(**arguments).parameters, expected, atol=2e-6)


@pytest.mark.parametrize("algorithm", ["ssgd", "asgd", "dc-asgd"])
def test_parts_of_servers_are_clipped_by_the_norm_of_the_whole(algorithm: str) -> None:
    common = {"algorithm": algorithm, "workers": 3, "compute": "1s"}
    one, several = run(**common, evaluate_every=1), run(**common, evaluate_every=1, servers=3)
    assert column(several, "loss") == pytest.approx(column(one, "loss"), rel=1e-5)


def test_local_steps_are_clipped_one_by_one() -> None:
    """x = 1, f = x^2 / 2, so the gradient is x, clipped to 0.5 until it is below."""
    x = 1.0
    for _ in range(6):
        x -= 0.25 * min(x, 0.5)
    quadratic = {"model": "quadratic:model", "data": "quadratic:data", "batch": 1, "lr": 0.25}
    result = run(
        **quadratic, algorithm="local-sgd(3)", workers=2, updates=2, clip=0.5, compute="1s"
    )
    assert float(result.parameters) == pytest.approx(x, rel=1e-5)


def test_over_a_schedule_the_clipped_losses_are_the_same(tmp_path: Path) -> None:
    for algorithm in ("softsync", "fedbuff"):
        given = {"algorithm": algorithm, "workers": 3, "updates": 15}
        timing = train(TrainConfig(**given, timing_only=True, timeline=False), SEED)
        assert timing.schedule is not None
        timing.schedule.write(tmp_path / "schedule.parquet")
        engine = run(**given, timeline=False)
        over = run(algorithm=algorithm, updates=15, schedule=tmp_path / "schedule.parquet")
        assert column(over, "minibatch_loss") == column(engine, "minibatch_loss")
        assert column(over, "minibatch_loss") != column(
            run(algorithm=algorithm, updates=15, schedule=tmp_path / "schedule.parquet", clip=9),
            "minibatch_loss",
        )


@pytest.mark.parametrize("tensors", [False, True])
def test_a_sum_is_clipped_as_what_it_is(tensors: bool, tmp_path: Path) -> None:
    """Three gradients of the quadratic, 1 each: their sum, 3, is clipped to 0.6."""
    given: dict[str, Any] = {
        "model": "quadratic:model",
        "data": "quadratic:data",
        "batch": 1,
        "lr": 0.5,
        "algorithm": "ssgd(reduce=sum)",
        "updates": 1,
        "clip": 0.6,
    }
    if not tensors:
        assert float(run(**given, workers=3).parameters) == pytest.approx(1 - 0.5 * 0.6, rel=1e-5)
        return
    (block,) = [next(iterations(3, 1.0))]
    result = train_on_schedule(TrainConfig(**given, workers=3), [block], ("x",), SEED)
    assert float(result.parameters) == pytest.approx(1 - 0.5 * 0.6, rel=1e-5)


@given(
    st.lists(st.lists(st.floats(-9, 9, width=32), min_size=3, max_size=3), min_size=1, max_size=4),
    st.floats(0.1, 5),
)
def test_a_clipped_mean_is_no_longer_than_the_limit(
    rows: Sequence[Sequence[float]], limit: float
) -> None:
    gradients = [torch.tensor(row) for row in rows]
    weights = [1.0 + index for index in range(len(rows))]
    factor = Clipping(limit).factor(gradients, weights)
    mean = np.average(np.array(rows, np.float64), axis=0, weights=weights)
    norm = float(np.linalg.norm(mean))
    assert 0 < factor <= 1
    assert factor * norm <= limit * (1 + 1e-5)
    assert factor == 1 or norm >= limit * (1 - 1e-5) - 1e-6


def test_both_forms_of_a_gradient_have_one_norm() -> None:
    flat = torch.arange(1.0, 7.0)
    parts = (flat[:2].view(2, 1), flat[2:])
    assert Clipping(1.0).factor([parts], [1.0]) == pytest.approx(
        Clipping(1.0).factor([flat], [1.0])
    )


def test_a_gradient_that_is_not_a_number_is_left_as_it_is() -> None:
    assert Clipping(1.0).factor([torch.tensor([float("nan")])], [1.0]) == 1


@pytest.mark.parametrize("limit", [0, -1, "inf", "abc"])
def test_a_limit_is_a_finite_number_above_0(limit: object) -> None:
    with pytest.raises(InputError, match="clip"):
        run(clip=limit)
