"""How good parameters are on a set of examples."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.func import functional_call

from paracosm.models import Model
from paracosm.training.parameters import ParameterLayout

__all__ = ["evaluate"]

_ELEMENTS = 2**20  # of inputs at a time: a convolution makes fifty times as many of them


def evaluate(
    model: Model,
    layout: ParameterLayout,
    parameters: Tensor,
    x: Tensor,
    y: Tensor,
    chunk: int = 2048,
) -> tuple[float, float | None]:
    """Return the mean loss and the accuracy of the model at `parameters` on the examples.

    The model is in evaluation mode: no dropout, and batch normalisation by the running statistics
    that the module's buffers hold, which are those of the gradients computed so far.

    Args:
        model: the model; its own parameters are neither used nor changed.
        layout: where its tensors are in the flat vector.
        parameters: the flat vector.
        x: inputs, examples first.
        y: targets; where they are no class labels (and outputs no scores), the accuracy is None.
        chunk: examples at a time; fewer where they are large.
    """
    tensors = layout.unflatten(parameters)
    labelled = not torch.is_floating_point(y)
    total, correct = 0.0, 0
    chunk = max(1, min(chunk, _ELEMENTS // max(1, x[0].numel())))
    model.module.eval()
    try:
        with torch.no_grad():
            for inputs, targets in zip(torch.split(x, chunk), torch.split(y, chunk), strict=True):
                outputs = functional_call(model.module, tensors, (inputs,))
                total += model.loss(outputs, targets).item() * len(inputs)
                labelled = labelled and outputs.ndim == targets.ndim + 1
                if labelled:
                    correct += int((outputs.argmax(1) == targets).sum())
    finally:
        model.module.train()
    return total / len(x), correct / y.numel() if labelled else None
