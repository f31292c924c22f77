"""When gradients are computed, what is shared, and what is refused."""

from __future__ import annotations

import weakref

import numpy as np
import pytest
import torch
from torch import nn

from paracosm.errors import InputError
from paracosm.models.build import build_model
from paracosm.models.data_sets import DataSet, load_data
from paracosm.models.registry import Model
from paracosm.training.numerics.gradients import GradientSource, make_gradients
from paracosm.training.numerics.parameters import ParameterLayout

DIGITS = load_data("digits")
BATCH = np.arange(10)


def prepare(mode: str) -> tuple[GradientSource, torch.Tensor]:
    model = build_model("mlp", DIGITS, 0)
    layout = ParameterLayout.of(model.module)
    return make_gradients(model, layout, DIGITS, mode, 4), layout.flatten(model.module)


def test_one_result_computes_all_that_wait() -> None:
    source, flat = prepare("vmap")
    pending = [source.request(flat, BATCH) for _ in range(3)]
    pending[1].result()
    assert [request.computed for request in pending] == [True, True, True]


def test_off_computes_what_is_needed() -> None:
    source, flat = prepare("off")
    pending = [source.request(flat, BATCH) for _ in range(3)]
    pending[1].result()
    assert [request.computed for request in pending] == [False, True, False]


def test_what_is_discarded_is_not_computed() -> None:
    source, flat = prepare("vmap")
    dropped, kept = (source.request(flat, BATCH) for _ in range(2))
    dropped.discard()
    kept.result()
    assert not dropped.computed
    with pytest.raises(RuntimeError, match="gradient 0 was discarded"):
        dropped.result()


def test_results_stay_after_a_discard() -> None:
    source, flat = prepare("vmap")
    request = source.request(flat, BATCH)
    result = request.result()
    request.discard()
    assert request.result() is result


@pytest.mark.parametrize("mode", ["off", "vmap", "auto"])
def test_snapshots_are_let_go_once_they_are_used(mode: str) -> None:
    source, flat = prepare(mode)
    snapshot = flat.clone()
    alive = weakref.ref(snapshot)
    used, discarded = source.request(snapshot, BATCH), source.request(snapshot, BATCH)
    del snapshot
    discarded.discard()
    assert alive() is not None
    used.result()
    assert alive() is None


def test_random_numbers_outside_are_not_touched() -> None:
    model = Model(
        nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10)), nn.functional.cross_entropy
    )
    layout = ParameterLayout.of(model.module)
    before = torch.get_rng_state()
    source = make_gradients(model, layout, DIGITS, "auto", 4)
    source.request(layout.flatten(model.module), BATCH).result()
    assert torch.equal(before, torch.get_rng_state())


def test_each_request_draws_from_a_stream_of_its_own() -> None:
    def run(seed: int, order: list[int]) -> list[torch.Tensor]:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Flatten(), nn.Dropout(), nn.Linear(64, 10))
        layout = ParameterLayout.of(module)
        model = Model(module, nn.functional.cross_entropy)
        source = make_gradients(model, layout, DIGITS, "auto", 4, seed)
        flat = layout.flatten(module)
        pending = [source.request(flat, BATCH) for _ in range(3)]
        for index in order:
            pending[index].result()
        return [request.result().gradient for request in pending]

    first, reordered, other = run(1, [0, 1, 2]), run(1, [2, 0, 1]), run(2, [0, 1, 2])
    assert all(torch.equal(a, b) for a, b in zip(first, reordered, strict=True))
    assert not torch.equal(first[0], first[1])
    assert not torch.equal(first[0], other[0])


def test_running_statistics_follow_the_gradients() -> None:
    module = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64), nn.Linear(64, 10))
    layout = ParameterLayout.of(module)
    model = Model(module, nn.functional.cross_entropy)
    source = make_gradients(model, layout, DIGITS, "auto", 4)
    normalise = module[1]
    assert isinstance(normalise, nn.BatchNorm1d)
    assert not normalise.running_mean.any()  # the inspection left no trace
    flat = layout.flatten(module)
    expected = torch.zeros(64)
    for batch in (BATCH, BATCH + 10, BATCH + 20):
        source.request(flat, batch).result()
        expected = 0.9 * expected + 0.1 * DIGITS.train_x[batch].flatten(1).mean(0)
    assert torch.allclose(normalise.running_mean, expected)
    assert int(normalise.num_batches_tracked) == 3


@pytest.mark.parametrize(
    ("layer", "reason"),
    [
        (nn.Dropout(), "the model draws random numbers"),
        (nn.BatchNorm1d(64), "the model changes its buffers"),
    ],
)
def test_what_vmap_cannot_compute_is_said(layer: nn.Module, reason: str) -> None:
    module = nn.Sequential(nn.Flatten(), layer, nn.Linear(64, 10))
    layout = ParameterLayout.of(module)
    model = Model(module, nn.functional.cross_entropy)
    with pytest.raises(InputError, match=f'look-ahead mode "vmap": {reason}; use "auto"'):
        make_gradients(model, layout, DIGITS, "vmap", 4)
    source = make_gradients(model, layout, DIGITS, "auto", 4)
    flat = layout.flatten(module)
    for request in [source.request(flat, BATCH) for _ in range(4)]:
        request.result()
    assert source.describe().endswith(f"no vmap: {reason}")
    assert source.describe().startswith("auto: one by one 100%")


def test_models_that_vmap_has_no_rule_for_run_one_by_one() -> None:
    class Branching(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(64, 10)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.linear(x.flatten(1))
            return y if y.sum().item() > 0 else -y

    model = Model(Branching(), nn.functional.cross_entropy)
    layout = ParameterLayout.of(model.module)
    with pytest.raises(InputError, match="cannot be vectorised: RuntimeError: ") as caught:
        make_gradients(model, layout, DIGITS, "vmap", 4)
    assert "\n" not in str(caught.value)
    source = make_gradients(model, layout, DIGITS, "auto", 4)
    flat = layout.flatten(model.module)
    assert source.request(flat, BATCH).result().gradient.any()


@pytest.mark.parametrize(
    ("name", "chosen"),
    [
        ("mlp", "dense layers in closed form"),
        ("mlp(hidden=512)", "dense layers in closed form"),
        ("paper-cnn", "one by one 100%"),
    ],
)
def test_structure_decides_what_auto_does(name: str, chosen: str) -> None:
    model = build_model(name, DIGITS, 0)
    layout = ParameterLayout.of(model.module)
    source = make_gradients(model, layout, DIGITS, "auto", 16)
    flat = layout.flatten(model.module)
    for request in [source.request(flat, BATCH) for _ in range(16)]:
        request.result()
    assert source.describe() == f"auto: {chosen}"


@pytest.mark.parametrize(("channels", "together"), [(4, True), (64, False)])
def test_small_convolutions_are_computed_together(channels: int, together: bool) -> None:
    found = []
    for mode in ("off", "auto"):
        torch.manual_seed(0)
        convolution = nn.Conv2d(1, channels, 3, padding=1)
        module = nn.Sequential(convolution, nn.Tanh(), linear(64 * channels, 10))
        model = Model(module, nn.functional.cross_entropy)
        layout = ParameterLayout.of(module)
        source = make_gradients(model, layout, DIGITS, mode, 16, batch=32)
        flats = [layout.flatten(module) * (1 + 0.1 * number) for number in range(16)]
        pending = [source.request(flat, np.arange(32) + 7 * n) for n, flat in enumerate(flats)]
        found.append([request.result().gradient for request in pending])
    assert source.describe() == f"auto: {'vmap' if together else 'one by one'} 100%"
    for plain, other in zip(*found, strict=True):
        assert (other - plain).norm() <= (1e-5 if together else 0) * plain.norm()


def linear(inputs: int, outputs: int) -> nn.Sequential:
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, outputs))


@pytest.mark.parametrize(
    ("module", "loss", "message"),
    [
        (linear(63, 10), nn.functional.cross_entropy, r'"digits", inputs of shape \(1, 8, 8\)'),
        (linear(64, 9), nn.functional.cross_entropy, "IndexError: Target 9 is out of bounds"),
        (linear(64, 10), nn.CrossEntropyLoss(reduction="none"), r"a scalar tensor, not shape"),
        (linear(64, 10), lambda outputs, targets: 1.0, "a scalar tensor, not float"),
        (linear(64, 10), lambda outputs, targets: torch.ones(()), "does not depend on"),
    ],
)
def test_models_that_do_not_fit_are_refused(module: nn.Module, loss: object, message: str) -> None:
    model = Model(module, loss)
    with pytest.raises(InputError, match=message) as caught:
        make_gradients(model, ParameterLayout.of(module), DIGITS, "off", 1)
    assert "\n" not in str(caught.value)


def test_unknown_mode_names_the_nearest() -> None:
    model = build_model("mlp", DIGITS, 0)
    with pytest.raises(InputError, match='unknown look-ahead mode "vmaps": did you mean "vmap"'):
        make_gradients(model, ParameterLayout.of(model.module), DIGITS, "vmaps", 2)


def test_shared_pieces_of_a_module_are_one_parameter() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Linear(4, 4, bias=False)
            self.second = self.first

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.second(self.first(x))

    x = torch.eye(4)
    data = DataSet("unit", x, x, x, x, 0)
    model = Model(Tied(), nn.functional.mse_loss)
    layout = ParameterLayout.of(model.module)
    assert layout.names == ("first.weight",)
    weight = torch.diag(torch.tensor([1.0, 2.0, 3.0, 4.0]))
    results = []
    for mode in ("off", "vmap"):
        source = make_gradients(model, layout, data, mode, 2)
        pending = [source.request(weight.flatten(), np.arange(4)) for _ in range(2)]
        results.append(pending[0].result().gradient.view(4, 4))
    # f = mean (w_i^2 - 1)^2 over 16 entries on the diagonal: df/dw_i = 4 w_i (w_i^2 - 1) / 16.
    expected = torch.diag(torch.tensor([0.0, 1.5, 6.0, 15.0]))
    assert torch.allclose(results[0], expected)
    assert torch.allclose(results[1], expected)
