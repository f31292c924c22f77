"""Gradients in closed form against automatic differentiation, and what is no chain."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, mse_loss

from paracosm.models.build import build_model
from paracosm.models.data_sets import DataSet, load_data
from paracosm.models.registry import Model
from paracosm.training.numerics.dense import dense_method
from paracosm.training.numerics.gradients import make_gradients
from paracosm.training.numerics.parameters import ParameterLayout

DIGITS = load_data("digits")

ACTIVATIONS = (nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Identity)


def random_data(inputs: int, outputs: int, is_labelled: bool, flat: bool) -> DataSet:
    rng = np.random.default_rng(1)
    x = torch.from_numpy(rng.normal(size=(50, inputs)).astype(np.float32))
    if is_labelled:
        y = torch.from_numpy(rng.integers(0, outputs, 50))
    else:
        y = torch.from_numpy(rng.normal(size=(50, outputs)).astype(np.float32))
    x = x if flat else x.view(50, 1, inputs)
    return DataSet("random", x, y, x, y, outputs if is_labelled else 0)


def by_autograd(model: Model, x: Tensor, y: Tensor, values: list[Tensor]) -> tuple[float, Tensor]:
    parameters = list(model.module.parameters())
    for parameter, value in zip(parameters, values, strict=True):
        parameter.data = value.double()
    targets = y if y.dtype == torch.int64 else y.double()
    loss = model.loss(model.module.double()(x.double()), targets)
    found = torch.autograd.grad(loss, parameters)
    return loss.item(), torch.cat([each.reshape(-1) for each in found])


@settings(max_examples=40, deadline=None)
@given(
    widths=st.lists(st.integers(1, 9), min_size=2, max_size=4),
    kinds=st.lists(st.sampled_from(ACTIVATIONS), min_size=4, max_size=4),
    has_bias=st.booleans(),
    is_labelled=st.booleans(),
    flat=st.booleans(),
    batch=st.integers(1, 6),
    requests=st.integers(1, 4),
    is_shared=st.booleans(),
    mixed=st.booleans(),
)
def test_it_is_what_automatic_differentiation_finds(
    widths: list[int],
    kinds: list[type[nn.Module]],
    has_bias: bool,
    is_labelled: bool,
    flat: bool,
    batch: int,
    requests: int,
    is_shared: bool,
    mixed: bool,
) -> None:
    torch.manual_seed(0)
    modules: list[nn.Module] = [] if flat else [nn.Flatten()]
    for inputs, outputs, kind in zip(widths, widths[1:], kinds, strict=False):
        modules += [nn.Linear(inputs, outputs, bias=has_bias), kind()]
    module = nn.Sequential(nn.Sequential(*modules[:-1]), nn.Sequential())
    data = random_data(widths[0], widths[-1], is_labelled, flat)
    model = Model(module, cross_entropy if is_labelled else mse_loss)
    layout = ParameterLayout.of(module)
    source = make_gradients(model, layout, data, "auto", requests, batch=batch)
    assert source.describe() == "auto: dense layers in closed form"
    rng = np.random.default_rng(0)
    flats = [torch.randn(layout.size) for _ in range(requests)]
    if is_shared:
        flats = [flats[0]] * requests
    batches = [rng.integers(0, 50, batch) for _ in range(requests)]
    pending = [source.request(*pair) for pair in zip(flats, batches, strict=True)]
    if not mixed:  # vectors and tuples of tensors computed together
        pending[0].result()
    tensors = [
        source.request(tuple(layout.tensors(values)), indices)
        for values, indices in zip(flats, batches, strict=True)
    ]
    for values, indices, one, other in zip(flats, batches, pending, tensors, strict=True):
        found, same = one.result(), other.result()
        loss, gradient = by_autograd(
            model, data.train_x[indices], data.train_y[indices], list(layout.tensors(values))
        )
        assert found.loss == pytest.approx(loss, rel=1e-5, abs=1e-6)
        rounding = 3e-6 * max(1.0, float(gradient.abs().max()))
        assert torch.allclose(found.gradient.double(), gradient, 1e-4, rounding)
        assert isinstance(same.gradient, tuple)
        assert [each.shape for each in same.gradient] == list(layout.shapes)
        assert torch.allclose(layout.flat(same.gradient), found.gradient, 1e-5, rounding)


@pytest.mark.parametrize(
    ("name", "together"), [("mlp", True), ("mlp(hidden=512, layers=2)", False)]
)
def test_size_decides_whether_they_are_computed_together(name: str, together: bool) -> None:
    model = build_model(name, DIGITS, 0)
    layout = ParameterLayout.of(model.module)
    source = make_gradients(model, layout, DIGITS, "auto", 3, batch=32)
    flat = layout.flatten(model.module)
    pending = [source.request(flat, np.arange(32)) for _ in range(3)]
    pending[0].result()
    assert [each.computed for each in pending] == [True, together, together]


@pytest.mark.parametrize("name", ["mlp", "mlp(hidden=256, layers=2)", "mlp(hidden=20, layers=3)"])
@pytest.mark.parametrize("batch", [1, 7, 32])
def test_one_gradient_is_that_of_automatic_differentiation_to_the_bit(
    name: str, batch: int
) -> None:
    sources = []
    for mode in ("auto", "off"):
        model = build_model(name, DIGITS, 0)
        layout = ParameterLayout.of(model.module)
        sources.append(make_gradients(model, layout, DIGITS, mode, 1, batch=batch))
    rng = np.random.default_rng(0)
    flat = layout.flatten(build_model(name, DIGITS, 1).module)
    for _ in range(5):
        indices = rng.integers(0, len(DIGITS.train_x), batch)
        here, there = (source.request(flat, indices).result() for source in sources)
        assert here.loss == there.loss
        assert torch.equal(here.gradient, there.gradient)


class Skips(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(64, 64)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) + x


def frozen() -> nn.Module:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 9), nn.Linear(9, 10))
    module[1].weight.requires_grad_(False)
    return module


def shared() -> nn.Module:
    linear = nn.Linear(64, 64)
    return nn.Sequential(nn.Flatten(), linear, linear)


def hooked() -> nn.Module:
    linear = nn.Linear(64, 10)
    linear.register_forward_hook(lambda module, inputs, outputs: 2 * outputs)
    return nn.Sequential(nn.Flatten(), linear)


@pytest.mark.parametrize(
    "make",
    [
        lambda: nn.Sequential(nn.Flatten(), Skips()),
        lambda: nn.Sequential(nn.Flatten(), nn.Linear(64, 10), nn.Dropout()),
        lambda: nn.Sequential(nn.Flatten(), nn.LayerNorm(64), nn.Linear(64, 10)),
        lambda: nn.Sequential(nn.Flatten(2), nn.Flatten(), nn.Linear(64, 10)),
        lambda: nn.Sequential(nn.Linear(8, 10)),
        *(frozen, shared, hooked),
    ],
)
def test_what_is_no_chain_is_left_to_automatic_differentiation(
    make: Callable[[], nn.Module],
) -> None:
    module = make()
    layout = ParameterLayout.of(module)
    assert dense_method(Model(module, cross_entropy), layout, DIGITS) is None


def test_another_loss_is_left_to_automatic_differentiation() -> None:
    module = nn.Sequential(nn.Flatten(), nn.Linear(64, 10))
    layout = ParameterLayout.of(module)
    smooth = nn.CrossEntropyLoss(label_smoothing=0.1)
    assert dense_method(Model(module, smooth), layout, DIGITS) is None
    assert dense_method(Model(module, cross_entropy), layout, DIGITS) is not None
