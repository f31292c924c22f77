"""Models that want values when they are made, outputs of any form, grouped products."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.init import trunc_normal_

from paracosm.errors import InputError
from paracosm.graphs.capture import CaptureOptions, capture
from paracosm.graphs.graph import Graph
from paracosm.graphs.summary import fingerprint
from paracosm.models.build import build_workload
from paracosm.profiling.torch_ops import instantiate, operator_of

RATES = [0.0, 0.1, 0.2]


class Blocks(nn.Module):
    """Layers that differ by numbers, a shared weight, a recurrent layer, a buffer."""

    def __init__(self, rates: list[float], check: Callable[[Any], Any]) -> None:
        super().__init__()
        layers = [nn.Linear(8, 8) if rate < 0.15 else nn.Linear(8, 8, bias=False) for rate in rates]
        self.layers = nn.Sequential(*layers)
        self.head = nn.Linear(8, 8)
        self.head.weight = self.layers[0].weight
        self.lstm = nn.LSTM(8, 8, batch_first=True)
        self.register_buffer("scale", torch.ones(8))
        check(self)

    def forward(self, x: Tensor) -> Tensor:
        y = self.head(self.layers(x)) * self.scale
        return self.lstm(y[:, None])[0]  # type: ignore[no-any-return]


def nothing(module: nn.Module) -> None: ...


def usual() -> nn.Module:
    return Blocks(RATES, nothing)


def truncated() -> nn.Module:
    """As ViT, Swin and ConvNeXt do, by a name that was imported."""
    return Blocks(RATES, lambda module: trunc_normal_(module.head.weight, std=0.02))


def far_truncated() -> nn.Module:
    """So far from the mean that candidates are drawn until they are accepted."""
    return Blocks(RATES, lambda module: trunc_normal_(module.head.weight, 0.0, 1.0, 2.0, 3.0))


def listed() -> nn.Module:
    return Blocks(torch.linspace(0, 0.2, 3).tolist(), nothing)


def items() -> nn.Module:
    return Blocks([rate.item() for rate in torch.linspace(0, 0.2, 3)], nothing)


def arrays() -> nn.Module:
    return Blocks([float(rate) for rate in torch.linspace(0, 0.2, 3).numpy()], nothing)


def checked() -> nn.Module:
    def check(module: nn.Module) -> None:
        for parameter in module.parameters():
            if not torch.isfinite(parameter).all() or parameter.abs().max() > 10:
                raise ValueError("not initialised")

    return Blocks(RATES, check)


def of(name: str) -> Graph:
    return capture(CaptureOptions(f"{__name__}:{name}", batch=4, shape=(8,)))


@pytest.mark.parametrize(
    "name", ["truncated", "far_truncated", "listed", "items", "arrays", "checked"]
)
def test_a_model_that_wants_values_has_the_graph_of_one_that_does_not(name: str) -> None:
    """The same ops, parameters and memory; nothing is counted twice, the shared weight neither."""
    graph, expected = of(name), of("usual")
    assert fingerprint(graph) == fingerprint(expected)
    assert graph.resident == expected.resident
    # 2 layers of 8 x 8 + 8, one of 8 x 8, the head's 8, four gates of two matrices and 2 x 8.
    assert graph.resident["parameters"] == 4 * (2 * 72 + 64 + 8 + 4 * 8 * (8 + 8 + 2))


def orthogonal() -> nn.Module:
    return nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(8, 8)), nn.Linear(8, 8))


INITIALISATIONS = [name for name in vars(nn.init) if name[0] != "_" and name[-1] == "_"]


@pytest.mark.parametrize("name", INITIALISATIONS)
def test_every_initialisation_is_captured(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    function = getattr(nn.init, name)
    arguments = {"constant_": (0.5,), "sparse_": (0.1,)}.get(name, ())

    def made() -> nn.Module:
        layer = nn.Conv1d(8, 8, 3) if name == "dirac_" else nn.Linear(8, 8)
        function(layer.weight, *arguments)
        return nn.Sequential(nn.Flatten(), nn.Linear(8, 8)) if name == "dirac_" else layer

    monkeypatch.setitem(globals(), "made", made)
    assert of("made").resident["parameters"] == 4 * 72


def test_a_parametrization_that_checks_values_is_captured() -> None:
    assert of("orthogonal").resident["parameters"] == 4 * 2 * 72


def broken() -> nn.Module:
    raise ValueError(f"no layer {torch.linspace(0, 1, 3).tolist()[1]}")


def test_a_model_that_fails_on_values_fails_with_its_own_error() -> None:
    with pytest.raises(InputError, match=r"ValueError: no layer 0\.5"):
        of("broken")


@dataclass
class Output:
    """As Hugging Face's models return it: a loss where there are labels."""

    loss: Tensor | None = None
    logits: Tensor | None = None
    states: tuple[Tensor, ...] = ()


class Ordered(OrderedDict[str, Any]):
    """A mapping whose items are attributes, as Hugging Face's `ModelOutput` is."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


FORMS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda y: y,
    "tuple": lambda y: (y, torch.ones(3)),
    "list": lambda y: [[y]],
    "dict": lambda y: {"logits": y},
    "numbers first": lambda y: {"positions": torch.arange(3), "scale": torch.ones(3), "y": (y,)},
    "data class": lambda y: Output(logits=y),
    "states alone": lambda y: Output(states=(y,)),
    "mapping of attributes": lambda y: Ordered(last_hidden_state=y, pooler_output=y[0]),
    "no loss": lambda y: {"loss": None, "logits": y},
    "nested": lambda y: {"outputs": [Output(logits=y)]},
}


def returning(form: Callable[[Tensor], Any], monkeypatch: pytest.MonkeyPatch) -> str:
    class Returning(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(8, 8)

        def forward(self, x: Tensor) -> Any:
            return form(self.layer(x))

    monkeypatch.setitem(globals(), "returns", Returning)
    return f"{__name__}:returns"


@pytest.mark.parametrize("form", FORMS)
def test_without_a_loss_it_is_the_mean_of_the_output(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = returning(FORMS[form], monkeypatch)
    workload = build_workload(name, 4, (8,), None)
    (x,) = workload.inputs
    expected = workload.module.layer(x).mean()
    assert workload.loss(workload.module(x)).item() == pytest.approx(expected.item())
    names = {op.name for op in capture(CaptureOptions(name, batch=4, shape=(8,))).ops}
    assert {"aten.mean.default", "aten.addmm.default"} <= names


@pytest.mark.parametrize(
    "form", [lambda y: Output(y.sum(), y), lambda y: {"logits": y, "loss": y.sum()}]
)
def test_a_loss_of_the_model_s_own_is_taken(
    form: Callable[[Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    workload = build_workload(returning(form, monkeypatch), 4, (8,), None)
    (x,) = workload.inputs
    assert workload.loss(workload.module(x)).item() == workload.module.layer(x).sum().item()


def test_an_output_without_tensors_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    name = returning(lambda y: {"shape": y.shape, "positions": torch.arange(3)}, monkeypatch)
    with pytest.raises(InputError, match=r"returns dict, without a tensor .* return a Workload"):
        capture(CaptureOptions(name, batch=4, shape=(8,)))


class Experts(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.weights = nn.Parameter(torch.randn(2, 8, 16, dtype=dtype))
        self.dtype = dtype

    def forward(self, x: Tensor) -> Tensor:
        ends = torch.tensor([1, 4], dtype=torch.int32)
        y = torch._grouped_mm(x.to(self.dtype), self.weights, offs=ends)
        return (y * y).float()


def experts(name: str = "float32") -> nn.Module:
    return Experts(getattr(torch, name))


def half_experts() -> nn.Module:
    return experts("float16")


def brain_experts() -> nn.Module:
    return experts("bfloat16")


@pytest.mark.skipif(not hasattr(torch, "_grouped_mm"), reason="of a later PyTorch")
@pytest.mark.parametrize("name", ["experts", "half_experts", "brain_experts"])
def test_grouped_products_are_captured_in_every_precision(name: str) -> None:
    """4 rows of 8 with one of two matrices of 8 x 16 each, and as much for the weights' gradient;
    timed with groups that have all rows."""
    ops = [op for op in of(name).ops if "grouped_mm" in op.name]
    assert [op.flops for op in ops] == [2 * 4 * 8 * 16] * 2
    for op, size in zip(ops, (4, 4), strict=True):
        call = instantiate(op)
        assert call.args[2].tolist() == [2, size]
        operator_of(op)(*call.args, **call.kwargs)
