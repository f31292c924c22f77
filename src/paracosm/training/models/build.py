"""Models by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from paracosm.errors import InputError, unknown
from paracosm.factory import call_factory, is_reference
from paracosm.training.data.dataset import DataSet
from paracosm.training.models.mlp import mlp
from paracosm.training.models.model import Loss, Model
from paracosm.training.models.paper_cnn import paper_cnn
from paracosm.training.models.resnet20 import resnet20

__all__ = ["MODELS", "build_model"]

MODELS: dict[str, Callable[[tuple[int, ...], int], nn.Module]] = {
    "mlp": mlp,
    "paper-cnn": paper_cnn,
    "resnet20": resnet20,
}
"""From the shape of one input and the number of classes to a module."""


def build_model(name: str, data: DataSet, seed: int) -> Model:
    """Build a model for a data set, its initial parameters drawn from `seed`.

    Args:
        name: a name in `MODELS`, or `package.module:factory`: a function of `input_shape` and
            `classes` (or of nothing) that returns a module or (module, loss). Without a loss it
            is cross-entropy where the targets are class labels, else the mean squared error.
        data: what it is trained on.
        seed: of PyTorch's random numbers while the model is made; the global stream is not touched.

    Raises:
        InputError: an unknown name, a factory that fails, or data that the model cannot take.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        if is_reference(name):
            offered = {"input_shape": data.input_shape, "classes": data.classes}
            return _checked(name, call_factory("model", name, offered), data)
        if name not in MODELS:
            raise unknown("model", name, [*MODELS, "package.module:factory"])
        if not data.classification:
            raise InputError(f'the model "{name}" classifies; "{data.name}" has no class labels')
        return Model(MODELS[name](data.input_shape, data.classes), functional.cross_entropy)


def _checked(name: str, made: Any, data: DataSet) -> Model:
    loss: Loss = functional.cross_entropy if data.classification else functional.mse_loss
    module = made
    if isinstance(made, tuple) and len(made) == 2:
        module, loss = made
    if not isinstance(module, nn.Module):
        raise InputError(
            f'model "{name}" returned {type(made).__name__}, not a torch.nn.Module '
            "or (module, loss)"
        )
    if not callable(loss):
        raise InputError(f'model "{name}": its loss is {type(loss).__name__}, not a function')
    return Model(module, loss)
