"""Every op of a training step can be called, from what was recorded of it alone."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from paracosm.graphs.capture import CaptureOptions, capture
from paracosm.profiling.profiler import ops_to_profile
from paracosm.profiling.torch_ops import instantiate

IMAGES = {"batch": 2, "shape": (3, 32, 32)}
STEPS = {
    "convolutions": CaptureOptions("tiny_models:resnet", **IMAGES, optimizer="sgd(momentum=0.9)"),
    "convolutions, foreach": CaptureOptions(
        "tiny_models:resnet", **IMAGES, optimizer="adamw", foreach=True, dtype="bfloat16"
    ),
    "attention": CaptureOptions("tiny_models:gpt", batch=2, optimizer="adam", dtype="bfloat16"),
    "attention, dropout": CaptureOptions(
        "tiny_models:gpt", batch=2, dropout=True, optimizer="adamw", foreach=True
    ),
    "grouped attention": CaptureOptions("tiny_models:llama", batch=2, dtype="float16"),
    "recurrence": CaptureOptions("tiny_models:gru", batch=2, dropout=True, dtype="float64"),
    "recurrence with a buffer": CaptureOptions("tiny_models:lstm", batch=2),
    "sparse gradients": CaptureOptions("tiny_models:sparse", batch=2),
    "sparse gradients of bags": CaptureOptions("tiny_models:bag", batch=2, optimizer="adagrad"),
    "forward pass": CaptureOptions("tiny_models:gpt", batch=2, train=False),
}
EVERYDAY = {
    *("convolutions, foreach", "attention, dropout", "recurrence with a buffer"),
    *("sparse gradients", "sparse gradients of bags"),
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=() if name in EVERYDAY else pytest.mark.slow) for name in STEPS],
)
def test_every_op_of_a_step_runs_again_and_again(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "graphs")
    for op in ops_to_profile(capture(STEPS[name])):
        call = instantiate(op)
        with torch.no_grad():
            for _ in range(3):
                call()
