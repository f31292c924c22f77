"""Gradients of many minibatches, each at its own parameters, in one vectorised call."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, vmap

from paracosm.factory import one_line
from paracosm.models import DataSet, Model
from paracosm.training.gradients.pending import Gradient, PendingGradient
from paracosm.training.gradients.traits import Traits
from paracosm.training.parameters import ParameterLayout

__all__ = ["Vectorised"]

_MEMORY = 64 * 2**20  # bytes that one call may take; more left the caches and was slower


class Vectorised:
    """The method that computes gradients by `vmap` over parameters and minibatches.

    It removes the overhead of a call per gradient and saves no arithmetic. As sums are taken in
    another order, gradients agree with those computed one by one to about 1e-7 (relative; 4e-7 for
    convolutions). Where rounding decides at a kink (a ReLU at zero, a tie in max pooling), they may
    take different, equally valid sides: of 64 gradients of the paper's network one did, by 2e-3.

    Only the losses are vectorised; ordinary automatic differentiation goes back from there. As the
    loss of one request depends on no other's parameters, the gradient of their sum is that of each.
    `vmap` of `torch.func.grad` costs as much and imports PyTorch's compiler first, for seconds.
    """

    def __init__(
        self, model: Model, layout: ParameterLayout, data: DataSet, traits: Traits
    ) -> None:
        self._layout = layout
        self._parameters = layout.flatten(model.module)
        self._x = data.train_x
        self._y = data.train_y
        self._activation_bytes = traits.activation_bytes

        def loss(tensors: dict[str, Tensor], x: Tensor, y: Tensor) -> Tensor:
            return model.loss(functional_call(model.module, tensors, (x,)), y)

        self._losses = vmap(loss)

    def obstacle(self) -> str | None:
        """Try it, and return why the model cannot be vectorised; None if it can."""
        parameters = [self._parameters, self._parameters.clone()]
        x, y = self._x[:1].expand(2, 1, *self._x.shape[1:]), self._y[:1]
        try:
            self._gradients(parameters, x, y.expand(2, *y.shape))
        except Exception as error:  # the model's own code, and all that vmap has no rule for
            return f"the model cannot be vectorised: {one_line(error)}"
        return None

    def compute(self, requests: list[PendingGradient]) -> list[Gradient]:
        """Return the gradients of the requests, in their order.

        The gradients of one call are rows of one matrix, which lives as long as any of them.
        """
        gradients: list[Gradient] = []
        for chunk in self._chunks(requests):
            indices = torch.from_numpy(np.concatenate([request.batch for request in chunk]))
            leading = (len(chunk), len(chunk[0].batch))
            x = self._x.index_select(0, indices).view(*leading, *self._x.shape[1:])
            y = self._y.index_select(0, indices).view(*leading, *self._y.shape[1:])
            parameters = [request.parameters for request in chunk if request.parameters is not None]
            losses, rows = self._gradients(parameters, x, y)
            gradients += map(Gradient, losses.tolist(), rows.unbind())
        return gradients

    def _gradients(self, parameters: list[Tensor], x: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Return the losses and the gradients, one row for each request."""
        number, layout = len(parameters), self._layout
        first = parameters[0]
        shared = all(other is first for other in parameters)
        stacked = first.expand(number, -1) if shared else torch.stack(parameters)
        leaves = {
            name: part.view(number, *shape).detach().requires_grad_()
            for name, part, shape in zip(
                layout.names,
                torch.split(stacked, list(layout.sizes), 1),
                layout.shapes,
                strict=True,
            )
        }
        losses = self._losses(leaves, x, y)
        gradients = torch.autograd.grad(
            losses, list(leaves.values()), torch.ones(number), materialize_grads=True
        )
        rows = torch.empty(number, layout.size)
        for part, gradient in zip(torch.split(rows, list(layout.sizes), 1), gradients, strict=True):
            part.view(gradient.shape).copy_(gradient)
        return losses.detach(), rows

    def _chunks(self, requests: list[PendingGradient]) -> Iterator[list[PendingGradient]]:
        """Divide requests into runs of one batch size, each small enough for the memory."""
        for size, run in groupby(requests, key=lambda request: len(request.batch)):
            group = list(run)
            # Alive at once: parameters, gradients by tensor and by row; activations and theirs.
            each = 3 * 4 * self._layout.size + 2 * size * self._activation_bytes
            length = max(1, _MEMORY // each)
            for begin in range(0, len(group), length):
                yield group[begin : begin + length]
