"""From options to a workload, the same on real and on fake tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from paracosm.factory import is_reference
from paracosm.graphs.capture.options import CaptureOptions
from paracosm.models import Workload, built_in
from paracosm.models.build import build_workload

__all__ = ["load_workload", "resolved"]


def resolved(options: CaptureOptions) -> dict[str, Any]:
    """Return all options by name, with the defaults of the model filled in."""
    shape, classes = options.shape, options.classes
    if not is_reference(options.model):
        shape, classes = built_in(options.model).filled(shape, classes)
    return {**vars(options), "shape": shape and list(shape), "classes": classes}


def load_workload(options: CaptureOptions) -> Workload:
    """Make the module and its inputs on the default device, in the mode the options ask for.

    Parameters have the dtype of the options by being made while it is PyTorch's default: fake ones
    cannot be converted in place.

    Raises:
        InputError: the model's factory fails, or does not return what it should.
    """
    before = torch.get_default_dtype()
    torch.set_default_dtype(getattr(torch, options.dtype))
    try:
        workload = build_workload(options.model, options.batch, options.shape, options.classes)
    finally:
        torch.set_default_dtype(before)
    workload.module.train(options.train)
    if not options.dropout:
        _without_dropout(workload.module)
    return workload


def _without_dropout(module: nn.Module) -> None:
    for part in module.modules():
        if isinstance(part, nn.modules.dropout._DropoutNd):
            part.p = 0.0
        elif isinstance(part, nn.MultiheadAttention | nn.RNNBase):
            part.dropout = 0.0
