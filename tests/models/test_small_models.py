"""The built-in models: parameters counted by hand, initial values, and independence of seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import nn

from paracosm.errors import InputError
from paracosm.models import DataSet, load_data
from paracosm.models.build import build_model
from paracosm.models.images import mlp, paper_cnn, resnet20
from paracosm.models.registry import built_in


def parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def count_paper_cnn(channels: int, quartered: int) -> int:
    convolutions = (25 * channels * 64 + 64) + (25 * 64 * 64 + 64)
    dense = (64 * quartered**2 * 384 + 384) + (384 * 192 + 192) + (192 * 10 + 10)
    return convolutions + dense


def test_mlp_for_digits_is_64_64_10() -> None:
    assert parameters(mlp((1, 8, 8), 10)) == 64 * 64 + 64 + 64 * 10 + 10
    deeper = mlp((1, 8, 8), 10, hidden=32, layers=2)
    assert parameters(deeper) == (64 + 1) * 32 + (32 + 1) * 32 + (32 + 1) * 10
    logistic = built_in("mlp(layers=0)").make((60,), 10)
    assert [type(layer) for layer in logistic.modules()][2:] == [nn.Linear]
    assert parameters(logistic) == 60 * 10 + 10


@pytest.mark.parametrize(
    ("shape", "quartered", "expected"),
    [((3, 24, 24), 6, 1_068_298), ((3, 32, 32), 8, 1_756_426), ((1, 8, 8), 2, 278_666)],
)
def test_paper_cnn_counts(shape: tuple[int, int, int], quartered: int, expected: int) -> None:
    module = paper_cnn(shape, 10)
    assert parameters(module) == count_paper_cnn(shape[0], quartered) == expected
    assert module(torch.zeros(2, *shape)).shape == (2, 10)


def test_paper_cnn_pools_like_tensorflow() -> None:
    """SAME padding: an even size is padded at its end only, an odd one on both sides."""
    for size in (5, 6):
        pool = paper_cnn((1, size, size), 10)[2]
        image = torch.arange(float(size * size)).view(1, 1, size, size)
        before = size % 2
        expected = [
            [
                max(
                    image[0, 0, i, j].item()
                    for i in range(max(0, row), min(size, row + 3))
                    for j in range(max(0, column), min(size, column + 3))
                )
                for column in range(-before, size - before, 2)
            ]
            for row in range(-before, size - before, 2)
        ]
        assert pool(image)[0, 0].tolist() == expected


def test_paper_cnn_normalises_like_tensorflow() -> None:
    """lrn(depth_radius=4, bias=1, alpha=0.001/9, beta=0.75), written out."""
    normalise = paper_cnn((3, 8, 8), 10)[3]
    x = 50 * np.random.default_rng(0).standard_normal(64)
    sums = [np.sum(x[max(0, channel - 4) : channel + 5] ** 2) for channel in range(64)]
    expected = x / (1 + 0.001 / 9 * np.array(sums)) ** 0.75
    y = normalise(torch.tensor(x, dtype=torch.float32).view(1, 64, 1, 1))
    assert np.allclose(y.ravel().numpy(), expected, rtol=1e-4)


def test_paper_cnn_starts_as_in_the_tutorial() -> None:
    torch.manual_seed(0)
    layers = [m for m in paper_cnn((3, 24, 24), 10) if isinstance(m, nn.Conv2d | nn.Linear)]
    # Truncation at two standard deviations leaves 0.8796 of the standard deviation.
    for layer, deviation, bias in zip(
        layers, (0.05, 0.05, 0.04, 0.04, 1 / 192), (0.0, 0.1, 0.1, 0.1, 0.0), strict=True
    ):
        assert layer.weight.abs().max() <= 2 * deviation
        assert layer.weight.std().item() == pytest.approx(0.8796 * deviation, rel=0.05)
        assert torch.all(layer.bias == torch.tensor(bias))


def test_resnet20_has_the_0_27_million_parameters_of_table_6() -> None:
    convolutions = 9 * (3 * 16 + 6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64)
    normalisations = 2 * (7 * 16 + 6 * 32 + 6 * 64)
    linear = 64 * 10 + 10
    module = resnet20((3, 32, 32), 10)
    assert parameters(module) == convolutions + normalisations + linear == 269_722
    weighted = [m for m in module.modules() if isinstance(m, nn.Conv2d | nn.Linear)]
    assert len(weighted) == 20


def test_resnet20_halves_the_image_twice() -> None:
    module = resnet20((3, 32, 32), 10)
    features = nn.Sequential(*list(module)[:-3])
    assert features(torch.zeros(2, 3, 32, 32)).shape == (2, 64, 8, 8)


def test_resnet20_shortcuts_pad_with_zeros() -> None:
    block = resnet20((3, 8, 8), 10)[6]  # the first of the second stage
    with torch.no_grad():
        block.residual[4].weight.zero_()  # so that only the shortcut remains
    x = torch.rand(1, 16, 4, 4)
    y = block(x)
    assert torch.equal(y[:, :16], x[:, :, ::2, ::2])
    assert not y[:, 16:].any()


def test_he_initialisation() -> None:
    torch.manual_seed(0)
    layer = mlp((3, 32, 32), 10).layers[0]
    assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / 3072), rel=0.02)
    assert not layer.bias.any()


@pytest.mark.parametrize("name", ["mlp", "mlp(layers=2)", "paper-cnn", "resnet20", "resnet18"])
def test_a_seed_decides_the_parameters_and_nothing_else(name: str) -> None:
    data = load_data("digits")
    before = torch.get_rng_state()
    first, same, other = (build_model(name, data, seed).module for seed in (1, 1, 2))
    assert torch.equal(before, torch.get_rng_state())
    for a, b in zip(first.parameters(), same.parameters(), strict=True):
        assert torch.equal(a, b)
    assert any(
        not torch.equal(a, b) for a, b in zip(first.parameters(), other.parameters(), strict=True)
    )


@pytest.mark.parametrize("name", ["paper-cnn", "resnet20"])
def test_networks_for_images_refuse_other_inputs(name: str) -> None:
    x, y = torch.zeros(4, 64), torch.tensor([0, 1, 0, 1])
    takes = rf'model {name} takes channels x height x width.*and "flat" has 64: .*from mlp$'
    with pytest.raises(InputError, match=takes):
        build_model(name, DataSet("flat", x, y, x, y, 2), 0)


def test_classifiers_refuse_values() -> None:
    x = torch.zeros(4, 64)
    with pytest.raises(InputError, match='"mlp" classifies; "values" has no class labels'):
        build_model("mlp", DataSet("values", x, x[:, 0], x, x[:, 0], 0), 0)


def test_unknown_model_names_the_nearest() -> None:
    with pytest.raises(InputError, match='unknown model "resnet21": did you mean "resnet20"'):
        build_model("resnet21", load_data("digits"), 0)
