"""The parts of a recipe together, with every algorithm."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from metric_rows import column

from paracosm.training.algorithms.registry import ALGORITHMS
from paracosm.training.config import TrainConfig
from paracosm.training.record import TrainingResult
from paracosm.training.run import train

RECIPE: dict[str, Any] = {
    "lr_schedule": "linear(updates=8, end=0.5)",
    "warmup": "2 updates",
    "clip": 0.5,
    "ema": 0.5,
}
EXAMPLES = "examples(clip=0.5, noise=0.1)"


def run(algorithm: str, **arguments: Any) -> TrainingResult:
    kind = ALGORITHMS[algorithm]
    common: dict[str, Any] = {
        "model": "small_network:model",
        "data": "small_network:data",
        "algorithm": algorithm,
        "workers": 1 if algorithm == "sequential" else 4,
        "batch": 8,
        "lr": 0.3,
        "updates": 8,
        "evaluate_every": 4,
        "topology": kind.topologies[0],
    }
    return train(TrainConfig(**{**common, **arguments}), seed=1)


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_every_algorithm_follows_the_recipe(algorithm: str) -> None:
    plain, followed = run(algorithm), run(algorithm, **RECIPE)
    # t = 0: a third of 0.3; t = 4: (4 - 2) / 6 of the way from 1 to 1/2; t = 8: the end.
    assert column(followed, "learning_rate") == pytest.approx([0.1, 0.25, 0.15])
    assert all(map(math.isfinite, column(followed, "loss")))
    assert not torch.equal(plain.parameters, followed.parameters)
    assert not torch.equal(followed.average, followed.parameters)
    # What the recipe changes is no time.
    assert followed.summary.virtual_time == plain.summary.virtual_time


@pytest.mark.parametrize("algorithm", list(ALGORITHMS))
def test_every_algorithm_hides_examples(algorithm: str) -> None:
    hidden = run(algorithm, privacy=EXAMPLES, updates=2, evaluate_every=2)
    assert hidden.summary.epsilon is not None
    assert hidden.summary.epsilon > 0
    assert torch.isfinite(hidden.parameters).all()
    assert hidden.summary.lookahead == "by example, clipped and with noise"
