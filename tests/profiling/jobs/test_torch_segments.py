"""Which layer needs which parameter, and in which order gradients are made."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from paracosm.models import Workload
from paracosm.profiling.jobs.pytorch.worker import Segment, Worker, find_segments


def segments_of(module: nn.Module, *inputs: Tensor) -> list[Segment]:
    return find_segments(Workload(module, inputs, lambda outputs: outputs.sum(), len(inputs[0])))


def needed(segments: list[Segment]) -> dict[str, tuple[str, ...]]:
    return {segment.name: segment.needs for segment in segments if segment.needs}


class Tied(nn.Module):
    """The output layer's weight is the embedding's; a scale of its own; a layer nobody calls."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 4)
        self.scale = nn.Parameter(torch.ones(1))
        self.frozen = nn.Linear(4, 4).requires_grad_(False)
        self.unused = nn.Linear(2, 2, bias=False)
        self.out = nn.Linear(4, 7, bias=False)
        self.out.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        logits: Tensor = self.out(self.frozen(self.embedding(tokens)) * self.scale)
        return logits


def test_tied_frozen_and_unused_parameters() -> None:
    segments = segments_of(Tied(), torch.zeros(2, 3, dtype=torch.int64))
    # The weight is there since the embedding asked for it; nobody calls `unused`, so the module
    # that has it asks; frozen parameters never move.
    assert needed(segments) == {
        "forward/model": ("scale", "unused.weight"),
        "forward/embedding": ("embedding.weight",),
    }
    made = [segment.end.what for segment in segments if segment.end.kind == "gradient"]
    assert made == ["scale", "embedding.weight"]
    assert [segment.name for segment in segments] == [
        *("forward/inputs", "forward/model", "forward/embedding", "forward/out"),
        *("backward/scale", "backward/embedding.weight"),
    ]


def test_a_module_whose_parameters_a_function_uses_asks_for_them_itself() -> None:
    attention = nn.MultiheadAttention(4, 2, batch_first=True)  # never calls its `out_proj`

    class Attending(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = self.attention(x, x, x)[0]
            return found

    segments = segments_of(Attending(), torch.randn(2, 3, 4))
    (names,) = needed(segments).values()
    assert set(names) == {f"attention.{name}" for name, _ in attention.named_parameters()}


def test_a_layer_that_is_called_again_is_computed_again_and_pulled_once() -> None:
    layer = nn.Linear(3, 3)
    segments = segments_of(nn.Sequential(layer, nn.ReLU(), layer), torch.randn(2, 3))
    assert [segment.name for segment in segments][:3] == [
        "forward/inputs",
        "forward/0",
        "forward/0 #2",
    ]
    assert needed(segments) == {"forward/0": ("0.weight", "0.bias")}


def test_a_layer_that_is_computed_again_for_the_backward_pass_is_told_apart() -> None:
    class Recomputing(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            found: Tensor = checkpoint(self.layer, x, use_reentrant=False)
            return found

    segments = segments_of(Recomputing(), torch.randn(2, 3))
    assert [(segment.name, segment.forward) for segment in segments[:3]] == [
        ("forward/inputs", True),
        ("forward/layer", True),
        ("backward/before layer", False),
    ]


def test_floating_point_operations_are_those_of_the_layer() -> None:
    module = nn.Sequential(nn.Linear(6, 5), nn.Tanh(), nn.Linear(5, 4))
    flops = {segment.name: segment.flops for segment in segments_of(module, torch.randn(2, 6))}
    assert flops["forward/0"] == 2 * 2 * 6 * 5
    assert flops["forward/2"] == 2 * 2 * 5 * 4
    backward = sum(flop for name, flop in flops.items() if name.startswith("backward"))
    assert backward == 2 * (2 * 2 * 5 * 4) + 2 * 2 * 6 * 5  # no gradient of the inputs


def test_looking_leaves_buffers_gradients_and_random_numbers_as_they_were() -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    state = torch.random.get_rng_state()
    segments_of(module, torch.full((2, 3), 5.0))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert module[1].num_batches_tracked == 0
    assert torch.equal(module[1].running_mean, torch.zeros(4))
    assert all(parameter.grad is None for parameter in module.parameters())


class Moody(nn.Module):
    """Leaves its second layer out, or calls it twice, when it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 3), nn.Linear(3, 3)
        self.seconds = 1

    def forward(self, x: Tensor) -> Tensor:
        x = self.first(x)
        for _ in range(self.seconds):
            x = self.second(x)
        return x


class NobodyThere:
    """Messages that arrive at once, and say nothing."""

    def __getattr__(self, name: str) -> Callable[..., SimpleNamespace]:
        return lambda *_, **__: SimpleNamespace(wait=lambda: None)


def test_a_step_that_computes_something_else_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    module = Moody()
    monkeypatch.setattr("paracosm.profiling.jobs.pytorch.worker.dist", NobodyThere())
    inputs = (torch.randn(2, 3),)
    worker = Worker(Workload(module, inputs, lambda outputs: outputs.sum(), 2), 1, None)
    assert len(worker.step().computed) == len(worker.segments)
    module.seconds = 2
    with pytest.raises(RuntimeError, match="has layer second where the first had backward"):
        worker.step()
    module.seconds = 0
    with pytest.raises(RuntimeError, match="has backward where the first had layer second"):
        worker.step()
