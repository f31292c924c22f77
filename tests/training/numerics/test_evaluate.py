"""Evaluation against plain PyTorch."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from paracosm.models.build import build_model
from paracosm.models.data_sets import load_data
from paracosm.models.registry import Model
from paracosm.training.numerics.parameters import ParameterLayout, evaluate

DIGITS = load_data("digits")


def test_chunks_give_the_mean_over_all_examples() -> None:
    model = build_model("mlp", DIGITS, 0)
    layout = ParameterLayout.of(model.module, 2)
    flat = layout.flatten(model.module)
    outputs = model.module(DIGITS.test_x)
    expected = nn.functional.cross_entropy(outputs, DIGITS.test_y).item()
    right = (outputs.argmax(1) == DIGITS.test_y).float().mean().item()
    for chunk in (1000, 100, 7):
        loss, accuracy = evaluate(model, layout, flat, DIGITS.test_x, DIGITS.test_y, chunk)
        assert loss == pytest.approx(expected, rel=1e-5)
        assert accuracy == pytest.approx(right)


def test_it_is_the_given_parameters_that_are_evaluated() -> None:
    model = build_model("mlp", DIGITS, 0)
    layout = ParameterLayout.of(model.module)
    before = layout.flatten(model.module)
    loss, _ = evaluate(model, layout, torch.zeros(layout.size), DIGITS.test_x, DIGITS.test_y)
    assert loss == pytest.approx(2.302585, rel=1e-5)  # ln 10: all scores are equal
    assert torch.equal(layout.flatten(model.module), before)


def test_dropout_is_off_and_normalisation_by_running_statistics() -> None:
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Dropout(), nn.Linear(64, 10))
    module(DIGITS.train_x)
    buffers = [buffer.clone() for buffer in module.buffers()]
    model = Model(module, nn.functional.cross_entropy)
    layout = ParameterLayout.of(module)
    flat = layout.flatten(module)
    losses = [evaluate(model, layout, flat, DIGITS.test_x, DIGITS.test_y)[0] for _ in range(2)]
    expected = nn.functional.cross_entropy(module.eval()(DIGITS.test_x), DIGITS.test_y).item()
    assert losses == [pytest.approx(expected, rel=1e-5)] * 2
    assert all(map(torch.equal, module.buffers(), buffers))


def test_the_module_is_left_in_training_mode() -> None:
    model = build_model("mlp", DIGITS, 0)
    layout = ParameterLayout.of(model.module)
    evaluate(model, layout, layout.flatten(model.module), DIGITS.test_x, DIGITS.test_y)
    assert model.module.training


def test_values_have_no_accuracy() -> None:
    module = nn.Linear(3, 1, bias=False)
    layout = ParameterLayout.of(module)
    x = torch.eye(3)
    model = Model(module, nn.functional.mse_loss)
    loss, accuracy = evaluate(model, layout, torch.tensor([1.0, 2.0, 3.0]), x, torch.zeros(3, 1))
    assert loss == pytest.approx(14 / 3)
    assert accuracy is None


def test_labels_of_every_position_count() -> None:
    """Outputs (examples, classes, positions), as of a model of sequences."""
    outputs = torch.tensor([[[2.0, 0.0], [1.0, 3.0]]])  # classes 0 and 1
    module = nn.Linear(1, 1, bias=False)
    model = Model(nn.Sequential(module, nn.Identity()), nn.functional.cross_entropy)
    layout = ParameterLayout.of(model.module)
    labels = torch.tensor([[0, 0]])
    flat = torch.ones(1)
    _, accuracy = evaluate(model, layout, flat, outputs.unsqueeze(-1), labels.unsqueeze(-1))
    assert accuracy == 0.5
