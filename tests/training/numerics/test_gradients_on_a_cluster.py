"""Gradients that the workers of a cluster compute equal those computed here."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from paracosm.backends import Backend
from paracosm.errors import InputError
from paracosm.models.data_sets import load_data
from paracosm.models.registry import Model
from paracosm.training import TrainConfig, train
from paracosm.training.numerics.gradients import make_gradients
from paracosm.training.numerics.parameters import ParameterLayout

DIGITS = load_data("digits")
REQUESTS = 70  # two gradients a task, and a task of what remains


def normalised() -> Model:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Flatten(), nn.Linear(64, 16), nn.BatchNorm1d(16), nn.Dropout(), nn.Linear(16, 10)
    )
    return Model(module, lambda outputs, targets: nn.functional.cross_entropy(outputs, targets))


def process_as_loss() -> Model:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    return Model(module, lambda outputs, targets: 0 * outputs.sum() + os.getpid())


@pytest.mark.slow
def test_they_equal_those_computed_one_by_one(dask: Backend) -> None:
    model, plain = normalised(), normalised()
    layout = ParameterLayout.of(model.module)
    there = make_gradients(model, layout, DIGITS, "auto", REQUESTS, seed=3, backend=dask)
    here = make_gradients(plain, layout, DIGITS, "off", REQUESTS, seed=3)
    assert there.describe() == "on the workers of dask"
    rng = np.random.default_rng(0)
    flat = layout.flatten(plain.module)
    pairs = [(flat * (1 + 0.01 * n), rng.integers(0, 1437, 10)) for n in range(REQUESTS)]
    asked = [[source.request(*pair) for pair in pairs] for source in (there, here)]
    for ours, theirs in zip(*asked, strict=True):
        found, expected = ours.result(), theirs.result()
        assert found.loss == pytest.approx(expected.loss, rel=1e-6)
        assert torch.allclose(found.gradient, expected.gradient, rtol=1e-5, atol=1e-7)


@pytest.mark.slow
def test_they_run_on_the_workers(dask: Backend) -> None:
    model = process_as_loss()
    layout = ParameterLayout.of(model.module)
    source = make_gradients(model, layout, DIGITS, "processes", REQUESTS, backend=dask)
    flat = layout.flatten(model.module)
    asked = [source.request(flat, np.arange(4)) for _ in range(REQUESTS)]
    processes = {int(each.result().loss) for each in asked}
    assert len(processes) == 2
    assert os.getpid() not in processes


class Counted(Backend):
    """Makes the calls here, and counts the bytes that would travel."""

    sent = 0

    def each(self, function: Any, calls: Iterable[Any], in_order: bool = False) -> Iterator[Any]:
        for call in calls:
            Counted.sent += len(pickle.dumps(call))
            yield function(*call)


def test_parameters_that_workers_share_travel_once_with_a_task() -> None:
    model = process_as_loss()
    layout = ParameterLayout.of(model.module)
    source = make_gradients(model, layout, DIGITS, "auto", 200, backend=Counted("dask"))
    flat = layout.flatten(model.module)
    batch, of_parameters, of_examples = np.arange(4), 4 * 650, 4 * (64 * 4 + 8)

    def bytes_of(parameters: list[torch.Tensor]) -> int:
        Counted.sent = 0
        for request in [source.request(parameter, batch) for parameter in parameters]:
            request.result()
        return Counted.sent

    own = bytes_of([flat.clone() for _ in range(200)])
    one = bytes_of([flat] * 200)
    tasks = 50  # of four gradients
    assert own > 200 * (of_parameters + of_examples)
    assert own - one == pytest.approx((200 - tasks) * of_parameters, rel=0.1)


@pytest.mark.slow
def test_a_training_is_the_same_to_the_bit_however_many_workers_compute_it(dask: Backend) -> None:
    job = TrainConfig(workers=6, updates=30, compute="lognormal(20ms, 0.3)", lookahead="off")
    alone = train(job, seed=1)
    shared = train(job.model_copy(update={"lookahead": "auto"}), seed=1, backend=dask)
    assert shared.summary.lookahead == "on the workers of dask"
    assert shared.summary.final_loss == alone.summary.final_loss
    assert torch.equal(shared.parameters, alone.parameters)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"timing_only": True}, "no gradients are computed in this run"),
        ({"compute": "measured"}, "no gradients are timed on another machine in this run"),
        ({"lookahead": "vmap"}, 'gradients are computed here, as lookahead is "vmap"'),
        (
            {"privacy": "examples(clip=1, noise=1)"},
            "gradients are computed here, as they are private",
        ),
    ],
)
def test_runs_without_such_gradients_refuse_a_cluster(
    arguments: dict[str, object], message: str
) -> None:
    if "privacy" in arguments:
        pytest.importorskip("dp_accounting")
    job = TrainConfig.model_validate({"workers": 2, "updates": 4, **arguments})
    with pytest.raises(InputError, match=message):
        train(job, backend=Backend("dask"))
