"""Gradients against a backward pass written out in NumPy, and against plain PyTorch."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch
from torch import nn

from paracosm.models.build import build_model
from paracosm.models.data_sets import DataSet, load_data
from paracosm.models.language import Llama
from paracosm.models.registry import Model
from paracosm.training.numerics.gradient_methods import Gradient
from paracosm.training.numerics.gradients import make_gradients
from paracosm.training.numerics.parameters import ParameterLayout

DIGITS = load_data("digits")


def batches(number: int, size: int) -> list[np.ndarray]:
    rng = np.random.default_rng(0)
    return [rng.integers(0, len(DIGITS.train_x), size) for _ in range(number)]


def versions(model: Model, layout: ParameterLayout, number: int) -> list[torch.Tensor]:
    """Different parameters near the initial ones."""
    generator = torch.Generator().manual_seed(0)
    flat = layout.flatten(model.module)
    return [flat + 0.02 * torch.randn(flat.shape, generator=generator) for _ in range(number)]


def mlp_by_hand(flat: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[float, np.ndarray]:
    """Cross-entropy of a 64-64-10 ReLU network and its gradient, in float64."""
    flat = flat.astype(np.float64)
    w1, b1 = flat[:4096].reshape(64, 64), flat[4096:4160]
    w2, b2 = flat[4160:4800].reshape(10, 64), flat[4800:]
    z = x @ w1.T + b1
    hidden = np.maximum(z, 0)
    scores = hidden @ w2.T + b2
    scores -= scores.max(axis=1, keepdims=True)
    p = np.exp(scores) / np.exp(scores).sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(p[rows, y]).mean()
    d_scores = p.copy()
    d_scores[rows, y] -= 1
    d_scores /= len(y)
    d_z = (d_scores @ w2) * (z > 0)
    parts = (d_z.T @ x, d_z.sum(0), d_scores.T @ hidden, d_scores.sum(0))
    return loss, np.concatenate([part.ravel() for part in parts])


@pytest.mark.parametrize("mode", ["off", "vmap"])
def test_mlp_against_a_backward_pass_by_hand(mode: str) -> None:
    model = build_model("mlp", DIGITS, 0)
    layout = ParameterLayout.of(model.module)
    assert layout.names == ("layers.0.weight", "layers.0.bias", "layers.2.weight", "layers.2.bias")
    source = make_gradients(model, layout, DIGITS, mode, 4)
    flats, indices = versions(model, layout, 4), batches(4, 32)
    pending = [source.request(flat, batch) for flat, batch in zip(flats, indices, strict=True)]
    for request, flat, batch in zip(pending, flats, indices, strict=True):
        x = DIGITS.train_x[batch].flatten(1).numpy().astype(np.float64)
        loss, gradient = mlp_by_hand(flat.numpy(), x, DIGITS.train_y[batch].numpy())
        result = request.result()
        assert result.loss == pytest.approx(loss, rel=1e-6)
        error = np.linalg.norm(result.gradient.numpy() - gradient) / np.linalg.norm(gradient)
        assert error < 1e-6


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize(
    "name",
    [
        "mlp",
        "mlp(layers=2)",
        "paper-cnn",
        "resnet20",
        pytest.param("resnet18", marks=pytest.mark.slow),
    ],
)
def test_one_by_one_is_plain_pytorch_to_the_bit(name: str, servers: int) -> None:
    model = build_model(name, DIGITS, 0)
    layout = ParameterLayout.of(model.module, servers)
    plain = copy.deepcopy(model.module)
    flat, batch = versions(model, layout, 1)[0], batches(1, 8)[0]
    result = make_gradients(model, layout, DIGITS, "off", 1).request(flat, batch).result()
    plain.load_state_dict(layout.unflatten(flat), strict=False)
    loss = nn.functional.cross_entropy(plain(DIGITS.train_x[batch]), DIGITS.train_y[batch])
    loss.backward()
    assert result.loss == loss.item()
    for name_, gradient in layout.unflatten(result.gradient).items():
        assert torch.equal(gradient, plain.get_parameter(name_).grad)


def relative_error(one: Gradient, other: Gradient) -> float:
    return float((one.gradient - other.gradient).norm() / other.gradient.norm())


@pytest.mark.parametrize(("name", "size"), [("mlp", 10), ("mlp", 100), ("paper-cnn", 5)])
@pytest.mark.parametrize("shared", [False, True])
def test_vmap_equals_one_by_one(name: str, size: int, shared: bool) -> None:
    """Within 1e-5 (measured: 8e-8 and 6e-7), none of these sitting on a kink of max pooling."""
    model = build_model(name, DIGITS, 0)
    layout = ParameterLayout.of(model.module, 2)
    flats = versions(model, layout, 6)
    flats = flats[:1] * 6 if shared else flats
    results = []
    for mode in ("off", "vmap"):
        source = make_gradients(model, layout, DIGITS, mode, 6)
        pending = [source.request(*pair) for pair in zip(flats, batches(6, size), strict=True)]
        results.append([request.result() for request in pending])
    for one, together in zip(*results, strict=True):
        assert relative_error(together, one) < 1e-5
        assert together.loss == pytest.approx(one.loss, rel=1e-5)


@pytest.mark.parametrize("mode", ["off", "vmap"])
def test_same_mode_same_values_to_the_bit(mode: str) -> None:
    def run() -> list[Gradient]:
        model = build_model("mlp", DIGITS, 0)
        layout = ParameterLayout.of(model.module)
        source = make_gradients(model, layout, DIGITS, mode, 5)
        flats = versions(model, layout, 5)
        pending = [source.request(*pair) for pair in zip(flats, batches(5, 10), strict=True)]
        return [request.result() for request in pending]

    for one, again in zip(run(), run(), strict=True):
        assert one.loss == again.loss
        assert torch.equal(one.gradient, again.gradient)


def test_vmap_computes_batches_of_different_sizes_and_in_chunks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = build_model("mlp", DIGITS, 0)
    layout = ParameterLayout.of(model.module)
    flats = versions(model, layout, 9)
    indices = [*batches(4, 10), *batches(3, 7), *batches(2, 10)]
    expected = make_gradients(model, layout, DIGITS, "off", 9)
    monkeypatch.setattr("paracosm.training.numerics.gradient_methods._VMAP_MEMORY", 200_000)
    source = make_gradients(model, layout, DIGITS, "vmap", 9)
    pairs = list(zip(flats, indices, strict=True))
    pending = [source.request(*pair) for pair in pairs]
    alone = [expected.request(*pair) for pair in pairs]
    for request, reference in zip(pending, alone, strict=True):
        assert relative_error(request.result(), reference.result()) < 1e-5


@pytest.mark.parametrize("mode", ["off", "vmap"])
def test_parameters_that_the_loss_does_not_depend_on_have_gradient_zero(mode: str) -> None:
    class Half(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used = nn.Linear(64, 10)
            self.unused = nn.Linear(3, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.used(x.flatten(1))

    model = Model(Half(), nn.functional.cross_entropy)
    layout = ParameterLayout.of(model.module)
    source = make_gradients(model, layout, DIGITS, mode, 2)
    flat = layout.flatten(model.module)
    pending = [source.request(flat, batch) for batch in batches(2, 10)]
    tensors = layout.unflatten(pending[0].result().gradient)
    assert not tensors["unused.weight"].any()
    assert tensors["used.weight"].any()


def test_values_to_regress_on() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(50, 3, generator=generator)
    y = x @ torch.tensor([[1.0], [2.0], [3.0]])
    module = nn.Linear(3, 1, bias=False)
    model = Model(module, nn.functional.mse_loss)
    layout = ParameterLayout.of(module)
    source = make_gradients(model, layout, DataSet("line", x, y, x, y, 0), "off", 1)
    batch = np.arange(20)
    result = source.request(torch.zeros(3), batch).result()
    expected = -2 * (x[:20] * y[:20]).mean(0)
    assert torch.allclose(result.gradient, expected, rtol=1e-5)


class Characters(nn.Module):
    """Tokens [batch, length] to scores [batch, tokens, length], as cross-entropy wants them."""

    def __init__(self) -> None:
        super().__init__()
        self.decoder = Llama(1, width=8, inner=16, heads=2, groups=1, context=256, vocabulary=20)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.decoder(tokens).transpose(1, 2)


@pytest.mark.filterwarnings("error")  # of PyTorch: of attention in vmap, one request at a time
@pytest.mark.parametrize(("length", "together"), [(8, True), (256, False)])
def test_transformers_of_short_texts_are_computed_together(length: int, together: bool) -> None:
    rng = np.random.default_rng(0)
    x, y = torch.from_numpy(rng.integers(0, 20, (2, 50, length)))
    data = DataSet("random", x, y, x, y, 20)
    found = []
    for mode in ("off", "auto"):
        torch.manual_seed(0)
        model = Model(Characters(), nn.functional.cross_entropy)
        layout = ParameterLayout.of(model.module)
        source = make_gradients(model, layout, data, mode, 16, batch=4)
        chosen = np.random.default_rng(1).integers(0, 50, (16, 4))
        flats = versions(model, layout, 16)
        pending = [source.request(*each) for each in zip(flats, chosen, strict=True)]
        found.append([request.result() for request in pending])
    assert source.describe() == f"auto: {'vmap' if together else 'one by one'} 100%"
    for plain, other in zip(*found, strict=True):
        assert other.loss == pytest.approx(plain.loss, rel=1e-5)
        off = (other.gradient - plain.gradient).norm() / plain.gradient.norm()
        assert off < 1e-5 if together else off == 0
