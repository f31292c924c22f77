"""A name means one module through every door, or is refused in one line that says why."""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from paracosm.errors import InputError
from paracosm.graphs.capture import CaptureOptions, capture
from paracosm.graphs.capture.step import load_workload
from paracosm.models.build import build_model
from paracosm.models.data_sets import DATA_SETS, DataSet, check_trainable
from paracosm.models.optimizers import OPTIMIZERS
from paracosm.models.registry import MODELS, built_in
from paracosm.prediction.config import PredictConfig
from paracosm.profiling.jobs.pytorch import JobOptions
from paracosm.training import TrainConfig, TrainingResult, train

Shape = tuple[int, ...] | None
Door = Callable[[str, Shape, int | None], nn.Module]

OWN = """
from torch import nn

def model(batch, shape, classes):
    module = nn.Sequential(nn.Flatten(), nn.Linear(shape[1] * shape[2], classes))
    return module, nn.CrossEntropyLoss()
"""


def trained(model: str, shape: Shape, classes: int | None) -> nn.Module:
    """Build what train would train on a data set of such examples."""
    assert shape is not None
    with torch.device("cpu"):
        x, y = torch.zeros(2, *shape), torch.tensor([0, (classes or 2) - 1])
    return build_model(model, DataSet("some", x, y, x, y, classes or 2), 0, batch=2).module


def captured(model: str, shape: Shape, classes: int | None) -> nn.Module:
    return load_workload(CaptureOptions(model, 2, shape, classes)).module


def predicted(model: str, shape: Shape, classes: int | None) -> nn.Module:
    config = PredictConfig(model=model, batch=2, shape=shape, classes=classes)
    return load_workload(config.options("cpu")).module


def profiled(model: str, shape: Shape, classes: int | None) -> nn.Module:
    return load_workload(JobOptions(model, 2, shape, classes).capture()).module


DOORS: Mapping[str, Door] = {
    "train": trained,
    "graph capture and profile ops": captured,
    "predict": predicted,
    "profile job": profiled,
}
IMAGES = [(1, 8, 8), (3, 32, 32), (3, 64, 48)]


def shapes_of(module: nn.Module) -> dict[str, tuple[int, ...]]:
    return {name: tuple(each.shape) for name, each in module.named_parameters()}


def through(door: str, model: str, shape: Shape, classes: int | None) -> object:
    """Return the shapes of a model's parameters, or the one line that refuses it."""
    try:
        with torch.device("meta"):
            return shapes_of(DOORS[door](model, shape, classes))
    except InputError as error:
        return "refused" if "\n" not in str(error) else str(error)


# Every day those of each kind that have the fewest layers.
LARGER = re.compile(r"resnet(34|50|101|152)|vgg1[69].*|gpt2-.*|llama-70b")


def models(*, of_tokens: bool) -> list[Any]:
    return [
        pytest.param(name, marks=pytest.mark.slow if LARGER.fullmatch(name) else ())
        for name in MODELS
        if (MODELS[name].kind == "tokens") == of_tokens
    ]


@pytest.mark.parametrize("shape", IMAGES)
@pytest.mark.parametrize("model", ["mlp(hidden=512, layers=2)", *models(of_tokens=False)])
def test_doors_build_the_same_module_or_refuse_it(model: str, shape: tuple[int, ...]) -> None:
    small = model.startswith("vgg") and min(shape[1:]) < 32
    found = [through(door, model, shape, 7) for door in DOORS]
    assert all(each == found[0] for each in found)
    assert (found[0] == "refused") is small


@pytest.mark.parametrize("model", models(of_tokens=True))
def test_tokens_go_through_every_door_but_train(model: str) -> None:
    found = {door: through(door, model, (16,), None) for door in DOORS}
    assert found.pop("train") == "refused"
    assert len({str(each) for each in found.values()}) == 1
    assert "refused" not in found.values()
    with pytest.raises(InputError, match=f"model {model} takes sequences of tokens.*from mlp, "):
        TrainConfig(model=model).check(TrainConfig(model=model).resolve_cluster())


@pytest.mark.parametrize("data", DATA_SETS)
@pytest.mark.parametrize("model", models(of_tokens=False))
def test_a_model_is_accepted_by_train_if_it_runs_on_the_data(model: str, data: str) -> None:
    """What the table of names says beforehand is what the module does with a batch."""
    about = DATA_SETS[data]
    with torch.device("meta"):
        module, images = (
            MODELS[model].make(about.shape, about.classes),
            torch.empty(4, *about.shape),
        )
    try:
        runs = module(images).shape == (4, about.classes)
    except RuntimeError:
        runs = False
    try:
        check_trainable(model, data)
    except InputError:
        assert not runs
    else:
        assert runs


def test_defaults_are_the_jobs_of_the_data_sets() -> None:
    """What predict assumes of these models is what train has on their data."""
    assert (TrainConfig().model, TrainConfig().data) == ("mlp", "digits")
    for model, data in (("mlp", "digits"), ("paper-cnn", "cifar10"), ("resnet20", "cifar10")):
        about = DATA_SETS[data]
        assert MODELS[model].filled(None, None) == (about.shape, about.classes)


@pytest.mark.parametrize("wrong", ["resnet19", "gpt-smol", "papercnn", "mpl"])
def test_every_door_knows_all_names(wrong: str) -> None:
    nearest = {"resnet19": "resnet1", "gpt-smol": "gpt-small", "papercnn": "paper-cnn"}
    for build in DOORS.values():
        with pytest.raises(ValueError, match=f'did you mean "{nearest.get(wrong, "mlp")}'):
            build(wrong, (3, 32, 32), 10)
    with pytest.raises(ValueError, match="did you mean"):
        TrainConfig(model=wrong)


def test_a_name_is_written_in_one_way() -> None:
    for text in ("mlp(layers=2,hidden=512)", " MLP( hidden=512, layers=2 )"):
        assert str(built_in(text)) == "mlp(hidden=512, layers=2)"
        assert TrainConfig(model=text).model == "mlp(hidden=512, layers=2)"
        assert CaptureOptions(text).model == "mlp(hidden=512, layers=2)"
        assert PredictConfig(model=text).model == "mlp(hidden=512, layers=2)"
    assert str(built_in("mlp(hidden=64)")) == "mlp"


def test_layers_of_an_mlp_are_split_in_pairs() -> None:
    linear = {0: "column", 2: "row", 4: "column", 6: "row"}
    for layers in (1, 2, 3, 4):
        split = built_in(f"mlp(layers={layers})").make((8,), 3).tensor_parallel
        pairs = (layers + 1) // 2 * 2  # of the linear layers, one more than hidden ones
        assert split == {f"layers.{i}": linear[i] for i in range(0, 2 * pairs, 2)}


def test_one_factory_goes_through_every_door(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "own_models.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    for reference in ("own_models:model", "own_models.py:model"):
        found = [through(door, reference, (1, 4, 4), 3) for door in DOORS]
        assert found == [{"1.weight": (3, 16), "1.bias": (3,)}] * len(DOORS)
    graph = capture(CaptureOptions("own_models.py:model", 2, (1, 4, 4), 3))
    assert {"aten._log_softmax.default", "aten.nll_loss_forward.default"} <= {
        op.name for op in graph.ops
    }


def test_the_page_of_models_has_every_name() -> None:
    page = (Path(__file__).parents[2] / "docs" / "models.md").read_text()
    assert [name for name in (*MODELS, *DATA_SETS, *OPTIMIZERS) if f"`{name}`" not in page] == []


@pytest.mark.parametrize("optimizer", [*OPTIMIZERS, "sgd(momentum=0.9, nesterov=True)"])
def test_optimizers_go_through_train_and_capture(optimizer: str) -> None:
    graph = capture(CaptureOptions("mlp", 2, optimizer=optimizer))
    updated = graph.phase == 2
    assert updated.any() == (optimizer != "none")
    if optimizer == "none":
        with pytest.raises(ValueError, match="training changes parameters"):
            TrainConfig(optimizer=optimizer)
    else:
        assert str(TrainConfig(optimizer=optimizer).optimizer) == optimizer
        assert TrainConfig(optimizer=optimizer).model_dump()["optimizer"] == optimizer


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder like CIFAR-10's with two images a file."""
    monkeypatch.setattr("paracosm.models.cifar10.RECORDS_PER_FILE", 2)
    rng = np.random.default_rng(0)
    for name in (*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"):
        batch = {b"labels": [3, 9], b"data": rng.integers(0, 256, (2, 3072), dtype=np.uint8)}
        (tmp_path / name).write_bytes(pickle.dumps(batch, protocol=2))
    return tmp_path


def run(**asked: Any) -> TrainingResult:
    return train(TrainConfig(batch=4, workers=1, lr=1e-3, lookahead="off", **asked))


def test_a_model_of_captures_is_trained_on_images(archive: Path) -> None:
    result = run(model="resnet18", data="cifar10", data_dir=archive, updates=1)
    assert (result.summary["status"], result.summary["updates"]) == ("done", 1)
    assert result.parameters.numel() == 11_181_642


def test_a_residual_network_gets_a_stem_of_one_channel() -> None:
    result = run(model="resnet18", updates=2, evaluate_examples=10)
    assert result.parameters.numel() == 11_175_370  # 2 * 49 * 64 fewer than for three channels
    with pytest.raises(InputError, match="one at a time: ValueError: Expected more than 1 value"):
        train(TrainConfig(model="resnet18", batch=1, updates=2, workers=1))
