"""Gradients one at a time: plain PyTorch, as lean as it gets."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import torch
from torch import Tensor

from paracosm.errors import InputError
from paracosm.factory import one_line
from paracosm.models import DataSet, Model
from paracosm.rng import integer_seed
from paracosm.training.gradients.pending import Gradient, PendingGradient
from paracosm.training.gradients.traits import Traits
from paracosm.training.parameters import ParameterLayout

__all__ = ["OneByOne", "Stepper"]


class Stepper:
    """Computes the gradient of one minibatch.

    The module's parameters become views of one vector into which each request's parameters are
    copied: cheaper than to call the module as a function of its parameters, which costs more than
    the gradient of a small model. The module is taken over: its parameters are the last ones used.
    """

    def __init__(self, model: Model, layout: ParameterLayout, traits: Traits, seed: int) -> None:
        self._module = model.module.train()
        self._loss = model.loss
        self._flat = layout.flatten(self._module)
        tensors = dict(self._module.named_parameters())
        self._tensors = [tensors[name] for name in layout.names]
        views = layout.unflatten(self._flat).values()
        for tensor, view in zip(self._tensors, views, strict=True):
            tensor.data = view
        self._random = traits.random
        self._unused = traits.unused
        self._seed = seed

    def step(self, parameters: Tensor, x: Tensor, y: Tensor, number: int) -> Gradient:
        """Return loss and gradient; `number` picks the stream of random numbers."""
        self._flat.copy_(parameters)
        try:
            with self._stream(number) if self._random else nullcontext():
                loss = self._loss(self._module(x), y)
            gradients = torch.autograd.grad(loss, self._tensors, materialize_grads=self._unused)
        except Exception as error:  # the model is the user's, and may raise anything
            raise InputError(
                f"the model failed on a minibatch of {len(x)} examples: {one_line(error)}"
            ) from error
        return Gradient(loss.item(), torch.cat([g.reshape(-1) for g in gradients]))

    @contextmanager
    def _stream(self, number: int) -> Iterator[None]:
        """Draw PyTorch's random numbers from the stream of one request."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(integer_seed((self._seed, number)))
            yield


class OneByOne:
    """The method that computes gradients one after the other."""

    def __init__(self, stepper: Stepper, data: DataSet) -> None:
        self._step = stepper.step
        self._x = data.train_x
        self._y = data.train_y

    def compute(self, requests: list[PendingGradient]) -> list[Gradient]:
        """Return the gradients of the requests, in their order."""
        gradients = []
        for request in requests:
            assert request.parameters is not None
            indices = torch.from_numpy(request.batch)
            x, y = self._x.index_select(0, indices), self._y.index_select(0, indices)
            gradients.append(self._step(request.parameters, x, y, request.number))
        return gradients
