"""Buffers of a model, such as the running statistics of batch normalisation. Training normalises
each minibatch by its own statistics and updates the running ones (Ioffe, Szegedy, "Batch
Normalization: Accelerating Deep Network Training by Reducing Internal Covariate Shift", 2015,
algorithm 2); evaluation uses the latter. Where workers share one set, it follows all minibatches in
the order in which their gradients are computed. Where each replica has its own, as on real workers,
it follows that replica's; what is evaluated then is the mean over replicas, as where whole models
are averaged (Li et al., "FedBN: Federated Learning on Non-IID Features via Local Batch
Normalization", 2021, section 3, on what federated averaging does).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

SHARED = -1
"""The replica of those who share one set; others have numbers from 0."""

State = Sequence[npt.NDArray[Any]]
"""One set of buffers."""


class Buffers:
    """Sets of a module's buffers by replica, each made when it is first used.

    All begin as the module's. The module has one of them at a time, so that nothing is copied.
    """

    def __init__(self, module: nn.Module) -> None:
        self._owners = {
            f"{prefix}.{name}" if prefix else name: (owner, name)
            for prefix, owner in module.named_modules()
            for name, buffer in owner._buffers.items()
            if buffer is not None
        }
        self._initial = _copies(self._tensors())
        self._sets: dict[int, list[Tensor]] = {}
        self._seen: dict[int, list[Tensor]] = {}  # of those whose gradients are computed ahead
        self._used: int | None = None

    def use(self, replica: int) -> None:
        """Switch the module to the buffers of a replica."""
        if replica == self._used:
            return
        if self._used is not None:  # a forward pass may have put new tensors in their places
            self._sets[self._used] = self._tensors()
        known = self._sets.get(replica)
        if known is not None:
            self._put(known)
        elif self._used is not None:  # the first one has the module's own
            self._put(_copies(self._initial))
        self._used = replica

    def state(self, replica: int) -> State:
        """Return a copy of a replica's buffers."""
        self.use(replica)
        return [tensor.numpy().copy() for tensor in self._tensors()]

    def load(self, replica: int, state: State) -> None:
        """Replace a replica's buffers."""
        self.use(replica)
        self._put([torch.from_numpy(values) for values in state])

    def see(self, replica: int, state: State) -> None:
        """Adopt the buffers of a gradient that was computed ahead and is now used."""
        self._seen[replica] = [torch.from_numpy(values) for values in state]

    def rewind(self, replica: int) -> None:
        """Undo the effect of gradients that were computed ahead and not used."""
        self.use(replica)
        self._put(_copies(self._seen.get(replica, self._initial)))

    def clear(self) -> None:
        """Forget all replicas."""
        self._sets.clear()
        self._used = None

    def mean(self) -> dict[str, Tensor]:
        """Return by name the mean over all replicas so far, of whole numbers the largest.

        Of what is computed ahead only that counts which was looked at. Empty where the module has
        what counts: one shared set, or what all begin with.
        """
        if self._used is not None:
            self._sets[self._used] = self._tensors()
        sets = self._seen or self._sets
        if not sets or SHARED in sets:
            return {}
        stacks = map(torch.stack, zip(*sets.values(), strict=True))
        return {
            name: stack.mean(0) if torch.is_floating_point(stack) else stack.amax(0)
            for name, stack in zip(self._owners, stacks, strict=True)
        }

    def _tensors(self) -> list[Tensor]:
        tensors = [owner._buffers[name] for owner, name in self._owners.values()]
        return [tensor for tensor in tensors if tensor is not None]

    def _put(self, tensors: Sequence[Tensor]) -> None:
        for (owner, name), tensor in zip(self._owners.values(), tensors, strict=True):
            owner._buffers[name] = tensor


def _copies(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return copies; shared objects stay shared."""
    copied = {id(tensor): tensor.clone() for tensor in tensors}
    return [copied[id(tensor)] for tensor in tensors]


def averaged_over(states: Sequence[State], start: State) -> State:
    """Combine the buffers of several tasks that began with the same ones.

    A running statistic becomes the mean of what they end with, since the sum of their changes would
    overshoot; a count adds up.
    """
    result = [values.copy() for values in start]
    for state in states:
        for place, (values, began) in enumerate(zip(state, start, strict=True)):
            change = np.asarray(values - began)
            counts = not np.issubdtype(began.dtype, np.floating)
            result[place] = np.asarray(
                result[place] + (change if counts else change / len(states)), began.dtype
            )
    return result
