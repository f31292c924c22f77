"""Models of the user's own, given by their file, on processes."""

from pathlib import Path

import pytest

import paracosm
from paracosm.errors import InputError
from paracosm.training.numerics import gradients

OWN = """
import torch
from torch import nn

def refuse():
    raise ValueError("not in this process")

class Net(nn.Linear):
    def forward(self, x):
        return super().forward(x.flatten(1)).tanh()

class Unloadable(Net):
    def __reduce__(self):
        return refuse, ()

class Unsendable(Net):
    def __reduce__(self):
        raise TypeError("a handle of this process")

def net():
    return Net(64, 10)

def unloadable():
    return Unloadable(64, 10)

def unsendable():
    return Unsendable(64, 10)
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "own.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)


def losses(model: str, lookahead: str) -> tuple[list[float], str]:
    result = paracosm.train(
        model=f"own.py:{model}", workers=4, updates=12, compute="1s", lookahead=lookahead, seed=1
    )
    rows = result.metrics.to_pylist()
    values = [row["value"] for row in rows if row["name"] == "minibatch_loss"]
    assert len(values) == 12
    return values, result.summary.lookahead


@pytest.fixture
def expensive(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let `auto` start processes as if gradients had proved expensive, and have two cores."""
    monkeypatch.setattr(gradients, "_POOL_AFTER", 0.0)
    monkeypatch.setattr(gradients, "_POOL_COST", 0.0)
    monkeypatch.setattr(gradients, "_is_small", lambda *_: False)
    monkeypatch.setattr(gradients, "available_cores", lambda: 2)


def test_they_compute_the_same_there() -> None:
    here, _ = losses("net", "off")
    there, said = losses("net", "processes")
    assert "processes" in said
    assert there == here


def test_auto_goes_on_without_processes_where_the_model_cannot_go_there(expensive: None) -> None:
    here, _ = losses("net", "off")
    there, said = losses("unsendable", "auto")
    assert there == here
    assert "the model cannot be sent to processes: TypeError: a handle of this process" in said


@pytest.mark.slow
def test_auto_goes_on_without_processes_where_the_model_cannot_be_loaded(
    expensive: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Processes start while gradients are computed here; this run would end before they have.
    warm_up = gradients.LocalWorkers.warm_up

    def patient(self: gradients.LocalWorkers) -> bool:
        while not warm_up(self):
            pass
        return True

    monkeypatch.setattr(gradients.LocalWorkers, "warm_up", patient)
    here, _ = losses("net", "off")
    there, said = losses("unloadable", "auto")
    assert there == here
    assert "cannot be loaded in processes: ValueError: not in this process" in said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("unsendable", "the model cannot be sent to processes: TypeError: a handle"),
        ("unloadable", "the model cannot be loaded in processes: ValueError: not in this"),
    ],
)
def test_processes_that_were_asked_for_refuse_it_in_one_line(model: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        losses(model, "processes")
