"""Gradients on processes equal those computed here; buffers and random streams included."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import nn

from paracosm.errors import InputError
from paracosm.models.data_sets import load_data
from paracosm.models.optimizers import Optimizer
from paracosm.models.registry import Model
from paracosm.training.numerics.gradients import GradientSource, make_gradients
from paracosm.training.numerics.local_steps import LocalStepSource
from paracosm.training.numerics.parameters import ParameterLayout
from paracosm.training.numerics.rules import update_rule
from paracosm.training.numerics.store import Recipe

DIGITS = load_data("digits")
REQUESTS = 11


def build() -> Model:
    """A network with everything that makes processes hard."""
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.Dropout(), nn.Linear(32, 10)
    )
    return Model(module, lambda outputs, targets: nn.functional.cross_entropy(outputs, targets))


@pytest.fixture(scope="module")
def pool() -> Iterator[tuple[Model, ParameterLayout, GradientSource]]:
    model = build()
    layout = ParameterLayout.of(model.module)
    patch = pytest.MonkeyPatch()
    patch.setattr("paracosm.training.numerics.gradients.available_cores", lambda: 2)
    # Room for seven at a time, so that eleven take two rounds.
    patch.setattr("paracosm.training.numerics.gradient_pool._POOL_MEMORY", 7 * 4 * layout.size)
    source = make_gradients(model, layout, DIGITS, "processes", REQUESTS, seed=3)
    patch.undo()
    yield model, layout, source
    source.close()


def test_processes_equal_one_by_one(
    pool: tuple[Model, ParameterLayout, GradientSource],
) -> None:
    model, layout, source = pool
    assert source.describe() == "on 2 processes"
    plain = build()
    alone = make_gradients(plain, layout, DIGITS, "off", REQUESTS, seed=3)
    rng = np.random.default_rng(0)
    flat = layout.flatten(plain.module)
    pairs = [(flat * (1 + 0.01 * (n // 2)), rng.integers(0, 1437, 10)) for n in range(REQUESTS)]
    pending = [source.request(*pair) for pair in pairs]
    expected = [alone.request(*pair) for pair in pairs]
    for request, reference in zip(pending, expected, strict=True):
        here, there = reference.result(), request.result()
        assert there.loss == pytest.approx(here.loss, rel=1e-5)
        assert (there.gradient - here.gradient).norm() < 1e-5 * here.gradient.norm()

    # Seven requests as seven tasks, then four as four: the mean of one step from the same start.
    def means(batch: np.ndarray, parameters: torch.Tensor) -> torch.Tensor:
        tensors = layout.unflatten(parameters)
        x = DIGITS.train_x[batch].flatten(1)
        return (x @ tensors["1.weight"].T + tensors["1.bias"]).mean(0)

    statistic = torch.zeros(32)
    for part in (pairs[:7], pairs[7:]):
        fresh = torch.stack([means(batch, parameters) for parameters, batch in part]).mean(0)
        statistic = 0.9 * statistic + 0.1 * fresh
    normalise = model.module.get_submodule("2")
    assert isinstance(normalise, nn.BatchNorm1d)
    assert torch.allclose(normalise.running_mean, statistic, atol=1e-5)
    assert int(normalise.num_batches_tracked) == REQUESTS


def test_local_steps_on_processes_equal_those_one_by_one(
    pool: tuple[Model, ParameterLayout, GradientSource],
) -> None:
    _, layout, together = pool
    plain = build()
    alone = make_gradients(plain, layout, DIGITS, "off", REQUESTS, seed=3)
    start = layout.flatten(plain.module)
    ends = []
    for source in (alone, together):
        rng = np.random.default_rng(2)
        local = LocalStepSource(source.policy, layout, Recipe(lr=0.1), source.buffers)
        asked = [
            local.request(
                start,
                rng.integers(0, 1437, (count, 10)),
                update_rule(Optimizer("sgd", {"momentum": 0.9}), 0.1),
                factors=(),
                keep_state=False,
                mu=0.0,
                shift=None,
            )
            for count in (3, 1, 2)
        ]
        ends.append([request.result().parameters for request in asked])
    for here, there in zip(*ends, strict=True):
        assert (there - here).norm() < 1e-5 * (here - start).norm()


def test_a_model_that_cannot_be_sent_is_refused() -> None:
    model = build()
    model.module.register_module("0", Stuck())
    with pytest.raises(InputError, match="cannot be sent to processes: RuntimeError: stuck"):
        make_gradients(model, ParameterLayout.of(model.module), DIGITS, "processes", 2)


class Stuck(nn.Flatten):
    def __reduce__(self) -> str:
        raise RuntimeError("stuck")
