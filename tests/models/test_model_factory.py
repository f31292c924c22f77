"""Models of the user's own."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from paracosm.errors import InputError
from paracosm.models import DataSet, load_data
from paracosm.models.build import build_model

MODULE = """
import torch
from torch import nn

from paracosm.models import Workload

def plain():
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 10))

def by_name(classes, depth=1):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, classes))

def with_all(batch, shape, classes):
    assert batch == 1
    return nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], classes))

def with_inputs(batch):
    return plain(), torch.zeros(batch, 64)

def whole(batch):
    return Workload(plain(), (torch.zeros(batch, 64),), torch.mean, batch)

def with_loss():
    return plain(), nn.functional.multi_margin_loss

def fails(shape):
    raise ValueError(f"no use for\\n{shape}")

def nothing():
    pass

def no_loss():
    return plain(), 3

def demanding(a, b, c):
    return plain()
"""


@pytest.fixture(autouse=True)
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_model.py").write_text(MODULE)
    monkeypatch.syspath_prepend(tmp_path)


@pytest.mark.parametrize("factory", ["plain", "by_name", "with_all", "with_inputs"])
def test_a_factory_gets_what_it_has_parameters_for(factory: str) -> None:
    model = build_model(f"my_model:{factory}", load_data("digits"), 0)
    assert model.module[1].weight.shape == (10, 64)
    assert model.loss is functional.cross_entropy


def test_a_factory_draws_from_the_seed() -> None:
    data = load_data("digits")
    before = torch.get_rng_state()
    weights = [build_model("my_model:plain", data, s).module[1].weight for s in (1, 1, 2)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    assert torch.equal(before, torch.get_rng_state())


def test_a_factory_may_bring_its_loss() -> None:
    model = build_model("my_model:with_loss", load_data("digits"), 0)
    assert model.loss is functional.multi_margin_loss


def test_values_are_judged_by_the_mean_squared_error() -> None:
    x = torch.zeros(4, 64)
    data = DataSet("values", x, x[:, :10], x, x[:, :10], 0)
    assert build_model("my_model:plain", data, 0).loss is functional.mse_loss


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        ("fails", r"failed: ValueError: no use for \(1, 8, 8\)"),
        ("nothing", r"returned NoneType, not a torch\.nn\.Module"),
        ("whole", "returned a Workload, which has inputs and targets of its own"),
        ("no_loss", "returned a module with int, which is neither a loss nor inputs"),
        ("demanding", "it is called, by name, with any of batch, shape, classes"),
    ],
)
def test_factories_that_do_not_work_are_refused(factory: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        build_model(f"my_model:{factory}", load_data("digits"), 0)
    assert "\n" not in str(caught.value)


def test_the_current_folder_is_searched(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "model_in_folder.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr("sys.path", [entry for entry in sys.path if entry])
    assert build_model("model_in_folder:plain", load_data("digits"), 0)
