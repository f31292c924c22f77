"""Captures that cannot be: one line that says why, and what would be right."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import pytest

from paracosm.errors import InputError
from paracosm.graphs.capture import CaptureOptions, capture, training_step

REFUSED: Mapping[str, dict[str, Any]] = {
    "batch: 0, but at least 1 is needed": {"batch": 0},
    'unknown model "gpt-smal": did you mean "gpt-small"?': {"model": "gpt-smal"},
    "shape: 32x32, but resnet18 takes channels x height x width, such as 3x32x32": {
        "shape": (32, 32)
    },
    "shape: 3x32x32, but gpt2 takes a sequence length": {"model": "gpt2", "shape": (3, 32, 32)},
    "shape: 3x8x8, but vgg19 takes images of 32 pixels or more a side": {
        "model": "vgg19",
        "shape": (3, 8, 8),
    },
    'unknown parameter of mlp "hiden": did you mean "hidden"?': {"model": "mlp(hiden=3)"},
    "model mlp: hidden is a whole number from 1 to 65,536, not 1000000000": {
        "model": "mlp(hidden=1000000000)"
    },
    "model mlp: layers is a whole number from 0 to 1,000, not 1.5": {"model": "mlp(layers=1.5)"},
    'model "mlp(3)": name its parameters, hidden, layers': {"model": "mlp(3)"},
    'model "resnet18(layers=3)": resnet18 has no parameters': {"model": "resnet18(layers=3)"},
    "no such file: nowhere/train.py": {"model": "nowhere/train.py:make"},
    "name the function that makes it: train.py:make_model": {"model": "train.py"},
    "optimizer adam: foreach has an effect only on captured steps": {
        "optimizer": "adam(foreach=True)"
    },
    "batch: at most 9,223,372,036,854,775,807, not 1000": {"batch": 10**400},
    "classes: at most 9,223,372,036,854,775,807, not 9223372036854775808": {"classes": 2**63},
    "ranks: at most 1,000,000, not 99": {"ranks": 10**20 - 1, "parallel": "fsdp2"},
    "shape: a size is at most 9,223,372,036,854,775,807": {"shape": (1, 4, 2**63)},
    "shape: 3x0x32, but sizes of 1 or more are needed": {"shape": (3, 0, 32)},
    "shape: nothing, but resnet18 takes": {"shape": ()},
    "classes: 0, but at least 1 is needed": {"classes": 0},
    "classes: gpt2 predicts tokens, leave it out": {"model": "gpt2", "classes": 10},
    'unknown dtype "float": did you mean "float': {"dtype": "float"},
    'unknown optimizer "adem": did you mean "adam"?': {"optimizer": "adem"},
    'unknown device "gpu": ': {"device": "gpu"},
    'unknown way to share the model "fsdp": did you mean "fsdp2"?': {
        "ranks": 2,
        "parallel": "fsdp",
    },
    "ranks: 4 ranks need a way to share the model (fsdp2, tensor, fsdp2+tensor)": {"ranks": 4},
    "parallel: fsdp2 needs 2 ranks or more": {"parallel": "fsdp2"},
    "tensor ranks: only fsdp2+tensor has groups of them": {
        "ranks": 4,
        "parallel": "fsdp2",
        "tensor_ranks": 2,
    },
    "tensor ranks: 4 ranks are not groups of 3": {
        "ranks": 4,
        "parallel": "fsdp2+tensor",
        "tensor_ranks": 3,
    },
    "foreach: PyTorch refuses split and whole parameters in one op": {
        "ranks": 4,
        "parallel": "tensor",
        "foreach": True,
    },
}

FAILING: Mapping[str, dict[str, Any]] = {
    'model "tiny_models:failing" failed: ValueError: no model for 2': {
        "model": "tiny_models:failing"
    },
    'model "tiny_models:nothing" returned int, not a torch.nn.Module, (module, loss)': {
        "model": "tiny_models:nothing"
    },
    'model "tiny_models:linear" returned no inputs: give the shape of one example (--shape': {
        "model": "tiny_models:linear"
    },
    'model "tiny_models:stubborn" returned 3 examples, not the batch of 2': {
        "model": "tiny_models:stubborn"
    },
    'model "tiny_models:gpt" makes its own inputs: its factory takes no shape': {
        "model": "tiny_models:gpt",
        "shape": (8,),
    },
    'model "tiny_models:gpt": its factory takes no classes': {
        "model": "tiny_models:gpt",
        "classes": 3,
    },
    'model "tiny_models:absent": tiny_models has no "absent"': {"model": "tiny_models:absent"},
    "tiny_models:frozen, batch 2: the model has no parameters to train": {
        "model": "tiny_models:frozen"
    },
    "tiny_models:linear, batch 2, 3: the model failed: RuntimeError: a and b must have same "
    "reduction dim, but got [2, 3] X [4, 2].": {"model": "tiny_models:linear", "shape": (3,)},
    "for a model of token ids: def embedding(batch, shape=(4,)): ... return module, "
    "torch.randint(vocabulary, (batch, *shape))": {"model": "tiny_models:embedding", "shape": (4,)},
    "tiny_models:values, batch 2: the model failed: DataDependentOutputException": {
        "model": "tiny_models:values"
    },
    'model "tiny_models:with_loss" returned a loss of outputs and targets: give the classes': {
        "model": "tiny_models:with_loss",
        "shape": (4,),
    },
    'model "tiny_models:demanding" requires classes, not available here': {
        "model": "tiny_models:demanding"
    },
    "optimizer sgd(momentum=-1): PyTorch cannot use it so: Invalid momentum value: -1": {
        "model": "mlp",
        "optimizer": "sgd(momentum=-1)",
    },
    'unknown option of adam "beta": did you mean "betas"?': {
        "model": "mlp",
        "optimizer": "adam(beta=1)",
    },
    "tiny_models:linear: the split of the model's layers is missing": {
        "model": "tiny_models:linear",
        "shape": (4,),
        "ranks": 2,
        "parallel": "tensor",
    },
    "aten.add_.Tensor: how many rows it makes of sparse gradients depends on their values": {
        "model": "tiny_models:sparse",
        "optimizer": "sgd(momentum=0.9)",
    },
    'tiny_models:misspelt: 0: unknown way to split "colum": did you mean "column"?': {
        "model": "tiny_models:misspelt",
        "ranks": 2,
        "parallel": "tensor",
    },
    "tiny_models:gpt: its 4 heads cannot be split between 8 ranks; between 4 they can": {
        "model": "tiny_models:gpt",
        "ranks": 8,
        "parallel": "tensor",
    },
}


@pytest.mark.parametrize("message", REFUSED)
def test_options_that_cannot_be_are_refused(message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        CaptureOptions(**{"model": "resnet18", **REFUSED[message]})


@pytest.mark.parametrize("message", FAILING)
def test_models_that_fail_say_why_in_one_line(
    message: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(InputError, match=re.escape(message)) as error:
        capture(CaptureOptions(**{"batch": 2, **FAILING[message]}))
    assert "\n" not in str(error.value)
    assert not caplog.records


def test_token_ids_that_a_model_brings_have_the_shape_that_is_asked_for() -> None:
    graph = capture(CaptureOptions("tiny_models:token_ids", batch=2, shape=(4,)))
    forward = next(op for op in graph.ops if "embedding" in op.name)
    assert '"tensor":[2,4]' in forward.arguments


def test_a_real_step_is_that_of_one_rank() -> None:
    with pytest.raises(InputError, match="a real step runs one rank, not 4"):
        training_step(CaptureOptions("mlp", ranks=4, parallel="fsdp2"))


def test_a_device_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(InputError, match="PyTorch has no CUDA here, capture for cpu"):
        capture(CaptureOptions("mlp", device="cuda"))
