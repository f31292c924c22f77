"""Where a job gets its gradients: asked for at once, computed when the first is needed."""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np
import numpy.typing as npt
from torch import Tensor

from paracosm.errors import InputError, unknown
from paracosm.models import DataSet, Model
from paracosm.training.gradients.automatic import Automatic
from paracosm.training.gradients.one_by_one import OneByOne, Stepper
from paracosm.training.gradients.pending import Gradient, PendingGradient
from paracosm.training.gradients.policies import Alone, Policy, Together
from paracosm.training.gradients.processes import ProcessPool, available_cores
from paracosm.training.gradients.traits import inspect_model
from paracosm.training.gradients.vectorised import Vectorised
from paracosm.training.parameters import ParameterLayout

__all__ = ["GradientSource", "Mode", "make_gradients"]

Mode = Literal["auto", "off", "vmap", "processes"]


class GradientSource:
    """Look-ahead batching of gradients.

    A worker's gradient depends only on the parameters that it read, so it may be computed at any
    time before it is needed. Requests wait until one of them is, and are then computed together
    where that is faster.
    """

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._waiting: dict[int, PendingGradient] = {}
        self._requests = 0

    def request(self, parameters: Tensor, batch: npt.NDArray[np.int64]) -> PendingGradient:
        """Ask for the gradient of a minibatch.

        Args:
            parameters: the flat vector; it must not be changed in place afterwards.
            batch: indices of training examples.
        """
        pending = PendingGradient(self, self._requests, parameters, batch)
        self._waiting[self._requests] = pending
        self._requests += 1
        return pending

    def fulfil(self, request: PendingGradient) -> Gradient:
        """Compute the gradient of a request, and perhaps those of others that wait."""
        if request.number not in self._waiting:
            raise RuntimeError(f"gradient {request.number} was discarded before it was needed")
        computed, gradients = self._policy.compute(request, self._waiting)
        for pending, gradient in zip(computed, gradients, strict=True):
            pending.resolve(gradient)
            del self._waiting[pending.number]
        return request.result()

    def forget(self, request: PendingGradient) -> None:
        """Do not compute a request that still waits."""
        if self._waiting.pop(request.number, None) is None and request.computed:
            self._policy.wasted()

    def describe(self) -> str:
        """Say how gradients were computed, and why so."""
        return self._policy.describe()

    def close(self) -> None:
        """Forget what waits and end the processes, if there are any."""
        self._waiting.clear()
        self._policy.close()


def make_gradients(
    model: Model,
    layout: ParameterLayout,
    data: DataSet,
    mode: Mode,
    workers_hint: int,
    seed: int = 0,
    batch: int = 32,
) -> GradientSource:
    """Return the source of the gradients of a model on a data set's training examples.

    The model is taken over: its module stays in training mode, its parameters are those of the
    last gradient, and its buffers (running statistics) follow the gradients in the order in which
    these are computed, as on a parameter server that holds moving averages.

    Args:
        model: module and loss.
        layout: of the module's parameters in the flat vector.
        data: the training examples are used.
        mode: "off" computes each gradient alone, when it is needed; "vmap" and "processes" all
            that wait together; "auto" measures, and does what is fastest. As that depends on the
            machine, two runs agree to the bit only where the mode is named.
        workers_hint: how many gradients may wait at a time.
        seed: of random numbers that the model draws; each request has a stream of its own.
        batch: examples of a minibatch.

    Raises:
        InputError: the model does not fit the data, or the mode.
    """
    if mode not in get_args(Mode):
        raise unknown("look-ahead mode", mode, get_args(Mode))
    traits = inspect_model(model, layout, data, batch)
    processes = min(available_cores(), workers_hint)

    def pool() -> ProcessPool:
        return ProcessPool(model, layout, data, traits, seed, processes, workers_hint)

    if mode == "processes":
        return GradientSource(Together(pool(), f"on {processes} processes"))
    if mode == "off" or (mode == "auto" and workers_hint == 1):
        why = "" if mode == "off" else " (a single worker)"
        one = OneByOne(Stepper(model, layout, traits, seed), data)
        return GradientSource(Alone(one, f"one by one{why}"))
    vectorised = Vectorised(model, layout, data, traits)
    obstacle = traits.obstacle or vectorised.obstacle()
    if mode == "vmap":
        if obstacle:
            raise InputError(f'look-ahead mode "vmap": {obstacle}; use "auto"')
        return GradientSource(Together(vectorised, "vmap"))
    one = OneByOne(Stepper(model, layout, traits, seed), data)
    make_pool = pool if processes > 1 else None
    return GradientSource(Automatic(one, vectorised, obstacle, make_pool))
